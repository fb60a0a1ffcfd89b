#include "training/memory_check.h"

#include <algorithm>

#include "base/error.h"
#include "support/catch.h"

namespace lockstep {
namespace {

RunOutline outline_of(const MeshShape& mesh) {
  RunOutline outline;
  outline.config.train.global_batch_size = 64;
  outline.config.train.micro_batch_size = 5;
  outline.config.parallel.tensor = mesh.tensor;
  outline.config.parallel.pipeline = mesh.pipeline;
  outline.model.vocab_size = 100;
  outline.model.num_layers = 2;
  outline.host_of.assign(static_cast<std::size_t>(mesh.num_ranks()), 0);
  set_mesh(outline, mesh);
  return outline;
}

std::vector<std::string> single_changes(const RunOutline& outline) {
  std::vector<std::string> texts;
  for (const MemoryChange& change : memory_changes(outline)) {
    const auto kinds = std::count_if(
        change.extent.begin(), change.extent.end(), [](int extent) { return extent > 0; });
    if (kinds == 1) {
      texts.push_back(change.text);
    }
  }
  return texts;
}

MemoryChange change_named(const RunOutline& outline, const std::string& text) {
  for (const MemoryChange& change : memory_changes(outline)) {
    if (change.text == text) {
      return change;
    }
  }
  throw std::out_of_range(text);
}

TEST_CASE("changes of memory come the cheapest first") {
  const RunOutline outline = outline_of({2, 1, 1});

  // Six micro-batches a data rank or more: a pipeline of two has a bubble of 1/13 at 5 samples each.
  CHECK(single_changes(outline) == std::vector<std::string>{"checkpoint.async = false",
                                                            "parallel.zero_stage = 1",
                                                            "train.micro_batch_size = 2",
                                                            "train.recompute = \"selective\"",
                                                            "train.micro_batch_size = 1",
                                                            "parallel.pipeline = 2",
                                                            "parallel.zero_stage = 3",
                                                            "parallel.tensor = 2",
                                                            "train.recompute = \"full\""});
  const std::vector<MemoryChange> all = memory_changes(outline);
  CHECK(std::is_sorted(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; }));
  // Async 2 x recompute 3 x sizes 3; on two data ranks times stages 0, 1, 2 and 3, the latter two with
  // tree-fold and stage 3 without, too; on two meshes without data ranks.
  CHECK(all.size() == 2 * 3 * 3 * 5 + 2 * (2 * 3 * 3) - 1);
}

TEST_CASE("tree-fold comes with stages 2 and 3 where it is what shards gradients") {
  RunOutline outline = outline_of({2, 1, 1});
  const auto proposed = [&](const std::string& text) {
    const std::vector<MemoryChange> all = memory_changes(outline);
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.text == text; });
  };
  const std::string two = "parallel.zero_stage = 2";
  const std::string folded = ", parallel.accumulate = \"tree-fold\"";
  CHECK_FALSE(proposed(two));
  CHECK(proposed(two + folded));
  CHECK(proposed("parallel.zero_stage = 3"));
  CHECK(change_named(outline, two + folded).config.parallel.accumulate == "tree-fold");
  CHECK(change_named(outline, two + folded).cost == Approx(0.04));
  CHECK_FALSE(proposed("parallel.accumulate = \"tree-fold\""));

  SECTION("one micro-batch a virtual rank needs none, until it is halved") {
    outline.config.train.global_batch_size = 10;
    CHECK(proposed(two));
    CHECK_FALSE(proposed(two + folded));
    CHECK_FALSE(proposed(two + ", train.micro_batch_size = 2"));
    CHECK(proposed(two + ", train.micro_batch_size = 2" + folded));
  }
  SECTION("an epoch that is smaller than a batch counts") {
    outline.config.train.epochs = 1;
    outline.data.num_samples = 9;
    CHECK(proposed(two));
  }
  SECTION("it is of no use to a data rank with several virtual ones, and neither is stage 2") {
    outline.wanted_virtual_data = 4;
    CHECK_FALSE(proposed(two));
    CHECK_FALSE(proposed(two + folded));
    CHECK(proposed("parallel.zero_stage = 3"));
  }
  SECTION("it is there already") {
    outline.config.parallel.accumulate = "tree-fold";
    CHECK(proposed(two));
    CHECK_FALSE(proposed(two + folded));
  }
  SECTION("stage 2 is there already") {
    outline.config.parallel.zero_stage = 2;
    CHECK(proposed("parallel.accumulate = \"tree-fold\""));
    CHECK(change_named(outline, "parallel.zero_stage = 3").cost == Approx(0.08));
  }
}

TEST_CASE("what is changed already, or is of no use, is not proposed") {
  RunOutline outline = outline_of({1, 1, 1});
  outline.config.train.micro_batch_size = 1;
  outline.config.checkpoint.async_write = false;
  outline.config.train.recompute = "selective";
  CHECK(single_changes(outline) == std::vector<std::string>{"train.recompute = \"full\""});

  outline.config.train.recompute = "none";
  outline.model.architecture = "mlp";
  CHECK(memory_changes(outline).empty());
}

TEST_CASE("full recomputation is no way out of backward passes in two parts") {
  RunOutline outline = outline_of({1, 2, 1});
  const MemoryChange full = change_named(outline, "train.recompute = \"full\"");
  CHECK(outline_with(outline, full).has_value());

  outline.config.parallel.schedule = "zero-bubble";
  CHECK_FALSE(
      outline_with(outline, change_named(outline, "train.recompute = \"full\"")).has_value());
  CHECK(
      outline_with(outline, change_named(outline, "train.recompute = \"selective\"")).has_value());
}

TEST_CASE("a change includes another that does less of the same") {
  const RunOutline outline = outline_of({4, 1, 1});
  const MemoryChange sharded = change_named(outline, "parallel.zero_stage = 1");
  const MemoryChange small = change_named(outline, "train.micro_batch_size = 2");
  const MemoryChange both =
      change_named(outline, "parallel.zero_stage = 1, train.micro_batch_size = 1");

  CHECK(both.includes(sharded));
  CHECK(both.includes(small));
  CHECK_FALSE(small.includes(both));
  CHECK_FALSE(sharded.includes(small));
  CHECK(both.config.parallel.zero_stage == 1);
  CHECK(both.config.train.micro_batch_size == 1);
  CHECK(both.cost == Approx(0.01 + 2 * 0.03));
}

TEST_CASE("another mesh takes its virtual degrees, and the data degree if that is set") {
  RunOutline outline = outline_of({4, 1, 1});
  outline.config.parallel.data = 4;
  const MemoryChange wider = change_named(outline, "parallel.tensor = 2, parallel.data = 2");
  const MemoryChange deeper = change_named(outline, "parallel.pipeline = 4, parallel.data = 1");

  const std::optional<RunOutline> changed = outline_with(outline, wider);
  REQUIRE(changed.has_value());
  CHECK(changed->mesh.data == 2);
  CHECK(changed->virtual_data == 2);
  CHECK(changed->virtual_tensor == 2);
  CHECK_FALSE(outline_with(outline, deeper).has_value());  // two layers

  outline.wanted_virtual_data = 8;
  CHECK(outline_with(outline, wider)->virtual_data == 8);
}

}  // namespace
}  // namespace lockstep

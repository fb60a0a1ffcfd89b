#include "checkpoint/checkpoint_writer.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/scratch_folder.h"
#include "unit/checkpoint/checkpoint_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::CheckpointModel;
using test::FileSizeLimit;
using test::ScratchFolder;

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

CheckpointConfig config_of(bool async_write, long keep = 3) {
  return {.keep = keep, .async_write = async_write};
}

}  // namespace

TEST_CASE("a checkpoint holds the weights of the moment of its save") {
  for (const bool async_write : {false, true}) {
    const ScratchFolder folder;
    CheckpointModel model(2);
    CheckpointWriter writer(
        folder.path(), config_of(async_write), model.state().view(), false, model.queue());
    model.update(1);
    const std::uint64_t at_save = model.hash();

    writer.save(model.run_state(1));
    model.update(2);  // while it may still be written
    writer.wait();

    CheckpointModel loaded(1);
    load_checkpoint(folder / "checkpoints/step-00000001", loaded.state().view(), false);
    CHECK(loaded.hash() == at_save);
    CHECK(writer.written_hash() == at_save);
    CHECK(loaded.hash() != model.hash());
    CHECK(find_damage(folder / "checkpoints/step-00000001", true).empty());
  }
}

TEST_CASE("the newest ones stay and latest points to the last") {
  for (const bool async_write : {false, true}) {
    const ScratchFolder folder;
    CheckpointModel model(1);
    CheckpointWriter writer(
        folder.path(), config_of(async_write, 2), model.state().view(), false, model.queue());

    for (const long step : {8L, 9L, 10L, 11L}) {
      writer.save(model.run_state(step));
    }
    writer.wait();

    CHECK(names_in(folder / "checkpoints") ==
          std::set<std::string>{"latest", "step-00000010", "step-00000011"});
    CHECK(fs::read_symlink(folder / "checkpoints/latest") == "step-00000011");
  }
}

TEST_CASE("unfinished checkpoints do not count among those that are kept") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  CheckpointWriter writer(
      folder.path(), config_of(false, 2), model.state().view(), false, model.queue());
  writer.save(model.run_state(1));
  writer.save(model.run_state(2));
  fs::remove(folder / "checkpoints/step-00000002/COMPLETE");

  writer.save(model.run_state(3));

  CHECK(find_damage(folder / "checkpoints/step-00000001", true).empty());
  CHECK(find_damage(folder / "checkpoints/step-00000003", true).empty());
}

TEST_CASE("what a crash left half-written is removed at the next start") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  fs::create_directories(folder / "checkpoints/.writing-step-00000004");
  test::write_file(folder / "checkpoints/.writing-step-00000004/model-00000.safetensors", "half");

  const CheckpointWriter writer(
      folder.path(), config_of(false), model.state().view(), false, model.queue());

  CHECK(names_in(folder / "checkpoints").empty());
}

TEST_CASE("a damaged checkpoint of the same step is replaced") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  CheckpointWriter writer(
      folder.path(), config_of(false), model.state().view(), false, model.queue());
  writer.save(model.run_state(5));
  test::write_file(folder / "checkpoints/step-00000005/state.json", "damaged");

  writer.save(model.run_state(5));

  CHECK(find_damage(folder / "checkpoints/step-00000005", true).empty());
}

TEST_CASE("a full disk leaves the older checkpoint and no remains, and the next save works") {
  for (const bool async_write : {false, true}) {
    const ScratchFolder folder;
    CheckpointModel model(1);
    CheckpointWriter writer(
        folder.path(), config_of(async_write), model.state().view(), false, model.queue());
    writer.save(model.run_state(1));
    writer.wait();
    {
      const FileSizeLimit full(2000);
      const auto save_and_wait = [&] {
        writer.save(model.run_state(2));
        writer.wait();
      };

      CHECK_THROWS_AS(save_and_wait(), Error);
    }
    CHECK(names_in(folder / "checkpoints") == std::set<std::string>{"latest", "step-00000001"});
    CHECK(find_newest_checkpoint(folder.path())->state.step == 1);

    writer.save(model.run_state(3));
    writer.wait();

    CHECK(find_newest_checkpoint(folder.path())->state.step == 3);
  }
}

TEST_CASE("a folder that is gone fails the save, and the next one works when it is back") {
  for (const bool async_write : {false, true}) {
    const ScratchFolder folder;
    CheckpointModel model(1);
    CheckpointWriter writer(
        folder.path(), config_of(async_write), model.state().view(), false, model.queue());
    fs::rename(folder / "checkpoints", folder / "elsewhere");
    test::write_file(folder / "checkpoints", "a file in its place");
    const auto save_and_wait = [&](long step) {
      writer.save(model.run_state(step));
      writer.wait();
    };

    CHECK_THROWS_AS(save_and_wait(1), Error);

    fs::remove(folder / "checkpoints");
    fs::rename(folder / "elsewhere", folder / "checkpoints");
    save_and_wait(2);
    CHECK(find_newest_checkpoint(folder.path())->state.step == 2);
  }
}

TEST_CASE("memory for a copy is taken only when writing in the background") {
  CheckpointModel model(1);
  const ModelView view = model.state().view();
  const auto flat = static_cast<std::size_t>(view.table->flat_size()) * sizeof(float);
  REQUIRE(view.states.size() == 2);
  const auto tensor = static_cast<std::size_t>(largest_tensor(*view.table)) * sizeof(float);
  CHECK(CheckpointWriter::staging_bytes(config_of(false), view, false) == tensor);
  CHECK(CheckpointWriter::staging_bytes(config_of(true), view, false) == 3 * flat + tensor);
  // What is a copy already needs no other.
  CHECK(CheckpointWriter::staging_bytes(config_of(true), view, true) == tensor);
}

TEST_CASE("sgd without momentum has no optimiser state and still comes back") {
  const ScratchFolder folder;
  CheckpointModel saved(2, test::tiny_config("mlp"), "sgd");
  CheckpointWriter writer(
      folder.path(), config_of(true), saved.state().view(), false, saved.queue());
  saved.update(1);
  writer.save(saved.run_state(1));
  writer.wait();
  CheckpointModel loaded(3, test::tiny_config("mlp"), "sgd");

  load_checkpoint(folder / "checkpoints/latest", loaded.state().view(), false);

  CHECK(loaded.hash() == saved.hash());
}

}  // namespace lockstep

#include "comm/dry/dry_communicator.h"

#include <array>
#include <string>

#include "base/error.h"
#include "kernels/reduce.h"
#include "support/catch.h"

namespace lockstep {

TEST_CASE("the dry communicator counts the closed forms and completes at once") {
  for (const int ranks : {1, 2, 3, 4}) {
    DryCommunicator group(ranks - 1, std::vector<long>(static_cast<std::size_t>(ranks), 0));
    const long count = ranks * kChunkElements;
    const double bytes = static_cast<double>(count) * sizeof(float);
    const double ring = bytes / ranks * (ranks - 1);
    auto* data = group.allocate(static_cast<std::size_t>(count) * sizeof(float)).as<float>();

    const auto operation = group.make_all_reduce(data, count, Reduction::kOrdered);
    CHECK(group.bytes_sent() == 0.0);
    operation->start();
    CHECK(operation->poll());
    CHECK(group.bytes_sent() == 2 * ring);
    group.make_reduce_scatter(data, count)->start();
    CHECK(group.bytes_sent() == 3 * ring);
    group
        .make_all_gather(data, static_cast<std::size_t>(count) * sizeof(float), kChunkElements * 4)
        ->start();
    CHECK(group.bytes_sent() == 4 * ring);
    group.make_all_reduce(data, count, Reduction::kNative)->start();
    CHECK(group.bytes_sent() == Approx(6 * ring));
    CHECK(group.num_calls() == 4);
    CHECK(group.allocated_bytes() == static_cast<std::size_t>(count) * sizeof(float));
  }
}

TEST_CASE("the dry communicator repeats its own values for every rank") {
  DryCommunicator group(1, {0, 0, 1});
  const std::array<double, 2> mine{4.0, 5.0};
  std::array<double, 6> all{};

  group.all_gather(mine, all);

  CHECK(all == std::array<double, 6>{4, 5, 4, 5, 4, 5});
  CHECK(group.all_gather_text("x") == std::vector<std::string>{"x", "x", "x"});
  CHECK(group.bytes_sent() == 2 * 2 * sizeof(double));
}

TEST_CASE("a described group is split by the colors of all its ranks and its calls are heard") {
  DryCommunicator group(2, {5, 5, 8, 8});
  std::string heard;
  group.listen([&](const DryCommunicator& from, const DryCall& call) {
    heard += fmt::format("{} of {}: {};", call.name, from.size(), call.bytes_sent);
  });
  const std::array<int, 4> color_of{0, 1, 0, 1};

  const auto part = group.split(color_of);
  part->broadcast(nullptr, 100, 1);
  part->barrier();

  CHECK(part->rank() == 1);
  CHECK(part->host_of() == std::vector<int>{0, 1});
  CHECK(heard == "broadcast of 2: 100;barrier of 2: 0;");
}

}  // namespace lockstep

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

TEST_CASE("the dry communicator counts sends, hears of receives and refuses what ranks cannot do") {
  DryCommunicator group(1, {0, 0, 1});
  std::string heard;
  group.listen([&](const DryCommunicator&, const DryCall& call) {
    heard += fmt::format("{} of {} with {}, tag {}: {};",
                         call.name,
                         call.buffer_bytes,
                         call.peer,
                         call.tag,
                         call.bytes_sent);
  });
  std::array<char, 50> data{};
  const auto send = group.make_send(data.data(), data.size(), 2, 7);
  const auto receive = group.make_receive(data.data(), data.size(), 0, 8);

  send->start();
  receive->start();

  CHECK(heard == "send of 50 with 2, tag 7: 50;receive of 50 with 0, tag 8: 0;");
  CHECK(group.bytes_sent() == 50.0);
  CHECK(std::string(group.traffic().back().kind) == "send");
  CHECK(group.traffic().back().calls == 1);
  CHECK_THROWS_AS(group.make_send(data.data(), data.size(), 1, 0), Error);
  CHECK_THROWS_AS(group.make_receive(data.data(), data.size(), 3, 0), Error);
  CHECK_THROWS_AS(group.make_send(data.data(), data.size(), 0, -1), Error);
}

TEST_CASE("slices of a reduce-scatter are cut by the chunk that was asked for") {
  const long count = 4 * kChunkElements;
  for (const long chunk : {kChunkElements, count / 2, count}) {
    DryCommunicator group(0, {0, 0, 0, 0});
    auto* data = group.allocate(static_cast<std::size_t>(count) * sizeof(float)).as<float>();

    group.make_reduce_scatter(data, count, chunk)->start();

    const long own = slice_of(count, chunk, 4, 0).size();
    CHECK(group.bytes_sent() == static_cast<double>(count - own) * sizeof(float));
  }
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

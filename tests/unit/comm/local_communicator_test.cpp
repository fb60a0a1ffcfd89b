#include "comm/local/local_communicator.h"

#include <array>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "support/catch.h"

namespace lockstep {

TEST_CASE("one rank's collectives leave its data and complete at once") {
  LocalCommunicator group;
  const Memory memory = group.allocate(3 * 4096 * sizeof(float));
  auto* data = memory.as<float>();
  data[5] = 2.5F;

  const auto sum = group.make_all_reduce(data, 3 * 4096, Reduction::kOrdered);
  const auto scatter = group.make_reduce_scatter(data, 3 * 4096);
  const auto gather = group.make_all_gather(data, 64, 8);
  for (auto* operation : {sum.get(), scatter.get(), gather.get()}) {
    operation->start();
    CHECK(operation->poll());
    operation->wait();
  }

  CHECK(data[5] == 2.5F);
  CHECK(data[0] == 0.0F);
  CHECK(group.bytes_sent() == 0.0);
}

TEST_CASE("one rank's calls are counted and send nothing") {
  LocalCommunicator group;
  const Memory memory = group.allocate(4096);
  const auto scatter = group.make_reduce_scatter(memory.as<float>(), 1024, 256);
  const std::array<double, 1> mine{};
  std::array<double, 1> all{};

  scatter->start();
  scatter->start();
  group.all_gather(mine, all);

  long calls = 0;
  for (const TrafficCount& count : group.traffic()) {
    const std::string kind = count.kind;
    CHECK(count.calls == (kind == "reduce_scatter" ? 2 : kind == "values" ? 1 : 0));
    CHECK(count.bytes == 0.0);
    calls += count.calls;
  }
  CHECK(calls == 3);
}

TEST_CASE("one rank has nobody to send to and its poll is what it was given") {
  int polls = 0;
  LocalCommunicator group([&polls] { ++polls; });
  int data = 0;
  const std::array<int, 1> color_of{0};

  group.poll();
  group.split(color_of)->poll();

  CHECK(polls == 2);
  CHECK_THROWS_AS(group.make_send(&data, sizeof data, 1, 0), Error);
  CHECK_THROWS_AS(group.make_receive(&data, sizeof data, 0, 0), Error);
}

TEST_CASE("one rank gathers its own values and texts") {
  LocalCommunicator group;
  const std::array<double, 2> mine{1.5, -2.0};
  std::array<double, 2> all{};

  group.all_gather(mine, all);

  CHECK(all == mine);
  CHECK(group.all_gather_text("a") == std::vector<std::string>{"a"});
  const std::array<int, 1> color_of{3};
  CHECK(group.split(color_of)->size() == 1);
  CHECK(group.host_of() == std::vector<int>{0});
}

TEST_CASE("memory of the group of one is zero, aligned and outlives its handle") {
  LocalCommunicator group;
  float* data = nullptr;
  {
    const Memory memory = group.allocate(4096);
    data = memory.as<float>();
  }

  CHECK(reinterpret_cast<std::uintptr_t>(data) % kMemoryAlignment == 0);
  CHECK(data[1023] == 0.0F);
}

}  // namespace lockstep

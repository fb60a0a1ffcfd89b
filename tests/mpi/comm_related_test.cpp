// Groups that were split from one another: they progress together.
#include <chrono>
#include <numeric>
#include <vector>

#include "comm/exchange.h"
#include "comm_support.h"
#include "support/catch.h"

namespace lockstep {
namespace {

/// All ranks once more, and each rank alone.
std::unique_ptr<Communicator> all_of(Communicator& world) {
  return world.split(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
}

std::unique_ptr<Communicator> alone(Communicator& world) {
  std::vector<int> color_of(static_cast<std::size_t>(world.size()));
  std::iota(color_of.begin(), color_of.end(), 0);
  return world.split(color_of);
}

/// Fills `data` with the rank's contribution to a sum of as many chunks as there are ranks.
long fill_chunk_each(const Communicator& group, float* data) {
  const long count = kAllReduceChunk * group.size();
  for (long i = 0; i < count; ++i) {
    data[i] = test::element(group.rank(), i);
  }
  return count;
}

}  // namespace

TEST_CASE("a rank that waits in one group holds up no related one") {
  for (const auto& placement : test::placements()) {
    const auto world = test::world(placement);
    if (world->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const auto part = all_of(*world);
    const Memory memory =
        part->allocate(kAllReduceChunk * sizeof(float) * static_cast<std::size_t>(part->size()));
    const long count = fill_chunk_each(*part, memory.as<float>());
    const auto sum = part->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered);

    // The last rank sends only once it has the sum, to which all must do their part meanwhile.
    const int last = world->size() - 1;
    sum->start();
    if (world->rank() == last) {
      sum->wait();
      for (int to = 0; to < last; ++to) {
        const auto send = world->make_send(nullptr, 0, to, 0);
        send->start();
        send->wait();
      }
    } else {
      const auto receive = world->make_receive(nullptr, 0, last, 0);
      receive->start();
      receive->wait();
    }
    sum->wait();

    CHECK(memory.as<float>()[count - 1] == test::sum_of_elements(world->size(), count - 1));
    world->barrier();
  }
}

TEST_CASE("polling the group of one rank lets those progress that it was split from") {
  for (const auto& placement : test::placements()) {
    const auto world = test::world(placement);
    if (world->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const auto single = alone(*world);
    const Memory memory =
        world->allocate(kAllReduceChunk * sizeof(float) * static_cast<std::size_t>(world->size()));
    const long count = fill_chunk_each(*world, memory.as<float>());
    const auto sum = world->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered);
    const long own = slice_of(count, kAllReduceChunk, world->size(), world->rank()).begin;
    const float expected = test::sum_of_elements(world->size(), own);
    world->barrier();

    sum->start();
    // Only this rank writes to its own slice, and only when something lets it progress.
    const auto start = std::chrono::steady_clock::now();
    while (memory.as<float>()[own] != expected &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      single->poll();
    }

    CHECK(single->size() == 1);
    CHECK(memory.as<float>()[own] == expected);
    sum->wait();
  }
}

}  // namespace lockstep

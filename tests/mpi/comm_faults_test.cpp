#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "base/error.h"
#include "comm_support.h"
#include "support/catch.h"

namespace {

std::atomic<long> num_allocations{0};

}  // namespace

// Counts what the starts and waits of operations allocate.
void* operator new(std::size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace lockstep {

using test::error_of;
using test::has;

TEST_CASE("starts and waits allocate nothing") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    const auto group = test::world(placement);
    const Memory memory = group->allocate(40'960 * sizeof(float));
    const auto sum = group->make_all_reduce(memory.as<float>(), 20'000, Reduction::kOrdered);
    const auto scatter = group->make_reduce_scatter(memory.as<float>() + 20'480, 20'480);
    const int size = group->size();
    const int next = (group->rank() + 1) % size;
    const int previous = (group->rank() + size - 1) % size;
    std::vector<int> sent(20'000);
    std::vector<int> received(20'000);
    const std::size_t bytes = sent.size() * sizeof(int);
    const auto send = size > 1 ? group->make_send(sent.data(), bytes, next, 0) : nullptr;
    const auto receive =
        size > 1 ? group->make_receive(received.data(), bytes, previous, 0) : nullptr;
    std::array<double, 2> mine{1, 2};
    std::vector<double> all(2 * static_cast<std::size_t>(group->size()));
    group->barrier();
    const long before = num_allocations.load();

    for (int round = 0; round < 20; ++round) {
      sum->start();
      scatter->start();
      if (size > 1) {
        send->start();
        receive->start();
        receive->wait();
        send->wait();
      }
      group->poll();
      sum->wait();
      scatter->wait();
      group->all_gather(mine, all);
    }

    CHECK(num_allocations.load() == before);
  }
}

TEST_CASE("ranks that make different operations all learn both calls") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const Memory memory = group->allocate(8192);
    const long count = group->rank() == 0 ? 200 : 100;

    const std::string error =
        error_of([&] { group->make_all_reduce(memory.as<float>(), count, Reduction::kOrdered); });

    CHECK(has(error, "rank 0"));
    CHECK(has(error, "all_reduce of 200 floats"));
    CHECK(has(error, "rank 1"));
    CHECK(has(error, "all_reduce of 100 floats"));
  }
}

TEST_CASE("ranks that start operations in different orders are told both names") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement, 20);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const Memory memory = group->allocate(8192);
    const auto first = group->make_all_reduce(memory.as<float>(), 100, Reduction::kOrdered);
    const auto second = group->make_all_reduce(memory.as<float>() + 512, 300, Reduction::kOrdered);
    Operation& operation = group->rank() == 0 ? *second : *first;

    operation.start();
    const std::string error = error_of([&] { operation.wait(); });

    CAPTURE(error);
    CHECK(has(error, "rank 0"));
    CHECK(has(error, "all_reduce of 300 floats (operation 1)"));
    CHECK(has(error, "all_reduce of 100 floats (operation 0)"));
  }
}

TEST_CASE("a rank that waits in one group is told that ranks went different ways in another") {
  const auto world = test::world({"one host", {}}, 20);
  if (world->size() == 1) {
    return;
  }
  const auto group = world->split(std::vector<int>(static_cast<std::size_t>(world->size()), 0));
  const Memory memory = group->allocate(8192);
  const auto first = group->make_all_reduce(memory.as<float>(), 100, Reduction::kOrdered);
  const auto second = group->make_all_reduce(memory.as<float>() + 512, 300, Reduction::kOrdered);
  const int other = world->rank() == 0 ? 1 : 0;
  const auto receive = world->make_receive(nullptr, 0, other, 0);  // nobody sends

  (world->rank() == 0 ? *second : *first).start();
  receive->start();
  const std::string error = error_of([&] { receive->wait(); });

  CAPTURE(error);
  CHECK(has(error, "all_reduce of 300 floats (operation 1)"));
  CHECK(has(error, "all_reduce of 100 floats (operation 0)"));
}

TEST_CASE("a barrier that meets an all_gather is an error and no hang") {
  for (const auto& placement : test::placements()) {
    const auto group = test::world(placement, 20);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const std::array<double, 3> mine{};
    std::vector<double> all(3 * static_cast<std::size_t>(group->size()));

    const std::string error = error_of([&] {
      if (group->rank() == 0) {
        group->barrier();
      } else {
        group->all_gather(mine, all);
      }
      group->barrier();
    });

    CHECK(!error.empty());
  }
}

TEST_CASE("the time limit names the operation and the rank that is missing") {
  for (const auto& placement : test::placements()) {
    const double limit = 0.5;
    const auto group = test::world(placement);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const int sleeper = group->size() - 1;
    const Memory memory = group->allocate(8192);
    const auto operation = group->make_all_reduce(memory.as<float>(), 2000, Reduction::kOrdered);
    group->set_time_limit(limit);
    group->barrier();

    if (group->rank() == sleeper) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit));
    } else {
      operation->start();
      const std::string error = error_of([&] { operation->wait(); });
      CAPTURE(error);
      CHECK(has(error, "all_reduce of 2000 floats (operation 0)"));
      CHECK(has(error, "missing: rank "));
      CHECK(has(error, fmt::format("rank {} (host ", sleeper)));
      CHECK((has(error, "last seen in barrier") || placement.name != "one host"));
    }
  }
}

TEST_CASE("the time limit names the rank that does not come to a barrier") {
  for (const auto& placement : test::placements()) {
    const double limit = 0.5;
    const auto group = test::world(placement);
    if (group->size() == 1) {
      continue;
    }
    CAPTURE(placement.name);
    const int sleeper = group->size() - 1;
    group->set_time_limit(limit);

    if (group->rank() == sleeper) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit));
    } else {
      const std::string error = error_of([&] { group->barrier(); });
      CAPTURE(error);
      CHECK(has(error, "barrier: waited"));
      CHECK(has(error, "missing: rank "));
      CHECK(has(error, fmt::format("rank {} (host ", sleeper)));
    }
  }
}

TEST_CASE("start-up names the ranks that do not come") {
  int argc = 0;
  char** argv = nullptr;
  const MpiRuntime runtime(argc, argv);
  if (runtime.global_size() == 1) {
    CHECK(make_world(runtime, {})->size() == 1);
    return;
  }
  const double limit = 0.4;
  const int sleeper = runtime.global_size() - 1;
  if (runtime.global_rank() == sleeper) {
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit));
  }

  const std::string error = error_of([&] { make_world(runtime, {nullptr, limit, {}}); });

  CHECK(has(error, "start-up"));
  CHECK(has(error, fmt::format("missing: rank {}", sleeper)));
}

}  // namespace lockstep

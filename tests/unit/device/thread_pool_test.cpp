#include "device/cpu/thread_pool.h"

#include <stdexcept>
#include <vector>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("a thread pool runs every task exactly once") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const long tasks : {0L, 1L, 2L, 7L, 1000L}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);

      for (int repeat = 0; repeat < 50; ++repeat) {
        pool.run(tasks, [&](long task) { ++runs[static_cast<std::size_t>(task)]; });
      }

      CHECK(runs == std::vector<int>(static_cast<std::size_t>(tasks), 50));
    }
  }
}

TEST_CASE("a thread pool numbers its threads below their count") {
  ThreadPool pool(3);
  std::vector<int> seen(64, -1);

  pool.run_indexed(64,
                   [&](long task, int thread) { seen[static_cast<std::size_t>(task)] = thread; });

  for (const int thread : seen) {
    CHECK(thread >= 0);
    CHECK(thread < 3);
  }
}

TEST_CASE("an exception of a task reaches the caller and the pool works on") {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    CHECK_THROWS_AS(pool.run(10,
                             [](long task) {
                               if (task == 4) {
                                 throw std::runtime_error("task 4");
                               }
                             }),
                    std::runtime_error);
    int sum = 0;
    pool.run(1, [&](long) { sum = 1; });
    CHECK(sum == 1);
  }
}

}  // namespace lockstep

// What the rank tests of the communicators share: placements of the ranks on hosts, and inputs
// whose sum is known.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_tree.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi/runtime.h"
#include "support/error_text.h"

namespace lockstep::test {

/// Ranks that share a number are on one host.
struct Placement {
  std::string name;
  std::function<int(int rank)> host_of;
};

/// One host, and hosts simulated on this one: in pairs, interleaved, all but one, one rank each.
inline std::vector<Placement> placements() {
  const int size = [] {
    int argc = 0;
    char** argv = nullptr;
    return MpiRuntime(argc, argv).global_size();
  }();
  return {{"one host", {}},
          {"pairs", [](int rank) { return rank / 2; }},
          {"interleaved", [](int rank) { return rank % 2; }},
          {"all but one", [size](int rank) { return rank + 1 == size ? 1 : 0; }},
          {"a host each", [](int rank) { return rank; }}};
}

inline std::unique_ptr<Communicator> world(const Placement& placement,
                                           double time_limit_seconds = 30,
                                           ThreadPool* threads = nullptr) {
  int argc = 0;
  char** argv = nullptr;
  const MpiRuntime runtime(argc, argv);
  return make_world(runtime, {threads, time_limit_seconds, placement.host_of});
}

/// Element i of what `rank` contributes in round `round`: needs rounding in every addition.
inline float element(int rank, long i, int round = 0) {
  return 1.0F / static_cast<float>(3 + rank * 7 + i % 1009 + round);
}

inline float sum_of_elements(int num_ranks, long i, int round = 0) {
  std::vector<float> leaves;
  for (int rank = 0; rank < num_ranks; ++rank) {
    leaves.push_back(element(rank, i, round));
  }
  return tree_sum(leaves);
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lockstep::test

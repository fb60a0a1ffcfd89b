// The all-reduce of the MPI library.
#pragma once

#include <vector>

#include "comm/mpi/mpi_operation.h"

namespace lockstep {

/// MPI_Iallreduce in place, in pieces of 1 MiB: the library then works in the caches, and a count
/// beyond MPI's 2^31 needs no special case.
class NativeAllReduce final : public MpiOperation {
 public:
  NativeAllReduce(MpiGroup& group, int number, float* data, long count);
  // Started requests cannot be cancelled; a rank that leaves one behind is about to end the job.
  ~NativeAllReduce() override = default;

  bool advance() override;

 private:
  void begin(std::uint32_t call_number, std::uint32_t generation) override;
  [[nodiscard]] bool is_missing(int local) const override;

  float* data_;
  long count_;
  std::vector<MPI_Request> requests_;
};

}  // namespace lockstep

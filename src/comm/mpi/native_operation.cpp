#include "comm/mpi/native_operation.h"

#include <algorithm>

#include "base/integers.h"
#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

constexpr long kPiece = (1L << 20) / static_cast<long>(sizeof(float));

}  // namespace

NativeAllReduce::NativeAllReduce(MpiGroup& group, int number, float* data, long count)
    : MpiOperation(
          group,
          number,
          TrafficKind::kNativeAllReduce,
          2.0 * static_cast<double>(count) * sizeof(float) * (group.size() - 1) / group.size()),
      data_(data),
      count_(count),
      requests_(static_cast<std::size_t>(ceil_div(count, kPiece)), MPI_REQUEST_NULL) {}

void NativeAllReduce::begin(std::uint32_t call_number, std::uint32_t generation) {
  group()
      .control(number(), group().local_index())
      .ready.store(pack(call_number, generation), std::memory_order_release);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const long first = static_cast<long>(i) * kPiece;
    mpi_call(MPI_Iallreduce(MPI_IN_PLACE,
                            data_ + first,
                            static_cast<int>(std::min(kPiece, count_ - first)),
                            MPI_FLOAT,
                            MPI_SUM,
                            group().comm(),
                            &requests_[i]),
             "MPI_Iallreduce");
  }
  contributed();
}

bool NativeAllReduce::is_missing(int local) const {
  const std::uint64_t ready =
      group().control(number(), local).ready.load(std::memory_order_acquire);
  return !reached(lower_half(ready), generation());
}

bool NativeAllReduce::advance() {
  int complete = 0;
  mpi_call(
      MPI_Testall(
          static_cast<int>(requests_.size()), requests_.data(), &complete, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  if (complete != 0) {
    finish();
  }
  return complete != 0;
}

}  // namespace lockstep

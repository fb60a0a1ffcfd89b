#include "comm/mpi/window.h"

#include <cstdint>
#include <cstring>
#include <exception>

#include <sys/mman.h>

#include "base/integers.h"
#include "comm/communicator.h"
#include "comm/mpi/mpi_call.h"
#include "device/cpu/cpu_queue.h"

namespace lockstep {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

long bytes_to_next_page(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<long>(round_up(number, std::uintptr_t{Communicator::kPage}) - number);
}

}  // namespace

SharedWindow::SharedWindow(MPI_Comm host, std::size_t bytes, Pieces pieces)
    : bytes_(round_up(bytes, Communicator::kPage)) {
  int size = 0;
  int rank = 0;
  mpi_call(MPI_Comm_size(host, &size), "MPI_Comm_size");
  mpi_call(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  if (size == 1) {
    alone_ = allocate_host(bytes_);
    own_ = alone_.data();
    pieces_.push_back(own_);
    return;
  }
  MPI_Info info = MPI_INFO_NULL;
  mpi_call(MPI_Info_create(&info), "MPI_Info_create");
  // Pieces may then start on pages of their own. Open MPI puts a header before them all the same,
  // so that they start in the middle of a cache line: a page more lets ours start at the next one.
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  std::byte* whole = nullptr;
  const bool takes_piece = pieces == Pieces::kOneEach || rank == 0;
  const std::size_t taken = takes_piece ? bytes_ + Communicator::kPage : 0;
  const int code = MPI_Win_allocate_shared(
      static_cast<MPI_Aint>(taken), 1, info, host, static_cast<void*>(&whole), &window_);
  MPI_Info_free(&info);
  mpi_call(code, "MPI_Win_allocate_shared");
  const long skipped = takes_piece ? bytes_to_next_page(whole) : 0;
  std::vector<long> all_skipped(static_cast<std::size_t>(size));
  mpi_call(MPI_Allgather(&skipped, 1, MPI_LONG, all_skipped.data(), 1, MPI_LONG, host),
           "MPI_Allgather");
  for (int local = 0; local < size; ++local) {
    const int owner = pieces == Pieces::kOneEach ? local : 0;
    MPI_Aint piece_bytes = 0;
    int unit = 0;
    std::byte* piece = nullptr;
    mpi_call(MPI_Win_shared_query(window_, owner, &piece_bytes, &unit, static_cast<void*>(&piece)),
             "MPI_Win_shared_query");
    pieces_.push_back(piece + all_skipped[static_cast<std::size_t>(owner)]);
  }
  own_ = pieces_[static_cast<std::size_t>(rank)];
  if (bytes_ >= kHugePage) {
    madvise(own_, bytes_, MADV_HUGEPAGE);  // advice only: failure costs speed, nothing else
  }
  if (takes_piece) {
    std::memset(own_, 0, bytes_);  // also places the pages near this rank
  }
  if (pieces == Pieces::kOneForAll) {
    mpi_call(MPI_Barrier(host), "MPI_Barrier");  // nobody writes what is then set to zero
  }
  mpi_call(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
}

SharedWindow::~SharedWindow() {
  if (window_ != MPI_WIN_NULL && std::uncaught_exceptions() == 0) {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
}

}  // namespace lockstep

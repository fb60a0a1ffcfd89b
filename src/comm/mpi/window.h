// Memory that the ranks of one host read and write directly.
#pragma once

#include <cstddef>
#include <vector>

#include <mpi.h>

#include "device/memory.h"

namespace lockstep {

/// One piece of `bytes` zero-filled bytes for every rank of `host` (a communicator of ranks that
/// share memory), mapped by all of them, or a single one for all. Pieces start on pages.
class SharedWindow {
 public:
  enum class Pieces { kOneEach, kOneForAll };

  /// Collective over `host`. Throws Error when there is not enough memory.
  SharedWindow(MPI_Comm host, std::size_t bytes, Pieces pieces = Pieces::kOneEach);
  /// Collective, except while an exception passes: the rank then ends the job and waits for nobody.
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  /// The piece of the host's rank number `local`, as this rank sees it.
  [[nodiscard]] std::byte* piece(int local) const {
    return pieces_[static_cast<std::size_t>(local)];
  }
  [[nodiscard]] std::byte* own() const { return own_; }
  /// Of a piece.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Whether all ranks of the host see the same piece, and there are several of them.
  [[nodiscard]] bool is_one_for_all() const {
    return pieces_.size() > 1 && pieces_[0] == pieces_[1];
  }

 private:
  std::size_t bytes_;
  MPI_Win window_ = MPI_WIN_NULL;
  Memory alone_;  ///< instead of a window where the host has one rank
  std::byte* own_ = nullptr;
  std::vector<std::byte*> pieces_;
};

}  // namespace lockstep

// Messages between the processes of the emulated NCCL, through MPI_COMM_WORLD with one tag of their own. Nothing waits:
// they are sent and received whenever `poll_messages` is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace lockstep::emulated {

enum class MessageKind : std::uint32_t { kHello, kTable, kCollective, kSend, kSplit };

/// What a message is for. `source` is a rank of MPI_COMM_WORLD.
struct MessageKey {
  std::uint64_t communicator = 0;
  MessageKind kind = MessageKind::kHello;
  std::uint32_t number = 0;
  int source = 0;

  bool operator<(const MessageKey& other) const {
    return std::tie(communicator, kind, number, source) <
           std::tie(other.communicator, other.kind, other.number, other.source);
  }
};

using Bytes = std::vector<std::byte>;

/// This process among those that mpirun started; 0 of 1 without MPI.
int world_rank();
int world_size();

void send_message(
    int to, std::uint64_t communicator, MessageKind kind, std::uint32_t number, Bytes bytes);
void poll_messages();
/// Whether the message has come; then it is taken.
bool take_message(const MessageKey& key, Bytes& bytes);

}  // namespace lockstep::emulated

#include "comm/mpi/message_operation.h"

#include <algorithm>
#include <climits>

#include "base/error.h"
#include "base/trace.h"
#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

// Open MPI hands a message of up to 64 KiB, its header included, to a TCP connection at once. Of a
// longer one it sends the rest only once the receiver has answered and the sender is in a call of
// MPI again, a little in each call: while the sender computes, nothing moves.
constexpr std::size_t kEagerBytes = std::size_t{60} << 10U;

std::size_t piece_bytes_to(const MpiGroup& group, int peer) {
  const std::size_t most = group.options().message_piece_bytes;
  return group.hosts().host_of(peer) == group.host() ? most : std::min(most, kEagerBytes);
}

std::size_t pieces_of(std::size_t bytes, std::size_t piece_bytes) {
  LOCKSTEP_CHECK(0 < piece_bytes && piece_bytes <= INT_MAX);
  // An empty message is sent as well: the receiver waits for it.
  return std::max<std::size_t>(1, (bytes + piece_bytes - 1) / piece_bytes);
}

}  // namespace

MessageOperation::MessageOperation(
    MpiGroup& group, std::string name, const char* wait_name, std::size_t bytes, int peer)
    : group_(group),
      name_(std::move(name)),
      wait_name_(wait_name),
      bytes_(bytes),
      peer_(peer),
      piece_bytes_(piece_bytes_to(group, peer)),
      requests_(pieces_of(bytes, piece_bytes_), MPI_REQUEST_NULL) {
  group.progress()->make_room();
}

MessageOperation::~MessageOperation() {
  if (running_) {
    group_.progress()->deactivate(*this);
    for (std::size_t i = num_complete_; i < requests_.size(); ++i) {
      MPI_Cancel(&requests_[i]);
    }
  }
  for (auto& request : requests_) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Request_free(&request);
    }
  }
}

std::size_t MessageOperation::begin_of(std::size_t piece) const {
  return piece * piece_bytes_;
}

int MessageOperation::bytes_of(std::size_t piece) const {
  return static_cast<int>(std::min(piece_bytes_, bytes_ - begin_of(piece)));
}

void MessageOperation::start() {
  LOCKSTEP_CHECK(!running_);
  num_complete_ = 0;
  running_ = true;
  group_.progress()->activate(*this);
  started();
  // One by one: the order in which MPI_Startall starts, and so matches, is open.
  for (auto& request : requests_) {
    mpi_call(MPI_Start(&request), "MPI_Start");
  }
}

bool MessageOperation::poll() {
  if (running_) {
    group_.progress()->poll();
  }
  return !running_;
}

void MessageOperation::wait() {
  if (running_) {
    const TraceSpan span(wait_name_, group_.name(), TraceTrack::kWaiting);
    group_.wait_for_peer(name_, peer_, [this] { return !running_; });
  }
}

bool MessageOperation::advance() {
  while (num_complete_ < requests_.size()) {
    int complete = 0;
    MPI_Status status{};
    const std::size_t piece = num_complete_;
    const int code = MPI_Test(&requests_[piece], &complete, &status);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      ++num_complete_;
      throw_error("{}: a longer message came", name_);
    }
    mpi_call(code, "MPI_Test");
    if (complete == 0) {
      return false;
    }
    ++num_complete_;
    completed(piece, status);
  }
  running_ = false;
  finished();
  return true;
}

void MessageOperation::completed(std::size_t /*piece*/, const MPI_Status& /*status*/) {}

SendOperation::SendOperation(MpiGroup& group, const void* data, std::size_t bytes, int to, int tag)
    : MessageOperation(group,
                       fmt::format("send of {} bytes to rank {} with tag {}", bytes, to, tag),
                       name_of_wait_for(TrafficKind::kSend),
                       bytes,
                       to) {
  for (std::size_t i = 0; i < num_pieces(); ++i) {
    mpi_call(MPI_Send_init(static_cast<const std::byte*>(data) + begin_of(i),
                           bytes_of(i),
                           MPI_BYTE,
                           to,
                           tag,
                           group.message_comm(),
                           &request(i)),
             "MPI_Send_init");
  }
}

void SendOperation::started() {
  group().traffic().count(TrafficKind::kSend, static_cast<double>(bytes()));
  started_ns_ = process_trace().on() ? now_ns() : 0;
}

// A receive is started long before anything moves, so that the sender's side shows the message.
void SendOperation::finished() {
  if (started_ns_ != 0) {
    process_trace().record({name_of(TrafficKind::kSend),
                            group().name(),
                            started_ns_,
                            now_ns(),
                            TraceTrack::kCommunication});
  }
}

ReceiveOperation::ReceiveOperation(
    MpiGroup& group, void* data, std::size_t bytes, int from, int tag)
    : MessageOperation(
          group,
          fmt::format("receive of {} bytes from rank {} with tag {}", bytes, from, tag),
          "wait for receive",
          bytes,
          from) {
  for (std::size_t i = 0; i < num_pieces(); ++i) {
    mpi_call(MPI_Recv_init(static_cast<std::byte*>(data) + begin_of(i),
                           bytes_of(i),
                           MPI_BYTE,
                           from,
                           tag,
                           group.message_comm(),
                           &request(i)),
             "MPI_Recv_init");
  }
}

void ReceiveOperation::completed(std::size_t piece, const MPI_Status& status) {
  int came = 0;
  mpi_call(MPI_Get_count(&status, MPI_BYTE, &came), "MPI_Get_count");
  if (came != bytes_of(piece)) {
    throw_error("{}: only {} bytes came", name(), begin_of(piece) + static_cast<std::size_t>(came));
  }
}

}  // namespace lockstep

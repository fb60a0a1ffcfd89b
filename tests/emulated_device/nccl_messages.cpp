#include "emulated_device/nccl_messages.h"

#include <cstring>
#include <list>
#include <map>
#include <utility>

#include <mpi.h>

#include "emulated_device/fault.h"

namespace lockstep::emulated {
namespace {

// Nobody else may use it on MPI_COMM_WORLD.
constexpr int kTag = 0x4c53;

struct Header {
  std::uint64_t communicator = 0;
  MessageKind kind = MessageKind::kHello;
  std::uint32_t number = 0;
};

struct InFlight {
  Bytes bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  int source = 0;
};

struct Post {
  std::list<InFlight> sending;
  std::list<InFlight> receiving;
  std::map<MessageKey, Bytes> arrived;
};

Post& post() {
  static Post& only = *new Post;  // never destroyed: the helper thread may still look at it
  return only;
}

bool has_mpi() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

void deliver(const Bytes& message, int source) {
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  const MessageKey key{header.communicator, header.kind, header.number, source};
  Bytes bytes(message.begin() + sizeof header, message.end());
  if (!post().arrived.emplace(key, std::move(bytes)).second) {
    fault("NCCL: rank {} of MPI_COMM_WORLD sent a message twice", source);
  }
}

bool is_complete(InFlight& message) {
  int done = 0;
  MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

void start_receives() {
  while (true) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &found, &message, &status);
    if (found == 0) {
      return;
    }
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    InFlight& receiving = post().receiving.emplace_back();
    receiving.bytes.resize(static_cast<std::size_t>(count));
    receiving.source = status.MPI_SOURCE;
    MPI_Imrecv(receiving.bytes.data(), count, MPI_BYTE, &message, &receiving.request);
  }
}

}  // namespace

int world_rank() {
  int rank = 0;
  if (has_mpi()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
  return rank;
}

int world_size() {
  int size = 1;
  if (has_mpi()) {
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  return size;
}

void send_message(
    int to, std::uint64_t communicator, MessageKind kind, std::uint32_t number, Bytes bytes) {
  const Header header{communicator, kind, number};
  Bytes message(sizeof header + bytes.size());
  std::memcpy(message.data(), &header, sizeof header);
  if (!bytes.empty()) {
    std::memcpy(message.data() + sizeof header, bytes.data(), bytes.size());
  }
  if (to == world_rank()) {
    deliver(message, to);
    return;
  }
  InFlight& sending = post().sending.emplace_back();
  sending.bytes = std::move(message);
  MPI_Isend(sending.bytes.data(),
            static_cast<int>(sending.bytes.size()),
            MPI_BYTE,
            to,
            kTag,
            MPI_COMM_WORLD,
            &sending.request);
}

void poll_messages() {
  if (!has_mpi()) {
    return;
  }
  Post& p = post();
  p.sending.remove_if(&is_complete);
  start_receives();
  p.receiving.remove_if([](InFlight& message) {
    const bool complete = is_complete(message);
    if (complete) {
      deliver(message.bytes, message.source);
    }
    return complete;
  });
}

bool take_message(const MessageKey& key, Bytes& bytes) {
  auto& arrived = post().arrived;
  const auto found = arrived.find(key);
  if (found == arrived.end()) {
    return false;
  }
  bytes = std::move(found->second);
  arrived.erase(found);
  return true;
}

}  // namespace lockstep::emulated

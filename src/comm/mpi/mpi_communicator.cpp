#include "comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"
#include "comm/local/local_communicator.h"
#include "comm/message.h"
#include "comm/mpi/group.h"
#include "comm/mpi/message_operation.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/native_operation.h"
#include "comm/mpi/ordered_operation.h"

namespace lockstep {
namespace {

constexpr std::size_t kBroadcastPiece = std::size_t{1} << 30U;  // MPI counts in int

/// What every rank must ask for alike: a number for the kind, then the numbers that describe it.
using Request = std::array<double, 5>;
enum Kind {
  kAllocate,
  kAllocateShared,
  kAllReduce,
  kNativeAllReduce,
  kReduceScatter,
  kAllGather,
  kSplit,
  kBroadcast
};

std::unique_ptr<Operation> make_ordered(MpiGroup& group,
                                        Kind kind,
                                        const std::string& name,
                                        const void* data,
                                        OrderedOperation::Buffer buffer,
                                        std::function<void()> contribute = {}) {
  const bool found = group.find(data, buffer.window, buffer.offset);
  const auto bytes = static_cast<std::size_t>(buffer.count) * buffer.item_bytes;
  const Request request{static_cast<double>(kind),
                        static_cast<double>(bytes),
                        static_cast<double>(buffer.chunk),
                        found ? static_cast<double>(buffer.window) : -1,
                        static_cast<double>(buffer.offset)};
  group.agree(fmt::format("{} at offset {}", name, buffer.offset), request);
  LOCKSTEP_CHECK(found && buffer.offset + bytes <= group.window(buffer.window).bytes());
  const bool is_shared = group.window(buffer.window).is_one_for_all();
  LOCKSTEP_CHECK(!is_shared || kind == kAllGather);
  const Exchange exchange = kind == kAllReduce       ? Exchange::kAllReduce
                            : kind == kReduceScatter ? Exchange::kReduceScatter
                            : is_shared              ? Exchange::kSharedGather
                                                     : Exchange::kAllGather;
  return std::make_unique<OrderedOperation>(
      group, group.add_operation(name), exchange, buffer, std::move(contribute));
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::unique_ptr<MpiGroup> group) : group_(std::move(group)) {}

MpiCommunicator::~MpiCommunicator() = default;

int MpiCommunicator::rank() const {
  return group_->rank();
}

int MpiCommunicator::size() const {
  return group_->size();
}

Memory MpiCommunicator::allocate(std::size_t bytes) {
  const Request request{kAllocate, static_cast<double>(bytes)};
  group_->agree(fmt::format("{} bytes of shared memory", bytes), request);
  if (bytes == 0) {
    return {};
  }
  return {group_->add_window(bytes).own(), bytes, nullptr};
}

Memory MpiCommunicator::allocate_shared(std::size_t bytes) {
  const Request request{kAllocateShared, static_cast<double>(bytes)};
  group_->agree(fmt::format("{} bytes of memory that a host shares", bytes), request);
  if (bytes == 0) {
    return {};
  }
  return {group_->add_window(bytes, SharedWindow::Pieces::kOneForAll).own(), bytes, nullptr};
}

bool MpiCommunicator::takes_shared() const {
  return group_->local_index() == 0;
}

std::size_t MpiCommunicator::allocated_bytes() const {
  return group_->allocated_bytes();
}

std::unique_ptr<Operation> MpiCommunicator::make_all_reduce(float* data,
                                                            long count,
                                                            Reduction reduction) {
  if (reduction == Reduction::kOrdered) {
    return make_ordered(*group_,
                        kAllReduce,
                        fmt::format("all_reduce of {} floats", count),
                        data,
                        {0, 0, count, kAllReduceChunk, sizeof(float)});
  }
  const std::string name = fmt::format("native all_reduce of {} floats", count);
  const Request request{kNativeAllReduce, static_cast<double>(count)};
  group_->agree(name, request);
  return std::make_unique<NativeAllReduce>(*group_, group_->add_operation(name), data, count);
}

std::unique_ptr<Operation> MpiCommunicator::make_reduce_scatter(float* data,
                                                                long count,
                                                                long chunk) {
  LOCKSTEP_CHECK(chunk > 0 && count % chunk == 0);
  return make_ordered(*group_,
                      kReduceScatter,
                      fmt::format("reduce_scatter of {} floats in chunks of {}", count, chunk),
                      data,
                      {0, 0, count, chunk, sizeof(float)});
}

std::unique_ptr<Operation> MpiCommunicator::make_all_gather(void* data,
                                                            std::size_t bytes,
                                                            std::size_t chunk_bytes,
                                                            std::function<void()> contribute) {
  LOCKSTEP_CHECK(chunk_bytes > 0 && bytes % chunk_bytes == 0);
  // Larger items where possible: a message holds at most 2^31 of them.
  const std::size_t item = chunk_bytes % sizeof(float) == 0 ? sizeof(float) : 1;
  return make_ordered(
      *group_,
      kAllGather,
      fmt::format("all_gather of {} bytes in chunks of {}", bytes, chunk_bytes),
      data,
      {0, 0, static_cast<long>(bytes / item), static_cast<long>(chunk_bytes / item), item},
      std::move(contribute));
}

std::unique_ptr<Operation> MpiCommunicator::make_send(const void* data,
                                                      std::size_t bytes,
                                                      int to,
                                                      int tag) {
  check_message(*this, "send to", to, tag);
  return std::make_unique<SendOperation>(*group_, data, bytes, to, tag);
}

std::unique_ptr<Operation> MpiCommunicator::make_receive(void* data,
                                                         std::size_t bytes,
                                                         int from,
                                                         int tag) {
  check_message(*this, "receive from", from, tag);
  return std::make_unique<ReceiveOperation>(*group_, data, bytes, from, tag);
}

void MpiCommunicator::all_gather(std::span<const double> mine, std::span<double> all) {
  group_->all_gather(kCallValues, mine, all);
  group_->traffic().count(TrafficKind::kValues,
                          static_cast<double>(mine.size_bytes()) * (size() - 1));
}

void MpiCommunicator::broadcast(void* data, std::size_t bytes, int root) {
  // Ranks that broadcast other sizes, or do something else, find out before any data moves.
  group_->agree(fmt::format("a broadcast of {} bytes by rank {}", bytes, root),
                Request{kBroadcast, static_cast<double>(bytes), static_cast<double>(root)});
  const std::uint32_t number = group_->begin_call(kCallBroadcast);
  for (std::size_t begin = 0; begin < bytes; begin += kBroadcastPiece) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_call(MPI_Ibcast(static_cast<std::byte*>(data) + begin,
                        static_cast<int>(std::min(kBroadcastPiece, bytes - begin)),
                        MPI_BYTE,
                        root,
                        group_->comm(),
                        &request),
             "MPI_Ibcast");
    group_->wait_request(kCallBroadcast, number, request);
  }
  group_->traffic().count(TrafficKind::kBroadcast,
                          root == rank() ? static_cast<double>(bytes) * (size() - 1) : 0);
}

void MpiCommunicator::barrier() {
  group_->all_gather(kCallBarrier, {}, {});
}

std::vector<std::string> MpiCommunicator::all_gather_text(const std::string& text) {
  return group_->all_gather_text(text);
}

std::unique_ptr<Communicator> MpiCommunicator::split(std::span<const int> color_of) {
  LOCKSTEP_CHECK(color_of.size() == static_cast<std::size_t>(size()));
  const int color = color_of[static_cast<std::size_t>(rank())];
  // A double holds 53 bits of the hash.
  const std::uint64_t hash = hash_of(color_of.data(), color_of.size_bytes()) >> 11U;
  const Request request{kSplit, static_cast<double>(hash)};
  group_->agree(fmt::format("a split by the colors {}", fmt::join(color_of, " ")), request);
  MPI_Comm part = MPI_COMM_NULL;
  mpi_call(MPI_Comm_split(group_->comm(), color, rank(), &part), "MPI_Comm_split");
  if (std::count(color_of.begin(), color_of.end(), color) == 1) {
    MPI_Comm_free(&part);
    return std::make_unique<LocalCommunicator>(
        [progress = group_->progress()] { progress->poll(); });
  }
  return std::make_unique<MpiCommunicator>(
      std::make_unique<MpiGroup>(part, group_->options(), group_->progress()));
}

const std::vector<int>& MpiCommunicator::host_of() const {
  return group_->hosts().host_of();
}

void MpiCommunicator::poll() {
  group_->progress()->poll();
}

void MpiCommunicator::set_name(const char* name) {
  group_->set_name(name);
}

void MpiCommunicator::set_time_limit(double seconds) {
  group_->set_time_limit(seconds);
}

double MpiCommunicator::bytes_sent() const {
  return group_->traffic().bytes();
}

std::span<const TrafficCount> MpiCommunicator::traffic() const {
  return group_->traffic().counts();
}

}  // namespace lockstep

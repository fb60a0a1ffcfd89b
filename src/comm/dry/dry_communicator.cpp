#include "comm/dry/dry_communicator.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/message.h"

namespace lockstep {
namespace {

// Not null and far from anything mapped, also from the addresses of the dry device.
constexpr std::uintptr_t kFirstAddress = std::uintptr_t{3} << 45U;
constexpr std::uintptr_t kFirstSharedAddress = std::uintptr_t{7} << 44U;

class DryOperation final : public Operation {
 public:
  DryOperation(DryCommunicator& group, const DryCall& call, std::function<void()> contribute = {})
      : group_(group), call_(call), contribute_(std::move(contribute)) {}
  void start() override {
    group_.record(call_);
    if (contribute_) {
      contribute_();
    }
  }
  bool poll() override { return true; }
  void wait() override {}

 private:
  DryCommunicator& group_;
  DryCall call_;
  std::function<void()> contribute_;
};

// Between GPUs every rank is a host of its own.
std::vector<long> hosts_for(const std::vector<long>& host_of, Transport transport) {
  std::vector<long> hosts = host_of;
  if (transport == Transport::kNccl) {
    std::iota(hosts.begin(), hosts.end(), 0L);
  }
  return hosts;
}

DryCall sending(TrafficKind kind, double buffer_bytes, double bytes_sent) {
  return {name_of(kind), buffer_bytes, bytes_sent, kind};
}

}  // namespace

DryCommunicator::DryCommunicator(int rank, const std::vector<long>& host_of, Transport transport)
    : rank_(rank), transport_(transport), hosts_(hosts_for(host_of, transport)) {
  LOCKSTEP_CHECK(0 <= rank && rank < size());
}

void DryCommunicator::record(const DryCall& call) {
  ++num_calls_;
  if (call.kind.has_value()) {
    traffic_.count(*call.kind, call.bytes_sent);
  }
  if (listener_) {
    listener_(*this, call);
  }
}

Memory DryCommunicator::allocate(std::size_t bytes) {
  const std::uintptr_t address = kFirstAddress + allocated_bytes_;
  allocated_bytes_ += round_up(bytes, size() > 1 ? kPage : kMemoryAlignment);
  return {std::bit_cast<void*>(address), bytes, nullptr};
}

Memory DryCommunicator::allocate_shared(std::size_t bytes) {
  const std::uintptr_t address = kFirstSharedAddress + shared_bytes_;
  const auto taken = round_up(bytes, size() > 1 ? kPage : kMemoryAlignment);
  shared_bytes_ += taken;
  allocated_bytes_ += takes_shared() ? taken : 0;
  return {std::bit_cast<void*>(address), bytes, nullptr};
}

void DryCommunicator::stage(std::size_t bytes) {
  if (transport_ == Transport::kStaged && size() > 1) {
    message_bytes_ += bytes;
  }
}

bool DryCommunicator::takes_shared() const {
  return transport_ == Transport::kStaged ||
         hosts_.ranks_on(hosts_.host_of(rank_)).front() == rank_;
}

std::unique_ptr<Operation> DryCommunicator::make(TrafficKind kind,
                                                 Exchange exchange,
                                                 long count,
                                                 long chunk,
                                                 long item_bytes,
                                                 std::function<void()> contribute) {
  // Most buckets have one size.
  if (last_.exchange != exchange || last_.count != count || last_.chunk != chunk) {
    last_ = {.exchange = exchange,
             .count = count,
             .chunk = chunk,
             .message_items = message_items(hosts_, exchange, rank_, count, chunk),
             .items_sent = items_sent_by(hosts_, exchange, rank_, count, chunk)};
  }
  const auto item = static_cast<double>(item_bytes);
  stage(round_up(static_cast<std::size_t>(count * item_bytes), kPage));
  message_bytes_ += static_cast<std::size_t>(last_.message_items * item_bytes);
  return std::make_unique<DryOperation>(
      *this,
      sending(kind, static_cast<double>(count) * item, last_.items_sent * item),
      std::move(contribute));
}

std::unique_ptr<Operation> DryCommunicator::make_all_reduce(float* /*data*/,
                                                            long count,
                                                            Reduction reduction) {
  if (reduction == Reduction::kOrdered) {
    return make(
        TrafficKind::kAllReduce, Exchange::kAllReduce, count, kAllReduceChunk, sizeof(float));
  }
  const double bytes = static_cast<double>(count) * sizeof(float);
  stage(round_up(bytes_of(count, DType::kF32), kPage));
  return std::make_unique<DryOperation>(
      *this, sending(TrafficKind::kNativeAllReduce, bytes, 2.0 * bytes * (size() - 1) / size()));
}

std::unique_ptr<Operation> DryCommunicator::make_reduce_scatter(float* /*data*/,
                                                                long count,
                                                                long chunk) {
  LOCKSTEP_CHECK(chunk > 0 && count % chunk == 0);
  return make(TrafficKind::kReduceScatter, Exchange::kReduceScatter, count, chunk, sizeof(float));
}

std::unique_ptr<Operation> DryCommunicator::make_all_gather(void* data,
                                                            std::size_t bytes,
                                                            std::size_t chunk_bytes,
                                                            std::function<void()> contribute) {
  LOCKSTEP_CHECK(chunk_bytes > 0 && bytes % chunk_bytes == 0);
  const auto address = std::bit_cast<std::uintptr_t>(data);
  const bool is_shared = transport_ == Transport::kHost && kFirstSharedAddress <= address &&
                         address < kFirstSharedAddress + shared_bytes_ &&
                         hosts_.ranks_on(hosts_.host_of(rank_)).size() > 1;
  return make(TrafficKind::kAllGather,
              is_shared ? Exchange::kSharedGather : Exchange::kAllGather,
              static_cast<long>(bytes),
              static_cast<long>(chunk_bytes),
              1,
              std::move(contribute));
}

std::unique_ptr<Operation> DryCommunicator::make_send(const void* /*data*/,
                                                      std::size_t bytes,
                                                      int to,
                                                      int tag) {
  check_message(*this, "send to", to, tag);
  stage(bytes);
  const auto sent = static_cast<double>(bytes);
  DryCall call = sending(TrafficKind::kSend, sent, sent);
  call.peer = to;
  call.tag = tag;
  return std::make_unique<DryOperation>(*this, call);
}

std::unique_ptr<Operation> DryCommunicator::make_receive(void* /*data*/,
                                                         std::size_t bytes,
                                                         int from,
                                                         int tag) {
  check_message(*this, "receive from", from, tag);
  stage(bytes);
  return std::make_unique<DryOperation>(
      *this, DryCall{"receive", static_cast<double>(bytes), 0, {}, from, tag});
}

void DryCommunicator::all_gather(std::span<const double> mine, std::span<double> all) {
  LOCKSTEP_CHECK(mine.size() <= kMaxValues &&
                 all.size() == mine.size() * static_cast<std::size_t>(size()));
  for (std::size_t begin = 0; begin < all.size(); begin += mine.size()) {
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  const double bytes = static_cast<double>(mine.size_bytes());
  record(sending(TrafficKind::kValues, bytes * size(), bytes * (size() - 1)));
}

void DryCommunicator::broadcast(void* /*data*/, std::size_t bytes, int root) {
  const double buffer = static_cast<double>(bytes);
  record(sending(TrafficKind::kBroadcast, buffer, root == rank_ ? buffer * (size() - 1) : 0.0));
}

void DryCommunicator::barrier() {
  record({"barrier", 0, 0});
}

std::vector<std::string> DryCommunicator::all_gather_text(const std::string& text) {
  record({"text", 0, 0});
  return std::vector<std::string>(static_cast<std::size_t>(size()), text);
}

std::unique_ptr<Communicator> DryCommunicator::split(std::span<const int> color_of) {
  LOCKSTEP_CHECK(color_of.size() == static_cast<std::size_t>(size()));
  const int color = color_of[static_cast<std::size_t>(rank_)];
  std::vector<long> hosts;
  int rank = 0;
  for (int other = 0; other < size(); ++other) {
    if (color_of[static_cast<std::size_t>(other)] == color) {
      rank = other == rank_ ? static_cast<int>(hosts.size()) : rank;
      hosts.push_back(hosts_.host_of(other));
    }
  }
  auto group = std::make_unique<DryCommunicator>(rank, hosts, transport_);
  group->listen(listener_);
  return group;
}

}  // namespace lockstep

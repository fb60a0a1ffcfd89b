#include "comm/local/local_communicator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/message.h"
#include "device/cpu/cpu_queue.h"

namespace lockstep {
namespace {

class DoneOperation final : public Operation {
 public:
  DoneOperation(Traffic& traffic, TrafficKind kind, std::function<void()> contribute = {})
      : traffic_(traffic), kind_(kind), contribute_(std::move(contribute)) {}
  void start() override {
    traffic_.count(kind_, 0);
    if (contribute_) {
      contribute_();
    }
  }
  bool poll() override { return true; }
  void wait() override {}

 private:
  Traffic& traffic_;
  TrafficKind kind_;
  std::function<void()> contribute_;
};

}  // namespace

Memory LocalCommunicator::allocate(std::size_t bytes) {
  memory_.push_back(allocate_host(bytes));
  return {memory_.back().data(), bytes, nullptr};
}

Memory LocalCommunicator::allocate_shared(std::size_t bytes) {
  return allocate(bytes);
}

bool LocalCommunicator::takes_shared() const {
  return true;
}

std::size_t LocalCommunicator::allocated_bytes() const {
  std::size_t bytes = 0;
  for (const Memory& memory : memory_) {
    bytes += memory.bytes();
  }
  return bytes;
}

std::unique_ptr<Operation> LocalCommunicator::make_all_reduce(float* /*data*/,
                                                              long /*count*/,
                                                              Reduction reduction) {
  const bool ordered = reduction == Reduction::kOrdered;
  return std::make_unique<DoneOperation>(
      traffic_, ordered ? TrafficKind::kAllReduce : TrafficKind::kNativeAllReduce);
}

std::unique_ptr<Operation> LocalCommunicator::make_reduce_scatter(float* /*data*/,
                                                                  long count,
                                                                  long chunk) {
  LOCKSTEP_CHECK(chunk > 0 && count % chunk == 0);
  return std::make_unique<DoneOperation>(traffic_, TrafficKind::kReduceScatter);
}

std::unique_ptr<Operation> LocalCommunicator::make_all_gather(void* /*data*/,
                                                              std::size_t /*bytes*/,
                                                              std::size_t /*chunk_bytes*/,
                                                              std::function<void()> contribute) {
  return std::make_unique<DoneOperation>(traffic_, TrafficKind::kAllGather, std::move(contribute));
}

std::unique_ptr<Operation> LocalCommunicator::make_send(const void* /*data*/,
                                                        std::size_t /*bytes*/,
                                                        int to,
                                                        int tag) {
  check_message(*this, "send to", to, tag);
  return nullptr;  // not reached
}

std::unique_ptr<Operation> LocalCommunicator::make_receive(void* /*data*/,
                                                           std::size_t /*bytes*/,
                                                           int from,
                                                           int tag) {
  check_message(*this, "receive from", from, tag);
  return nullptr;  // not reached
}

void LocalCommunicator::all_gather(std::span<const double> mine, std::span<double> all) {
  LOCKSTEP_CHECK(mine.size() <= kMaxValues && all.size() == mine.size());
  std::copy(mine.begin(), mine.end(), all.begin());
  traffic_.count(TrafficKind::kValues, 0);
}

void LocalCommunicator::broadcast(void* /*data*/, std::size_t /*bytes*/, int root) {
  LOCKSTEP_CHECK(root == 0);
  traffic_.count(TrafficKind::kBroadcast, 0);
}

std::unique_ptr<Communicator> LocalCommunicator::split(std::span<const int> color_of) {
  LOCKSTEP_CHECK(color_of.size() == 1);
  return std::make_unique<LocalCommunicator>(progress_);
}

void LocalCommunicator::poll() {
  if (progress_) {
    progress_();
  }
}

}  // namespace lockstep

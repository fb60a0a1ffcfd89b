#include "comm/nccl/staged_communicator.h"

#include <utility>

#include "base/error.h"
#include "comm/exchange.h"
#include "device/cuda/cuda_check.h"

namespace lockstep {
namespace {

// What of a buffer goes to the host before, and comes back after the host's operation, in bytes.
struct Staging {
  std::byte* device = nullptr;
  Memory host = {};
  IndexRange out = {};
  std::vector<IndexRange> in = {};
};

}  // namespace

class StagedOperation final : public Operation {
 public:
  StagedOperation(StagedCommunicator& group,
                  StagedOrder& order,
                  Staging staging,
                  std::unique_ptr<Operation> operation,
                  const char* name,
                  std::function<void()> contribute = {})
      : group_(group),
        order_(order),
        staging_(std::move(staging)),
        operation_(std::move(operation)),
        name_(name),
        contribute_(std::move(contribute)) {
    order_.make_room();
  }
  ~StagedOperation() override { order_.forget(*this); }
  StagedOperation(const StagedOperation&) = delete;
  StagedOperation& operator=(const StagedOperation&) = delete;

  void start() override {
    LOCKSTEP_CHECK(state_ == State::kIdle);
    reached_.record(group_.queue().stream());
    reached_.make_wait(order_.stream());
    if (contribute_) {
      const CudaQueue::StreamScope scope(group_.queue(), order_.stream());
      contribute_();
    }
    copy(staging_.out, cudaMemcpyDeviceToHost);
    copied_.record(order_.stream());
    state_ = State::kCopying;
    order_.add(*this);
    order_.advance();
  }

  bool poll() override {
    group_.poll();
    return state_ == State::kIdle && done_.is_done();
  }

  void wait() override {
    if (state_ != State::kIdle) {
      group_.wait_until([this] { return state_ == State::kIdle; }, name_);
    }
    done_.make_wait(group_.queue().stream());
  }

  /// Begins on the host once everything is there; false before that.
  bool begin_on_host() {
    if (!copied_.is_done()) {
      return false;
    }
    operation_->start();
    state_ = State::kOnHost;
    return true;
  }

  /// Goes back to the device when the host is done; true then.
  bool end_on_host() {
    if (!operation_->poll()) {
      return false;
    }
    for (const IndexRange& part : staging_.in) {
      copy(part, cudaMemcpyHostToDevice);
    }
    done_.record(order_.stream());
    state_ = State::kIdle;
    return true;
  }

 private:
  enum class State { kIdle, kCopying, kOnHost };

  void copy(IndexRange part, cudaMemcpyKind direction) {
    if (part.size() == 0) {
      return;
    }
    std::byte* const device = staging_.device + part.begin;
    std::byte* const host = staging_.host.data() + part.begin;
    const bool comes = direction == cudaMemcpyHostToDevice;
    check_cuda(cudaMemcpyAsync(comes ? device : host,
                               comes ? host : device,
                               static_cast<std::size_t>(part.size()),
                               direction,
                               order_.stream()),
               "copying what ranks exchange");
  }

  StagedCommunicator& group_;
  StagedOrder& order_;
  Staging staging_;
  std::unique_ptr<Operation> operation_;
  const char* name_;
  std::function<void()> contribute_;
  CudaEvent reached_;
  CudaEvent copied_;
  CudaEvent done_;
  State state_ = State::kIdle;
};

void StagedOrder::make_room() {
  ++num_operations_;
  copying_.reserve(num_operations_);
  on_host_.reserve(num_operations_);
}

void StagedOrder::forget(StagedOperation& operation) {
  std::erase(copying_, &operation);
  std::erase(on_host_, &operation);
}

void StagedOrder::advance() {
  while (!copying_.empty() && copying_.front()->begin_on_host()) {
    on_host_.push_back(copying_.front());
    copying_.erase(copying_.begin());
  }
  std::erase_if(on_host_, [](StagedOperation* operation) { return operation->end_on_host(); });
}

namespace {

IndexRange all_of(std::size_t bytes) {
  return {0, static_cast<long>(bytes)};
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host,
                                       CudaQueue& queue,
                                       std::shared_ptr<DeviceProgress> progress)
    : DeviceCommunicator(std::move(host), queue, std::move(progress)),
      order_(size() > 1 ? queue.add_stream() : nullptr),
      task_(this->progress().add([this] { order_.advance(); })) {}

StagedCommunicator::~StagedCommunicator() {
  progress().remove(task_);
}

std::unique_ptr<Operation> StagedCommunicator::make_all_reduce(float* data,
                                                               long count,
                                                               Reduction reduction) {
  if (size() == 1) {
    return std::make_unique<NothingToExchange>();
  }
  const std::size_t bytes = bytes_of(count, DType::kF32);
  Staging staging{.device = reinterpret_cast<std::byte*>(data),
                  .host = host().allocate(bytes),
                  .out = all_of(bytes),
                  .in = {all_of(bytes)}};
  auto operation = host().make_all_reduce(staging.host.as<float>(), count, reduction);
  return std::make_unique<StagedOperation>(
      *this, order_, std::move(staging), std::move(operation), "all_reduce");
}

std::unique_ptr<Operation> StagedCommunicator::make_reduce_scatter(float* data,
                                                                   long count,
                                                                   long chunk) {
  if (size() == 1) {
    return std::make_unique<NothingToExchange>();
  }
  const std::size_t bytes = bytes_of(count, DType::kF32);
  const IndexRange own = slice_of(count, chunk, size(), rank());
  constexpr long kItem = sizeof(float);
  Staging staging{.device = reinterpret_cast<std::byte*>(data),
                  .host = host().allocate(bytes),
                  .out = all_of(bytes),
                  .in = {{own.begin * kItem, own.end * kItem}}};
  auto operation = host().make_reduce_scatter(staging.host.as<float>(), count, chunk);
  return std::make_unique<StagedOperation>(
      *this, order_, std::move(staging), std::move(operation), "reduce_scatter");
}

std::unique_ptr<Operation> StagedCommunicator::make_all_gather(void* data,
                                                               std::size_t bytes,
                                                               std::size_t chunk_bytes,
                                                               std::function<void()> contribute) {
  if (size() == 1) {
    return std::make_unique<NothingToExchange>(std::move(contribute));
  }
  const auto count = static_cast<long>(bytes);
  const IndexRange own = slice_of(count, static_cast<long>(chunk_bytes), size(), rank());
  Staging staging{.device = static_cast<std::byte*>(data),
                  .host = host().allocate(bytes),
                  .out = own,
                  .in = {{0, own.begin}, {own.end, count}}};
  auto operation = host().make_all_gather(staging.host.data(), bytes, chunk_bytes);
  return std::make_unique<StagedOperation>(
      *this, order_, std::move(staging), std::move(operation), "all_gather", std::move(contribute));
}

std::unique_ptr<Operation> StagedCommunicator::make_send(const void* data,
                                                         std::size_t bytes,
                                                         int to,
                                                         int tag) {
  Staging staging{.device = static_cast<std::byte*>(const_cast<void*>(data)),  // read only
                  .host = CudaQueue::take_pinned(bytes),
                  .out = all_of(bytes)};
  count_allocated(bytes);
  auto operation = host().make_send(staging.host.data(), bytes, to, tag);
  return std::make_unique<StagedOperation>(
      *this, order_, std::move(staging), std::move(operation), "send");
}

std::unique_ptr<Operation> StagedCommunicator::make_receive(void* data,
                                                            std::size_t bytes,
                                                            int from,
                                                            int tag) {
  Staging staging{.device = static_cast<std::byte*>(data),
                  .host = CudaQueue::take_pinned(bytes),
                  .in = {all_of(bytes)}};
  count_allocated(bytes);
  auto operation = host().make_receive(staging.host.data(), bytes, from, tag);
  return std::make_unique<StagedOperation>(
      *this, order_, std::move(staging), std::move(operation), "receive");
}

std::unique_ptr<Communicator> StagedCommunicator::split(std::span<const int> color_of) {
  auto part =
      std::make_unique<StagedCommunicator>(host().split(color_of), queue(), shared_progress());
  part->set_time_limit(time_limit());
  return part;
}

}  // namespace lockstep

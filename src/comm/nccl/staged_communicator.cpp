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

class StagedOperation final : public Operation {
 public:
  StagedOperation(DeviceCommunicator& group,
                  cudaStream_t stream,
                  Staging staging,
                  std::unique_ptr<Operation> operation,
                  const char* name,
                  std::function<void()> contribute = {})
      : group_(group),
        stream_(stream),
        staging_(std::move(staging)),
        operation_(std::move(operation)),
        name_(name),
        contribute_(std::move(contribute)),
        task_(group.progress().add([this] { advance(); })) {}
  ~StagedOperation() override { group_.progress().remove(task_); }
  StagedOperation(const StagedOperation&) = delete;
  StagedOperation& operator=(const StagedOperation&) = delete;

  void start() override {
    LOCKSTEP_CHECK(state_ == State::kIdle);
    reached_.record(group_.queue().stream());
    reached_.make_wait(stream_);
    if (contribute_) {
      const CudaQueue::StreamScope scope(group_.queue(), stream_);
      contribute_();
    }
    copy(staging_.out, cudaMemcpyDeviceToHost);
    copied_.record(stream_);
    state_ = State::kCopying;
    advance();
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

 private:
  enum class State { kIdle, kCopying, kOnHost };

  void advance() {
    if (state_ == State::kCopying && copied_.is_done()) {
      operation_->start();
      state_ = State::kOnHost;
    }
    if (state_ == State::kOnHost && operation_->poll()) {
      for (const IndexRange& part : staging_.in) {
        copy(part, cudaMemcpyHostToDevice);
      }
      done_.record(stream_);
      state_ = State::kIdle;
    }
  }

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
                               stream_),
               "copying what ranks exchange");
  }

  DeviceCommunicator& group_;
  cudaStream_t stream_;
  Staging staging_;
  std::unique_ptr<Operation> operation_;
  const char* name_;
  std::function<void()> contribute_;
  CudaEvent reached_;
  CudaEvent copied_;
  CudaEvent done_;
  State state_ = State::kIdle;
  int task_;
};

// Of a group of one rank.
class NothingToExchange final : public Operation {
 public:
  explicit NothingToExchange(std::function<void()> contribute = {})
      : contribute_(std::move(contribute)) {}
  void start() override {
    if (contribute_) {
      contribute_();
    }
  }
  bool poll() override { return true; }
  void wait() override {}

 private:
  std::function<void()> contribute_;
};

IndexRange all_of(std::size_t bytes) {
  return {0, static_cast<long>(bytes)};
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host,
                                       CudaQueue& queue,
                                       std::shared_ptr<DeviceProgress> progress)
    : DeviceCommunicator(std::move(host), queue, std::move(progress)),
      stream_(size() > 1 ? queue.add_stream() : nullptr) {}

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
      *this, stream_, std::move(staging), std::move(operation), "all_reduce");
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
      *this, stream_, std::move(staging), std::move(operation), "reduce_scatter");
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
  return std::make_unique<StagedOperation>(*this,
                                           stream_,
                                           std::move(staging),
                                           std::move(operation),
                                           "all_gather",
                                           std::move(contribute));
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
      *this, stream_, std::move(staging), std::move(operation), "send");
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
      *this, stream_, std::move(staging), std::move(operation), "receive");
}

std::unique_ptr<Communicator> StagedCommunicator::split(std::span<const int> color_of) {
  auto part =
      std::make_unique<StagedCommunicator>(host().split(color_of), queue(), shared_progress());
  part->set_time_limit(time_limit());
  return part;
}

}  // namespace lockstep

#include "comm/nccl/device_communicator.h"

#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace lockstep {

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> host,
                                       CudaQueue& queue,
                                       std::shared_ptr<DeviceProgress> progress)
    : host_(std::move(host)), queue_(&queue), progress_(std::move(progress)) {}

Memory DeviceCommunicator::allocate(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const std::size_t taken = round_up(bytes, size() > 1 ? kPage : kMemoryAlignment);
  allocated_bytes_ += taken;
  return queue_->take(taken, bytes);
}

void DeviceCommunicator::all_gather(std::span<const double> mine, std::span<double> all) {
  progress_->poll();
  host_->all_gather(mine, all);
}

void DeviceCommunicator::broadcast(void* data, std::size_t bytes, int root) {
  host_->broadcast(data, bytes, root);
}

void DeviceCommunicator::barrier() {
  host_->barrier();
}

std::vector<std::string> DeviceCommunicator::all_gather_text(const std::string& text) {
  return host_->all_gather_text(text);
}

void DeviceCommunicator::poll() {
  progress_->poll();
  host_->poll();
}

void DeviceCommunicator::set_name(const char* name) {
  name_ = name;
  host_->set_name(name);
}

void DeviceCommunicator::set_time_limit(double seconds) {
  time_limit_ = seconds;
  host_->set_time_limit(seconds);
}

double DeviceCommunicator::bytes_sent() const {
  return traffic_.bytes() + host_->bytes_sent();
}

std::span<const TrafficCount> DeviceCommunicator::traffic() const {
  all_traffic_ = traffic_;
  all_traffic_.add(host_->traffic());
  return all_traffic_.counts();
}

void DeviceCommunicator::wait_until(FunctionRef<bool()> done, const char* what) {
  constexpr int kSpins = 1000;
  constexpr double kNanoseconds = 1e9;
  const std::int64_t begin = now_ns();
  for (long turn = 0; !done(); ++turn) {
    poll();
    if (turn < kSpins) {
      continue;
    }
    std::this_thread::yield();
    const double seconds = static_cast<double>(now_ns() - begin) / kNanoseconds;
    if (time_limit_ > 0 && seconds > time_limit_) {
      throw_error(
          "rank {} of the group \"{}\" waited {:.0f} s in {}", rank(), name_, seconds, what);
    }
  }
}

}  // namespace lockstep

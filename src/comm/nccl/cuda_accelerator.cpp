#include "comm/nccl/cuda_accelerator.h"

#include <algorithm>

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "base/human.h"
#include "comm/nccl/nccl_check.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/staged_communicator.h"
#include "device/cuda/cuda_check.h"
#include "kernels/cuda/backend.h"

namespace lockstep {
namespace {

CudaQueue& cuda(Queue& queue) {
  LOCKSTEP_CHECK(queue.kind() == DeviceKind::kCuda);
  return static_cast<CudaQueue&>(queue);
}

// "2.28.9" of 22809: as NCCL and cuBLASLt count.
std::string version_of(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

void refuse_shared_gpus(Communicator& host, const CudaDevice& device) {
  const std::vector<std::string> all = host.all_gather_text(device.uuid);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto first =
        static_cast<std::size_t>(std::find(all.begin(), all.end(), all[rank]) - all.begin());
    if (first != rank) {
      throw_request_error(
          "ranks {} and {} have the same GPU ({}), which NCCL does not allow: start one rank a "
          "GPU, or use "
          "parallel.backend = \"mpi\"",
          first,
          rank,
          device.name);
    }
  }
}

class CudaAccelerator final : public Accelerator {
 public:
  [[nodiscard]] std::string why_not() const override { return why_no_cuda(); }

  [[nodiscard]] int num_devices() const override { return num_cuda_devices(); }

  [[nodiscard]] std::string versions() const override {
    // Of the headers: asking the libraries would load them.
    constexpr std::size_t kCublas =
        10000 * CUBLAS_VER_MAJOR + 100 * CUBLAS_VER_MINOR + CUBLAS_VER_PATCH;
    return fmt::format("CUDA {}.{}, cuBLASLt {}, NCCL {}",
                       CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10,
                       version_of(kCublas),
                       version_of(NCCL_VERSION_CODE));
  }

  std::unique_ptr<Queue> make_queue(int local_rank, int num_threads) const override {
    return std::make_unique<CudaQueue>(choose_cuda_device(local_rank), num_threads);
  }

  [[nodiscard]] std::string describe(Queue& queue) const override {
    const CudaDevice& device = cuda(queue).device();
    return fmt::format("GPU {} ({}, compute capability {}.{}, {})",
                       device.index,
                       device.name,
                       device.major,
                       device.minor,
                       human_bytes(static_cast<std::int64_t>(device.total_bytes)));
  }

  [[nodiscard]] std::string fingerprint(Queue& queue) const override {
    const CudaDevice& device = cuda(queue).device();
    return fmt::format("cuBLASLt {}, {} ({}.{})",
                       version_of(cublasLtGetVersion()),
                       device.name,
                       device.major,
                       device.minor);
  }

  [[nodiscard]] long large_product(Queue& queue) const override {
    // 32 rows and columns a multiprocessor: 4,224 on an H100 or H200.
    return 32L * cuda(queue).device().multiprocessors;
  }

  [[nodiscard]] std::size_t free_bytes(Queue& queue) const override {
    (void)queue;
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    return free;
  }

  void reserve(Queue& queue, std::size_t device_bytes) const override {
    cuda(queue).reserve(device_bytes);
  }

  void copy_on_device(Queue& queue, void* to, const void* from, std::size_t bytes) const override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda(queue).stream()),
               "copying on the device");
  }

  std::unique_ptr<Communicator> make_group(std::unique_ptr<Communicator> host,
                                           Queue& queue,
                                           Transport transport) const override {
    auto progress = std::make_shared<DeviceProgress>();
    cuda(queue).set_waiter([progress] { progress->poll(); });
    if (transport == Transport::kStaged) {
      return std::make_unique<StagedCommunicator>(
          std::move(host), cuda(queue), std::move(progress));
    }
    LOCKSTEP_CHECK(transport == Transport::kNccl);
    refuse_shared_gpus(*host, cuda(queue).device());
    return std::make_unique<NcclCommunicator>(std::move(host), cuda(queue), std::move(progress));
  }
};

}  // namespace

void use_cuda() {
  static const CudaAccelerator cuda_accelerator;
  register_cuda_kernels();
  set_accelerator(&cuda_accelerator);
}

}  // namespace lockstep

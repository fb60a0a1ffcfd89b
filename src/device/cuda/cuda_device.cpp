#include "device/cuda/cuda_device.h"

#include <string>

#include <cuda_runtime_api.h>

#include <spdlog/fmt/fmt.h>

#include "base/error.h"
#include "device/cuda/cuda_check.h"

namespace lockstep {
namespace {

// cudaGetDeviceCount leaves the count as it is when it fails.
cudaError_t count_devices(int& count) {
  count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    count = 0;
    cudaGetLastError();  // forget it: later calls would report it as theirs
  }
  return status;
}

}  // namespace

std::string why_no_cuda() {
  int count = 0;
  const cudaError_t status = count_devices(count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
      return "no NVIDIA driver is installed on this machine";
    }
    return fmt::format("the NVIDIA driver supports CUDA {}.{}, this program needs {}.{}",
                       driver / 1000,
                       driver % 1000 / 10,
                       runtime / 1000,
                       runtime % 1000 / 10);
  }
  if (status != cudaSuccess && status != cudaErrorNoDevice) {
    return fmt::format("CUDA does not start: {}", cudaGetErrorString(status));
  }
  if (count == 0) {
    return "no GPU is visible (is CUDA_VISIBLE_DEVICES set?)";
  }
  return "";
}

int num_cuda_devices() {
  int count = 0;
  count_devices(count);
  return count;
}

CudaDevice choose_cuda_device(int local_rank) {
  const int count = num_cuda_devices();
  if (count == 0) {
    throw_error("CUDA: {}", why_no_cuda());
  }
  CudaDevice device;
  device.index = local_rank % count;
  check_cuda(cudaSetDevice(device.index), "choosing a device");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device.index),
             "asking for a device's properties");
  device.name = static_cast<const char*>(properties.name);
  for (const char byte : properties.uuid.bytes) {
    device.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  device.major = properties.major;
  device.minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  check_cuda(cudaMemGetInfo(&device.free_bytes, &device.total_bytes), "asking for free memory");
  return device;
}

}  // namespace lockstep

// The CUDA runtime's functions about devices, errors and kernels.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <unistd.h>

#include "emulated_device/fault.h"
#include "emulated_device/kernel_launch.h"
#include "emulated_device/kernel_run.h"
#include "emulated_device/memory.h"
#include "emulated_device/operations.h"
#include "emulated_device/settings.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

constexpr int kMultiprocessors =
    4;  // few, so that kernels that loop over a grid of that size do loop
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10U;
constexpr std::size_t kReservedSharedBytes = 1024;

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::string uuid_text(int physical) {
  char host[256] = {};
  gethostname(static_cast<char*>(host), sizeof host - 1);
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char* c = static_cast<char*>(host); *c != '\0'; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3U;
  }
  return fmt::format("{:016x}{:016x}", hash, static_cast<std::uint64_t>(physical));
}

// Numbers of the devices that CUDA_VISIBLE_DEVICES lets this process see: up to the first that there is not.
std::vector<int> read_visible_devices() {
  std::vector<int> visible;
  const int count = settings().num_devices;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  visible.reserve(static_cast<std::size_t>(count));
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) {
      visible.push_back(i);
    }
    return visible;
  }
  std::string rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string item = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    int found = -1;
    for (int i = 0; i < count; ++i) {
      found = item == std::to_string(i) || item == "GPU-" + uuid_text(i) ? i : found;
    }
    if (found < 0 || std::find(visible.begin(), visible.end(), found) != visible.end()) {
      break;
    }
    visible.push_back(found);
  }
  return visible;
}

const std::vector<int>& visible_devices() {
  static const std::vector<int> visible = read_visible_devices();
  return visible;
}

bool is_device(int device) {
  return device >= 0 && device < num_devices();
}

class KernelOperation final : public Operation {
 public:
  explicit KernelOperation(KernelLaunch launch)
      : Operation("kernel", launch.kernel), launch_(std::move(launch)) {}
  bool advance() override {
    run_kernel(launch_);
    return true;
  }

 private:
  KernelLaunch launch_;
};

cudaError_t check_shape(const KernelLaunch& launch) {
  const dim3 grid = launch.grid;
  const dim3 block = launch.block;
  const bool is_grid_fine = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU &&
                            grid.y <= 65535 && grid.z <= 65535;
  const bool is_block_fine = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 &&
                             block.y <= 1024 && block.z <= 64 &&
                             std::size_t{block.x} * block.y * block.z <= kMaxBlockThreads;
  if (!is_grid_fine || !is_block_fine) {
    return cudaErrorInvalidConfiguration;
  }
  return launch.shared_bytes > kMaxSharedBytes ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

cudaError_t note_error(cudaError_t status) {
  if (status != cudaSuccess) {
    last_error = status;
  }
  return status;
}

int current_device() {
  return device_of_thread;
}

int num_devices() {
  return static_cast<int>(visible_devices().size());
}

cudaError_t enqueue(KernelLaunch launch, cudaStream_t stream) {
  const ApiLock lock;
  if (num_devices() == 0) {
    return note_error(cudaErrorNoDevice);
  }
  const cudaError_t status = check_shape(launch);
  if (status != cudaSuccess) {
    return note_error(status);
  }
  return note_error(submit(
      stream, [shared = std::move(launch)] { return std::make_unique<KernelOperation>(shared); }));
}

}  // namespace lockstep::emulated

using namespace lockstep::emulated;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

struct ErrorText {
  cudaError_t status;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration,
     "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver,
     "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState,
     "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported,
     "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureMerge,
     "cudaErrorStreamCaptureMerge",
     "operation would merge two captures"},
    {cudaErrorStreamCaptureUnjoined,
     "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation,
     "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit,
     "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent,
     "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const ErrorText* find_error(cudaError_t status) {
  for (const ErrorText& error : kErrors) {
    if (error.status == status) {
      return &error;
    }
  }
  return nullptr;
}

void fill_limits(cudaDeviceProp& properties) {
  properties.sharedMemPerBlock = kDefaultSharedBytes;
  properties.sharedMemPerBlockOptin = kMaxSharedBytes;
  properties.sharedMemPerMultiprocessor = kMaxSharedBytes + kReservedSharedBytes;
  properties.reservedSharedMemPerBlock = kReservedSharedBytes;
  properties.regsPerBlock = 65536;
  properties.regsPerMultiprocessor = 65536;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = kMaxBlockThreads;
  properties.maxThreadsDim[0] = 1024;
  properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 0x7fffffff;
  properties.maxGridSize[1] = 65535;
  properties.maxGridSize[2] = 65535;
  properties.totalConstMem = 65536;
  properties.multiProcessorCount = kMultiprocessors;
  properties.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties.maxBlocksPerMultiProcessor = kMaxBlocksPerMultiprocessor;
  properties.l2CacheSize = 4 << 20;
}

int read_attribute(const cudaDeviceProp& properties, cudaDeviceAttr attribute, bool& is_known) {
  is_known = true;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return properties.multiProcessorCount;
    case cudaDevAttrComputeCapabilityMajor:
      return properties.major;
    case cudaDevAttrComputeCapabilityMinor:
      return properties.minor;
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return properties.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return properties.maxBlocksPerMultiProcessor;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(properties.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(properties.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(properties.sharedMemPerMultiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(properties.reservedSharedMemPerBlock);
    case cudaDevAttrWarpSize:
      return properties.warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
      return properties.regsPerBlock;
    case cudaDevAttrL2CacheSize:
      return properties.l2CacheSize;
    case cudaDevAttrMaxGridDimX:
      return properties.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return properties.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return properties.maxGridSize[2];
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrPciBusId:
      return properties.pciBusID;
    default:
      is_known = false;
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (num_devices() == 0) {  // the count stays as it is, as NVIDIA's does
    return note_error(cudaErrorNoDevice);
  }
  *count = num_devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) {
    return note_error(num_devices() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice);
  }
  device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (num_devices() == 0) {
    return note_error(cudaErrorNoDevice);
  }
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) {
    return note_error(cudaErrorInvalidDevice);
  }
  const int physical = visible_devices()[static_cast<std::size_t>(device)];
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device (no GPU)");
  const std::string uuid = uuid_text(physical);
  for (std::size_t i = 0; i < sizeof properties->uuid.bytes; ++i) {
    properties->uuid.bytes[i] = static_cast<char>(std::stoi(uuid.substr(2 * i, 2), nullptr, 16));
  }
  properties->totalGlobalMem = settings().device_bytes;
  properties->major = 9;
  properties->pciBusID = physical + 1;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 2;
  properties->streamPrioritiesSupported = 1;
  fill_limits(*properties);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status != cudaSuccess) {
    return status;
  }
  bool is_known = false;
  *value = read_attribute(properties, attribute, is_known);
  if (!is_known) {
    fault("cudaDeviceGetAttribute: attribute {} is not emulated", static_cast<int>(attribute));
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) {
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", properties.pciBusID);
  }
  return status;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() {
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorString(cudaError_t status) {
  const ErrorText* const error = find_error(status);
  return error == nullptr ? "unrecognized error code" : error->text;
}

const char* cudaGetErrorName(cudaError_t status) {
  const ErrorText* const error = find_error(status);
  return error == nullptr ? "cudaErrorUnknown" : error->name;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  const bool is_shared = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
  const bool is_fine =
      !is_shared || (value >= 0 && static_cast<std::size_t>(value) <= kMaxSharedBytes);
  return note_error(is_fine ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = kMaxBlockThreads;
  attributes->numRegs = 32;
  attributes->binaryVersion = 90;
  attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(kMaxSharedBytes);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void*, int threads, std::size_t shared_bytes, unsigned) {
  if (threads <= 0) {
    return note_error(cudaErrorInvalidValue);
  }
  const std::size_t by_shared =
      (kMaxSharedBytes + kReservedSharedBytes) / (shared_bytes + kReservedSharedBytes);
  *blocks = std::min({kThreadsPerMultiprocessor / threads,
                      kMaxBlocksPerMultiprocessor,
                      static_cast<int>(by_shared)});
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void* kernel,
                                                          int threads,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, kernel, threads, shared_bytes, 0);
}

cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

}  // extern "C"

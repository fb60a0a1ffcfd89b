#include <cublasLt.h>

#include "emulated_device/faults/fault.h"
#include "emulated_device/faults/kernels.h"

namespace lockstep::faults {
namespace {

constexpr int kCount = 200;
constexpr std::size_t kBytes = kCount * sizeof(float);

std::vector<float> ones() {
  return std::vector<float>(kCount, 1.0F);
}

/// Pinned memory, freed at the end.
class Pinned {
 public:
  Pinned() {
    void* address = nullptr;
    check_cuda(cudaMallocHost(&address, kBytes), "cudaMallocHost");
    data_ = static_cast<float*>(address);
  }
  ~Pinned() {
    cudaDeviceSynchronize();
    cudaFreeHost(data_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  float* data_ = nullptr;
};

void missing_event(bool wrong) {
  const Values<float> x(ones());
  const Stream first;
  const Stream second;
  twice(first.get(), x.data(), kCount);
  if (!wrong) {
    order(first, second);
  }
  twice(second.get(), x.data(), kCount);
  expect(x.download()[0] == 4.0F);
}

void missing_event_read(bool wrong) {
  const Values<float> x(ones());
  const Values<float> y(kCount);
  const Stream first;
  const Stream second;
  read_all(first.get(), y.data(), x.data(), kCount);
  if (!wrong) {
    order(first, second);
  }
  cudaMemsetAsync(x.data(), 0, kBytes, second.get());
  expect(y.download() == ones());
}

void event_before_work(bool wrong) {
  const Values<float> x(ones());
  const Stream first;
  const Stream second;
  if (wrong) {
    order(first, second);  // marks nothing
  }
  twice(first.get(), x.data(), kCount);
  if (!wrong) {
    order(first, second);
  }
  twice(second.get(), x.data(), kCount);
  expect(x.download()[0] == 4.0F);
}

void default_stream(bool wrong) {
  const Values<float> x(ones());
  const Stream stream;  // does not wait for the default stream
  twice(nullptr, x.data(), kCount);
  if (!wrong) {
    cudaStreamSynchronize(nullptr);
  }
  twice(stream.get(), x.data(), kCount);
  expect(x.download()[0] == 4.0F);
}

void freed_early(bool wrong) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, kBytes), "cudaMalloc");
  const Stream stream;
  cudaMemsetAsync(memory, 0, kBytes, stream.get());
  twice(stream.get(), static_cast<float*>(memory), kCount);
  if (!wrong) {
    cudaStreamSynchronize(stream.get());
  }
  cudaFree(memory);
}

void use_after_free(bool wrong) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, kBytes), "cudaMalloc");
  cudaMemset(memory, 0, kBytes);
  cudaDeviceSynchronize();
  if (wrong) {
    cudaFree(memory);
  }
  twice(nullptr, static_cast<float*>(memory), kCount);
  cudaDeviceSynchronize();
  if (!wrong) {
    cudaFree(memory);
  }
}

void freed_twice(bool wrong) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, kBytes), "cudaMalloc");
  cudaFree(memory);
  if (wrong) {
    cudaFree(memory);
  }
}

void host_reads_device(bool wrong) {
  const Values<float> x(ones());
  const volatile float* const from = x.data();
  expect((wrong ? from[3] : x.download()[3]) == 1.0F);
}

void pinned_reused(bool wrong) {
  const Values<float> x(kCount);
  const Pinned pinned;
  std::fill_n(pinned.data(), kCount, 1.0F);
  const Stream stream;
  cudaMemcpyAsync(x.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice, stream.get());
  if (!wrong) {
    cudaStreamSynchronize(stream.get());
  }
  static_cast<volatile float*>(pinned.data())[7] = 2.0F;
  expect(x.download() == ones());
}

void pinned_read_early(bool wrong) {
  const Values<float> x(ones());
  const Pinned pinned;
  const Stream stream;
  cudaMemcpyAsync(pinned.data(), x.data(), kBytes, cudaMemcpyDeviceToHost, stream.get());
  if (!wrong) {
    cudaStreamSynchronize(stream.get());
  }
  expect(static_cast<volatile float*>(pinned.data())[7] == 1.0F);
}

void pinned_result_early(bool wrong) {
  const Values<float> x(ones());
  const Pinned pinned;
  const Stream stream;
  read_all(stream.get(), pinned.data(), x.data(), kCount);
  if (!wrong) {
    cudaStreamSynchronize(stream.get());
  }
  expect(static_cast<volatile float*>(pinned.data())[7] == 1.0F);
}

void copy_bounds(bool wrong) {
  const Values<float> x(ones());
  std::vector<float> host(kCount + 1);
  cudaMemcpy(host.data(), x.data(), kBytes + (wrong ? 4 : 0), cudaMemcpyDeviceToHost);
}

void copy_kind(bool wrong) {
  const Values<float> x(ones());
  std::vector<float> host(kCount);
  cudaMemcpy(
      host.data(), x.data(), kBytes, wrong ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
}

void graph_branch(bool wrong) {
  const Values<float> x(ones());
  const Stream main;
  const Stream side;
  cudaStreamBeginCapture(main.get(), cudaStreamCaptureModeThreadLocal);
  order(main, side);
  twice(side.get(), x.data(), kCount);
  if (wrong) {
    twice(main.get(), x.data(), kCount);
    order(side, main);
  } else {
    order(side, main);
    twice(main.get(), x.data(), kCount);
  }
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(main.get(), &graph);
  cudaGraphExec_t run = nullptr;
  cudaGraphInstantiate(&run, graph, 0);
  cudaGraphLaunch(run, main.get());
  expect(x.download()[0] == 4.0F);
  cudaGraphExecDestroy(run);
  cudaGraphDestroy(graph);
}

// d[8 x 8] = x[8 x 8] x, columns `stride` apart.
void multiply(const float* x, float* d, std::int64_t stride) {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t operand = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&operand, CUDA_R_32F, 8, 8, stride);
  cublasLtMatrixLayoutCreate(&result, CUDA_R_32F, 8, 8, 8);
  const float one = 1.0F;
  const float zero = 0.0F;
  cublasLtMatmul(handle,
                 product,
                 &one,
                 x,
                 operand,
                 x,
                 operand,
                 &zero,
                 d,
                 result,
                 d,
                 result,
                 nullptr,
                 nullptr,
                 0,
                 nullptr);
  cudaDeviceSynchronize();
  cublasLtMatrixLayoutDestroy(result);
  cublasLtMatrixLayoutDestroy(operand);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);
}

void product_stride(bool wrong) {
  const Values<float> x(std::vector<float>(64, 1.0F));
  const Values<float> d(64);
  multiply(x.data(), d.data(), wrong ? 9 : 8);
  expect(d.download()[5] == 8.0F);
}

void product_host_memory(bool wrong) {
  const std::vector<float> host(64, 1.0F);
  const Values<float> x(host);
  const Values<float> d(64);
  multiply(wrong ? host.data() : x.data(), d.data(), 8);
  expect(d.download()[5] == 8.0F);
}

constexpr Fault kFaults[] = {
    {"missing-event",
     "two streams change a buffer without cudaStreamWaitEvent",
     "race between streams",
     1,
     &missing_event},
    {"missing-event-read",
     "a stream overwrites what another still reads",
     "race between streams",
     1,
     &missing_event_read},
    {"event-before-work",
     "an event is recorded before the work that it is to mark",
     "race between streams",
     1,
     &event_before_work},
    {"default-stream",
     "a non-blocking stream relies on the order of the default stream",
     "race between streams",
     1,
     &default_stream},
    {"freed-early",
     "memory is freed before the work on it was waited for",
     "memory that was freed",
     1,
     &freed_early},
    {"use-after-free",
     "a kernel works on memory that was freed",
     "memory that was freed",
     1,
     &use_after_free},
    {"freed-twice", "memory is freed twice", "freed before", 1, &freed_twice},
    {"host-reads-device",
     "the host reads memory of the device",
     "the host touches memory of a device",
     1,
     &host_reads_device},
    {"pinned-reused",
     "pinned memory is changed before the copy from it is done",
     "that a copy still reads",
     1,
     &pinned_reused},
    {"pinned-read-early",
     "pinned memory is read before the copy to it is done",
     "that a copy still writes",
     1,
     &pinned_read_early},
    {"pinned-result-early",
     "what a kernel writes to pinned memory is read before it ran",
     "wrong value",
     1,
     &pinned_result_early},
    {"copy-bounds", "a copy of four bytes too many", "outside any allocation", 1, &copy_bounds},
    {"copy-kind",
     "a copy in the other direction than its kind says",
     "a copy of kind",
     1,
     &copy_kind},
    {"graph-branch",
     "branches of a graph change the same buffer",
     "race between streams",
     1,
     &graph_branch},
    {"product-stride",
     "a matrix of cuBLASLt with too large a leading dimension",
     "outside any allocation",
     1,
     &product_stride},
    {"product-host-memory",
     "an operand of cuBLASLt in memory of the host",
     "memory of the host",
     1,
     &product_host_memory},
};

}  // namespace

std::span<const Fault> stream_faults() {
  return kFaults;
}

}  // namespace lockstep::faults

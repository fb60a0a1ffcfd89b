#include <numeric>

#include "emulated_device/self_test/device_memory.h"
#include "emulated_device/self_test/kernels.h"
#include "support/catch.h"

namespace lockstep::self_test {
namespace {

constexpr int kCount = 200;

struct Stream {
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    check_cuda(cudaStreamCreateWithFlags(&handle, flags), "cudaStreamCreateWithFlags");
  }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t handle = nullptr;
};

struct Event {
  Event() { check_cuda(cudaEventCreate(&handle), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle = nullptr;
};

std::vector<float> ones() {
  return std::vector<float>(kCount, 1.0F);
}

TEST_CASE("work of two streams that events order is done in that order") {
  const DeviceValues<float> x(ones());
  const Stream first;
  const Stream second;
  const Event ready;

  scale(first.handle, x.data(), 3.0F, kCount);
  cudaEventRecord(ready.handle, first.handle);
  cudaStreamWaitEvent(second.handle, ready.handle, 0);
  scale(second.handle, x.data(), 5.0F, kCount);

  REQUIRE(x.download() == std::vector<float>(kCount, 15.0F));
}

TEST_CASE("the default stream and blocking streams wait for each other") {
  const DeviceValues<float> x(ones());
  const Stream blocking(cudaStreamDefault);

  scale(nullptr, x.data(), 3.0F, kCount);
  scale(blocking.handle, x.data(), 5.0F, kCount);
  scale(nullptr, x.data(), 7.0F, kCount);

  REQUIRE(x.download() == std::vector<float>(kCount, 105.0F));
}

TEST_CASE("an event is reached when the work before it is done, and tells the time between") {
  const DeviceValues<float> x(ones());
  const Stream stream;
  const Event begin;
  const Event end;

  cudaEventRecord(begin.handle, stream.handle);
  scale(stream.handle, x.data(), 2.0F, kCount);
  cudaEventRecord(end.handle, stream.handle);
  while (cudaEventQuery(end.handle) == cudaErrorNotReady) {
  }

  float milliseconds = -1;
  REQUIRE(cudaEventElapsedTime(&milliseconds, begin.handle, end.handle) == cudaSuccess);
  REQUIRE(milliseconds >= 0);
  REQUIRE(cudaStreamQuery(stream.handle) == cudaSuccess);
}

TEST_CASE("pinned memory is copied in stream order, pageable memory may be changed at once") {
  const Stream stream;
  const DeviceValues<float> x(kCount);
  const DeviceValues<float> y(kCount);
  void* memory = nullptr;
  REQUIRE(cudaMallocHost(&memory, 2 * kCount * sizeof(float)) == cudaSuccess);
  auto* const pinned = static_cast<float*>(memory);
  std::fill_n(pinned, kCount, 2.0F);
  std::vector<float> pageable(kCount, 4.0F);

  cudaMemcpyAsync(x.data(), pinned, kCount * sizeof(float), cudaMemcpyHostToDevice, stream.handle);
  pinned[kCount] = 1.0F;  // beside what is copied, on the same page
  cudaMemcpyAsync(
      y.data(), pageable.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream.handle);
  std::fill(pageable.begin(), pageable.end(), 9.0F);
  scale(stream.handle, x.data(), 3.0F, kCount);
  cudaMemcpyAsync(pinned, x.data(), kCount * sizeof(float), cudaMemcpyDeviceToHost, stream.handle);
  REQUIRE(cudaStreamSynchronize(stream.handle) == cudaSuccess);

  REQUIRE(std::vector<float>(pinned, pinned + kCount) == std::vector<float>(kCount, 6.0F));
  REQUIRE(pinned[kCount] == 1.0F);
  REQUIRE(y.download() == std::vector<float>(kCount, 4.0F));
  cudaFreeHost(pinned);
}

TEST_CASE("rows of a pitched copy are copied and nothing between them") {
  const DeviceValues<float> x(ones());
  const std::vector<float> rows = {2, 3, 4, 5, 6, 7};

  cudaMemcpy2DAsync(x.data(), 40, rows.data(), 12, 12, 2, cudaMemcpyHostToDevice, nullptr);

  const std::vector<float> result = x.download();
  REQUIRE(std::vector<float>(result.begin(), result.begin() + 13) ==
          std::vector<float>{2, 3, 4, 1, 1, 1, 1, 1, 1, 1, 5, 6, 7});
}

TEST_CASE("a captured graph does its branches in order at every start") {
  const DeviceValues<float> x(ones());
  const DeviceValues<float> y(ones());
  const Stream main;
  const Stream side;
  const Event fork;
  const Event join;

  REQUIRE(cudaStreamBeginCapture(main.handle, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  scale(main.handle, x.data(), 2.0F, kCount);
  cudaEventRecord(fork.handle, main.handle);
  cudaStreamWaitEvent(side.handle, fork.handle, 0);
  cudaMemcpyAsync(
      y.data(), x.data(), kCount * sizeof(float), cudaMemcpyDeviceToDevice, side.handle);
  cudaEventRecord(join.handle, side.handle);
  cudaStreamWaitEvent(main.handle, join.handle, 0);
  scale(main.handle, x.data(), 3.0F, kCount);
  REQUIRE(cudaStreamSynchronize(main.handle) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(main.handle, &graph) == cudaSuccess);
  REQUIRE(x.download() == ones());  // nothing was done
  cudaGraphExec_t run = nullptr;
  REQUIRE(cudaGraphInstantiate(&run, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);

  for (int i = 0; i < 3; ++i) {
    REQUIRE(cudaGraphLaunch(run, main.handle) == cudaSuccess);
  }
  scale(main.handle, y.data(), 5.0F, kCount);
  REQUIRE(cudaStreamSynchronize(main.handle) == cudaSuccess);
  REQUIRE(cudaGraphExecDestroy(run) == cudaSuccess);

  REQUIRE(x.download() == std::vector<float>(kCount, 216.0F));
  REQUIRE(y.download() == std::vector<float>(kCount, 360.0F));
  cudaGetLastError();
}

TEST_CASE("a capture that leaves a stream behind is refused") {
  const DeviceValues<float> x(ones());
  const Stream main;
  const Stream side;
  const Event fork;

  REQUIRE(cudaStreamBeginCapture(main.handle, cudaStreamCaptureModeGlobal) == cudaSuccess);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaErrorStreamCaptureUnsupported);
  cudaEventRecord(fork.handle, main.handle);
  cudaStreamWaitEvent(side.handle, fork.handle, 0);
  scale(side.handle, x.data(), 2.0F, kCount);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(main.handle, &graph) == cudaErrorStreamCaptureUnjoined);
  cudaGetLastError();
}

TEST_CASE("a device has the memory that the environment says, and no more") {
  std::size_t before = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20U) == cudaSuccess);
  std::size_t after = 0;
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  REQUIRE(before - after == 1 << 20U);
  void* more = nullptr;
  REQUIRE(cudaMalloc(&more, after + 1) == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaSuccess);
  cudaFree(memory);
}

void add_one(void* number) {
  ++*static_cast<int*>(number);
}

TEST_CASE("a host function runs in stream order") {
  const Stream stream;
  int number = 0;
  cudaLaunchHostFunc(stream.handle, &add_one, &number);
  cudaStreamSynchronize(stream.handle);
  REQUIRE(number == 1);
}

}  // namespace
}  // namespace lockstep::self_test

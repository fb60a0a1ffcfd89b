#include "emulated_device/streams.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated_device/fault.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"

namespace lockstep::emulated {
namespace {

struct Capture;

struct Stream {
  int lane = 0;
  int device = 0;
  bool is_blocking = true;  // ordered with the default stream
  int priority = 0;
  Capture* capture = nullptr;
  int branch = 0;
};

struct EventTime {
  std::chrono::steady_clock::time_point reached;
};

struct Event {
  bool has_timing = true;
  bool is_recorded = false;
  Clock clock;
  std::shared_ptr<EventTime> time;
  Capture* capture = nullptr;  // recorded in a captured stream
};

struct Node {
  int branch = 0;
  Clock before;  // by branch
  MakeOperation make;
};

struct Graph {
  std::vector<Node> nodes;
  int num_branches = 0;
};

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  Stream* origin = nullptr;
  Graph graph;
  std::vector<Clock> clocks;  // of the branches
  std::vector<Stream*> streams;
};

struct GraphRun {
  std::shared_ptr<const Graph> graph;
  std::vector<int> lanes;
};

struct Handles {
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<int, std::unique_ptr<Stream>> default_streams;
  std::vector<std::unique_ptr<Capture>> captures;
};

Handles& handles() {
  static Handles& only = *new Handles;  // never destroyed: streams may outlive the program's end
  return only;
}

Stream& default_stream(int device) {
  std::unique_ptr<Stream>& stream = handles().default_streams[device];
  if (stream == nullptr) {
    stream = std::make_unique<Stream>();
    stream->lane = make_lane();
    stream->device = device;
  }
  return *stream;
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

Stream& stream_of(cudaStream_t handle) {
  if (is_default(handle)) {
    return default_stream(current_device());
  }
  auto* const stream = reinterpret_cast<Stream*>(handle);
  if (handles().streams.count(stream) == 0) {
    fault("{} is no stream, or one that was destroyed", static_cast<const void*>(handle));
  }
  return *stream;
}

Event& event_of(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  if (handles().events.count(event) == 0) {
    fault("{} is no event, or one that was destroyed", static_cast<const void*>(handle));
  }
  return *event;
}

// The default stream and streams that were not made with cudaStreamNonBlocking wait for each other.
void order_with_default_stream(const Stream& stream) {
  Stream& standard = default_stream(stream.device);
  if (&stream != &standard) {
    if (stream.is_blocking) {
      join(clock_of(stream.lane), clock_of(standard.lane));
    }
    return;
  }
  for (const Stream* other : handles().streams) {
    if (other->is_blocking && other->device == stream.device) {
      join(clock_of(standard.lane), clock_of(other->lane));
    }
  }
}

void join_capture(Capture& capture, Stream& stream) {
  if (stream.capture == nullptr) {
    stream.capture = &capture;
    stream.branch = capture.graph.num_branches++;
    capture.clocks.emplace_back();
    capture.streams.push_back(&stream);
  }
}

Clock& branch_clock(const Stream& stream) {
  return stream.capture->clocks[static_cast<std::size_t>(stream.branch)];
}

void add_node(const Stream& stream, MakeOperation make) {
  Clock& clock = branch_clock(stream);
  const auto branch = static_cast<std::size_t>(stream.branch);
  Node node;
  node.branch = stream.branch;
  node.before = clock;
  node.make = std::move(make);
  stream.capture->graph.nodes.push_back(std::move(node));
  if (clock.size() <= branch) {
    clock.resize(branch + 1);
  }
  ++clock[branch];
}

}  // namespace

cudaError_t submit(cudaStream_t handle, MakeOperation make) {
  Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    add_node(stream, std::move(make));
    return cudaSuccess;
  }
  if (is_default(handle) && is_capture_strict()) {
    return cudaErrorStreamCaptureImplicit;
  }
  order_with_default_stream(stream);
  enqueue(stream.lane, make());
  return cudaSuccess;
}

cudaError_t submit_work(cudaStream_t stream, const char* what, const std::function<void()>& work) {
  return submit(stream, [what, work] { return std::make_unique<WorkOperation>(what, work); });
}

cudaError_t wait_for_stream(cudaStream_t handle) {
  const Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    return cudaErrorStreamCaptureUnsupported;
  }
  order_with_default_stream(stream);  // of the default stream: all that it waits for
  const Clock clock = clock_of(stream.lane);
  work_until([&] {
    for (std::size_t i = 0; i < clock.size(); ++i) {
      if (!is_done(static_cast<int>(i), clock[i])) {
        return false;
      }
    }
    return true;
  });
  note_host_wait(clock);
  return cudaSuccess;
}

bool is_capturing(cudaStream_t stream) {
  return stream_of(stream).capture != nullptr;
}

bool is_capture_strict() {
  const auto& captures = handles().captures;
  return std::any_of(captures.begin(), captures.end(), [](const auto& capture) {
    return capture->mode != cudaStreamCaptureModeRelaxed;
  });
}

int device_of_stream(cudaStream_t stream) {
  return stream_of(stream).device;
}

}  // namespace lockstep::emulated

using namespace lockstep::emulated;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

bool is_all_reached(const Clock& clock) {
  for (std::size_t i = 0; i < clock.size(); ++i) {
    if (!is_done(static_cast<int>(i), clock[i])) {
      return false;
    }
  }
  return true;
}

cudaError_t make_stream(cudaStream_t* handle, unsigned flags, int priority) {
  const ApiLock lock;
  auto stream = std::make_unique<Stream>();
  stream->lane = make_lane();
  stream->device = current_device();
  stream->is_blocking = (flags & cudaStreamNonBlocking) == 0;
  stream->priority = std::clamp(priority, -5, 0);
  handles().streams.insert(stream.get());
  *handle = reinterpret_cast<cudaStream_t>(stream.release());
  return cudaSuccess;
}

// Starts all nodes of a graph behind what is in the stream, and lets the stream go on behind all of them.
void start_graph(const GraphRun& run, const Stream& stream) {
  order_with_default_stream(stream);
  Clock start = clock_of(stream.lane);
  Clock done_before;  // in each branch
  done_before.reserve(run.lanes.size());
  for (const int lane : run.lanes) {
    join(start, clock_of(lane));  // the graph's last run
    const Clock& clock = clock_of(lane);
    const auto index = static_cast<std::size_t>(lane);
    done_before.push_back(index < clock.size() ? clock[index] : 0);
  }
  for (const Node& node : run.graph->nodes) {
    const int lane = run.lanes[static_cast<std::size_t>(node.branch)];
    Clock& clock = clock_of(lane);
    join(clock, start);
    for (std::size_t i = 0; i < node.before.size(); ++i) {
      const auto branch_lane = static_cast<std::size_t>(run.lanes[i]);
      if (clock.size() <= branch_lane) {
        clock.resize(branch_lane + 1);
      }
      if (node.before[i] > 0) {
        clock[branch_lane] = std::max(clock[branch_lane], done_before[i] + node.before[i]);
      }
    }
    enqueue(lane, node.make());
  }
  for (const int lane : run.lanes) {
    join(clock_of(stream.lane), clock_of(lane));
  }
  enqueue(stream.lane, std::make_unique<WorkOperation>("end of a graph", [] {}));
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return make_stream(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return make_stream(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return make_stream(stream, flags, priority);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const ApiLock lock;
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  const ApiLock lock;
  *flags = stream_of(stream).is_blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return cudaSuccess;
}

// What is in it will still be done.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const ApiLock lock;
  Stream* const stream = &stream_of(handle);
  if (is_default(handle) || stream->capture != nullptr) {
    return note_error(cudaErrorInvalidResourceHandle);
  }
  handles().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const ApiLock lock;
  check_no_open_group("cudaStreamSynchronize");
  return note_error(wait_for_stream(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const ApiLock lock;
  check_no_open_group("cudaStreamQuery");
  const Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    return note_error(cudaErrorStreamCaptureUnsupported);
  }
  work_a_little();
  if (!is_idle(stream.lane)) {
    return cudaErrorNotReady;
  }
  note_host_wait(clock_of(stream.lane));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const ApiLock lock;
  check_no_open_group("cudaDeviceSynchronize");
  if (is_capture_strict()) {
    return note_error(cudaErrorStreamCaptureUnsupported);
  }
  work_until(&is_everything_idle);
  note_host_wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const ApiLock lock;
  return note_error(submit_work(stream, "host function", [function, data] { function(data); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  const ApiLock lock;
  auto event = std::make_unique<Event>();
  event->has_timing = (flags & cudaEventDisableTiming) == 0;
  handles().events.insert(event.get());
  *handle = reinterpret_cast<cudaEvent_t>(event.release());
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const ApiLock lock;
  Event* const event = &event_of(handle);
  handles().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  const ApiLock lock;
  Event& event = event_of(event_handle);
  const Stream& stream = stream_of(stream_handle);
  event.is_recorded = true;
  event.capture = stream.capture;
  if (stream.capture != nullptr) {
    event.clock = branch_clock(stream);
    return cudaSuccess;
  }
  order_with_default_stream(stream);
  event.time = std::make_shared<EventTime>();
  enqueue(stream.lane, std::make_unique<WorkOperation>("event", [time = event.time] {
            time->reached = std::chrono::steady_clock::now();
          }));
  event.clock = clock_of(stream.lane);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned) {
  const ApiLock lock;
  const Event& event = event_of(event_handle);
  Stream& stream = stream_of(stream_handle);
  if (event.capture != nullptr) {
    join_capture(*event.capture, stream);
    if (stream.capture != event.capture) {
      return note_error(cudaErrorStreamCaptureMerge);
    }
    join(branch_clock(stream), event.clock);
    return cudaSuccess;
  }
  if (stream.capture != nullptr) {
    return note_error(cudaErrorStreamCaptureIsolation);
  }
  join(clock_of(stream.lane), event.clock);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const ApiLock lock;
  check_no_open_group("cudaEventQuery");
  const Event& event = event_of(handle);
  if (event.capture != nullptr) {
    return note_error(cudaErrorCapturedEvent);
  }
  work_a_little();
  if (!is_all_reached(event.clock)) {
    return cudaErrorNotReady;
  }
  note_host_wait(event.clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const ApiLock lock;
  check_no_open_group("cudaEventSynchronize");
  const Event& event = event_of(handle);
  if (event.capture != nullptr) {
    return note_error(cudaErrorCapturedEvent);
  }
  const Clock clock = event.clock;
  work_until([&] { return is_all_reached(clock); });
  note_host_wait(clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const ApiLock lock;
  const Event& first = event_of(start);
  const Event& last = event_of(end);
  if (!first.has_timing || !last.has_timing || first.time == nullptr || last.time == nullptr) {
    return note_error(cudaErrorInvalidResourceHandle);
  }
  if (!is_all_reached(first.clock) || !is_all_reached(last.clock)) {
    return cudaErrorNotReady;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(last.time->reached - first.time->reached).count();
  return cudaSuccess;
}

// ---- Graphs -----------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const ApiLock lock;
  if (is_default(handle)) {
    return note_error(cudaErrorStreamCaptureUnsupported);
  }
  Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    return note_error(cudaErrorIllegalState);
  }
  handles().captures.push_back(std::make_unique<Capture>());
  Capture& capture = *handles().captures.back();
  capture.mode = mode;
  capture.origin = &stream;
  join_capture(capture, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const ApiLock lock;
  check_no_open_group("cudaStreamEndCapture");
  const Stream& stream = stream_of(handle);
  Capture* const capture = stream.capture;
  if (capture == nullptr || capture->origin != &stream) {
    return note_error(cudaErrorIllegalState);
  }
  const Clock end = branch_clock(stream);
  bool is_joined = true;
  for (std::size_t i = 0; i < capture->clocks.size(); ++i) {
    const std::uint32_t issued = i < capture->clocks[i].size() ? capture->clocks[i][i] : 0;
    is_joined = is_joined && (i < end.size() ? end[i] : 0) >= issued;
  }
  for (Stream* member : capture->streams) {
    member->capture = nullptr;
  }
  for (Event* event : handles().events) {
    if (event->capture == capture) {
      event->capture = nullptr;
      event->is_recorded = false;
      event->clock.clear();
    }
  }
  *graph = is_joined ? reinterpret_cast<cudaGraph_t>(new std::shared_ptr<const Graph>(
                           std::make_shared<Graph>(std::move(capture->graph))))
                     : nullptr;
  auto& captures = handles().captures;
  captures.erase(std::find_if(
      captures.begin(), captures.end(), [&](const auto& other) { return other.get() == capture; }));
  return note_error(is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const ApiLock lock;
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* run, cudaGraph_t graph, unsigned long long) {
  const ApiLock lock;
  auto made = std::make_unique<GraphRun>();
  made->graph = *reinterpret_cast<std::shared_ptr<const Graph>*>(graph);
  made->lanes.reserve(static_cast<std::size_t>(made->graph->num_branches));
  for (int i = 0; i < made->graph->num_branches; ++i) {
    made->lanes.push_back(make_lane());
  }
  *run = reinterpret_cast<cudaGraphExec_t>(made.release());
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t handle) {
  const ApiLock lock;
  const Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    fault("a graph within a graph is not emulated");
  }
  start_graph(*reinterpret_cast<const GraphRun*>(run), stream);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const ApiLock lock;
  if (nodes != nullptr) {
    fault("cudaGraphGetNodes: only the number of nodes is emulated");
  }
  *count = (*reinterpret_cast<std::shared_ptr<const Graph>*>(graph))->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const ApiLock lock;
  delete reinterpret_cast<std::shared_ptr<const Graph>*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) {
  const ApiLock lock;
  delete reinterpret_cast<GraphRun*>(run);
  return cudaSuccess;
}

}  // extern "C"

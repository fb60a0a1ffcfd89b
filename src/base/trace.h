// What a rank does when: spans of time on a few tracks, recorded with one branch when off.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"

namespace lockstep {

/// The lanes of a trace. A wait (a pipeline bubble, an empty queue) is neither work nor a message.
enum class TraceTrack : std::uint8_t { kCompute, kCommunication, kWaiting };

/// What a rank works on: a micro-batch in a chunk of its model.
struct TracePlace {
  std::int16_t chunk = -1;
  std::int32_t micro_batch = -1;  ///< -1: none in particular
};

/// One thing that was done. The strings are not copied: pass literals.
struct TraceEvent {
  const char* name = "";
  const char* category = "";
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  TraceTrack track = TraceTrack::kCompute;
  TracePlace place;
};

/// Keeps the latest events in a ring that is allocated once. Off until switched on.
class TraceRecorder {
 public:
  /// Allocates room for `capacity` events (48 bytes each) and forgets what was recorded. Call it
  /// before any thread records. Capacity 0 frees the room; recording then drops everything.
  void reserve(std::size_t capacity);

  /// Recording happens between switch_on(true) and switch_on(false). A span that is open at the
  /// switch is recorded only if it began and ends while on.
  void switch_on(bool on) { on_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// What spans that begin from now on carry. One thread works on micro-batches; it calls this.
  void set_place(TracePlace place) { place_.store(place, std::memory_order_relaxed); }
  [[nodiscard]] TracePlace place() const { return place_.load(std::memory_order_relaxed); }

  /// Adds an event, in place of the oldest when the ring is full. Does nothing when off. Any thread;
  /// cost: one branch when off, one uncontended lock when on; never allocates.
  void record(const TraceEvent& event);

  /// The events that are kept, in the order in which they were recorded (by end). Allocates.
  [[nodiscard]] std::vector<TraceEvent> events() const;

  /// Events that were overwritten because the ring was full, since reserve() or clear().
  [[nodiscard]] std::size_t num_dropped() const;

  void clear();

 private:
  std::atomic<bool> on_{false};
  std::atomic<TracePlace> place_{TracePlace{}};
  mutable std::mutex mutex_;
  std::vector<TraceEvent> ring_;
  std::size_t num_recorded_ = 0;
};

/// The recorder of this process, for code that is handed none.
TraceRecorder& process_trace();

/// Records its own lifetime: `const TraceSpan span("all_reduce", "gradients", track);`
class TraceSpan {
 public:
  TraceSpan(const char* name,
            const char* category,
            TraceTrack track = TraceTrack::kCompute,
            TraceRecorder& recorder = process_trace())
      : recorder_(recorder.on() ? &recorder : nullptr) {
    if (recorder_ != nullptr) {
      event_ = {name, category, now_ns(), 0, track, recorder.place()};
    }
  }
  ~TraceSpan() {
    if (recorder_ != nullptr) {
      event_.end_ns = now_ns();
      recorder_->record(event_);
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRecorder* recorder_;
  TraceEvent event_;
};

/// How much of the communication happened while something was computed. Nanoseconds of wall time:
/// events of one track that nest or overlap count once.
struct OverlapReport {
  std::int64_t compute_ns = 0;
  std::int64_t communication_ns = 0;
  std::int64_t hidden_ns = 0;  ///< communication during compute

  /// hidden / communication; 1 when nothing was communicated.
  [[nodiscard]] double hidden_fraction() const;
};

/// Intersects the compute and the communication track of one rank's events, given in any order.
/// Cost: n log n.
OverlapReport overlap_report(std::span<const TraceEvent> events);

}  // namespace lockstep

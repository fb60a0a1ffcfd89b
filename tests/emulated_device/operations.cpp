#include "emulated_device/operations.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include <sched.h>

#include "emulated_device/fault.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"

namespace lockstep::emulated {
namespace {

struct Lane {
  std::deque<std::unique_ptr<Operation>> queue;
  Clock clock;
  std::uint32_t issued = 0;
  std::uint32_t completed = 0;
};

struct Record {
  int lane = 0;
  std::uint32_t number = 0;
  const char* what = "";
  const void* kernel = nullptr;
};

struct Engine {
  std::recursive_mutex mutex;
  int lock_depth = 0;
  std::deque<Lane> lanes;                 // references to one stay valid
  std::vector<Record> records{Record{}};  // of all operations there were
  Clock known_to_host;
  const Operation* current = nullptr;
  // Earlier operations that were found to be before the current one.
  std::array<std::uint32_t, 256> before_current{};
};

Engine& engine() {
  static Engine& only = *new Engine;  // never destroyed: streams may outlive the program's end
  return only;
}

std::uint32_t part_of(const Clock& clock, int lane) {
  const auto index = static_cast<std::size_t>(lane);
  return index < clock.size() ? clock[index] : 0;
}

Lane& lane_at(int lane) {
  return engine().lanes[static_cast<std::size_t>(lane)];
}

bool is_all_done(const Clock& clock) {
  for (std::size_t i = 0; i < clock.size(); ++i) {
    if (engine().lanes[i].completed < clock[i]) {
      return false;
    }
  }
  return true;
}

// Which of several lanes goes first: any, or one order for a while, so that some run far ahead.
class Choice {
 public:
  Choice() : by_rank_(random_below(2) == 0), salt_(random_below(~0U)) {}

  int operator()(const std::vector<int>& lanes) const {
    if (!by_rank_) {
      return lanes[random_below(static_cast<std::uint32_t>(lanes.size()))];
    }
    return *std::max_element(
        lanes.begin(), lanes.end(), [&](int a, int b) { return rank_of(a) < rank_of(b); });
  }

 private:
  [[nodiscard]] std::uint32_t rank_of(int lane) const {
    return (static_cast<std::uint32_t>(lane) + salt_) * 2654435761U;
  }

  bool by_rank_;
  std::uint32_t salt_;
};

enum class Progress : std::uint8_t { kDone, kWaits, kNothing };

void start_operation(const Operation& operation) {
  engine().current = &operation;
  engine().before_current.fill(0);
}

bool advance_front(int number) {
  Engine& e = engine();
  Operation& operation = *lane_at(number).queue.front();
  start_operation(operation);
  const bool done = operation.advance();
  e.current = nullptr;
  if (done) {
    Lane& lane = lane_at(number);
    lane.queue.pop_front();
    ++lane.completed;
  }
  return done;
}

// Completes one operation that may run, if one can be completed now.
Progress step(const Choice& choose) {
  Engine& e = engine();
  std::vector<int> ready;
  ready.reserve(e.lanes.size());
  for (std::size_t i = 0; i < e.lanes.size(); ++i) {
    if (!e.lanes[i].queue.empty() && is_all_done(e.lanes[i].queue.front()->before)) {
      ready.push_back(static_cast<int>(i));
    }
  }
  if (ready.empty()) {
    return Progress::kNothing;
  }
  while (!ready.empty()) {
    const int lane = choose(ready);
    if (advance_front(lane)) {
      return Progress::kDone;
    }
    ready.erase(std::find(ready.begin(), ready.end(), lane));
  }
  return Progress::kWaits;
}

// All that can be done waits for other ranks.
void let_others_run() {
  Engine& e = engine();
  const bool release = e.lock_depth == 1;
  if (release) {
    --e.lock_depth;
    e.mutex.unlock();
  }
  sched_yield();
  if (release) {
    e.mutex.lock();
    ++e.lock_depth;
  }
}

}  // namespace

ApiLock::ApiLock() {
  engine().mutex.lock();
  ++engine().lock_depth;
}

ApiLock::~ApiLock() {
  --engine().lock_depth;
  engine().mutex.unlock();
}

void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) {
    into.resize(from.size());
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

int make_lane() {
  engine().lanes.emplace_back();
  return static_cast<int>(engine().lanes.size()) - 1;
}

Clock& clock_of(int lane) {
  return lane_at(lane).clock;
}

std::uint32_t enqueue(int lane, std::unique_ptr<Operation> operation) {
  Engine& e = engine();
  Lane& target = lane_at(lane);
  join(target.clock, e.known_to_host);
  operation->before = target.clock;
  operation->lane = lane;
  operation->number = ++target.issued;
  operation->id = static_cast<std::uint32_t>(e.records.size());
  e.records.push_back({lane, operation->number, operation->what(), operation->kernel()});
  if (target.clock.size() <= static_cast<std::size_t>(lane)) {
    target.clock.resize(static_cast<std::size_t>(lane) + 1);
  }
  target.clock[static_cast<std::size_t>(lane)] = operation->number;
  target.queue.push_back(std::move(operation));
  target.queue.back()->was_enqueued();
  return target.issued;
}

bool is_done(int lane, std::uint32_t number) {
  return lane_at(lane).completed >= number;
}

bool is_idle(int lane) {
  return lane_at(lane).queue.empty();
}

bool is_everything_idle() {
  const std::deque<Lane>& lanes = engine().lanes;
  return std::all_of(
      lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.queue.empty(); });
}

void work_until(const std::function<bool()>& condition) {
  if (condition()) {
    return;
  }
  const DeviceAccess access;
  const Choice choose;
  while (!condition()) {
    const Progress progress = step(choose);
    if (progress == Progress::kNothing) {
      fault("streams wait for each other");
    }
    if (progress == Progress::kWaits) {
      let_others_run();
    }
  }
}

void wait_with_others(const std::function<bool()>& condition) {
  const DeviceAccess access;
  const Choice choose;
  while (!condition()) {
    if (step(choose) != Progress::kDone) {
      let_others_run();
    }
  }
}

void work_a_little() {
  const DeviceAccess access;
  const Choice choose;
  for (std::uint32_t i = random_below(4) + 1; i > 0; --i) {
    if (step(choose) != Progress::kDone) {
      let_others_run();
      return;
    }
  }
}

void note_host_wait(const Clock& clock) {
  join(engine().known_to_host, clock);
  release_pinned_uses(&is_known_to_host);
}

void note_host_wait_for_all() {
  Clock all;
  all.reserve(engine().lanes.size());
  for (const Lane& lane : engine().lanes) {
    all.push_back(lane.issued);
  }
  note_host_wait(all);
}

bool is_known_to_host(int lane, std::uint32_t number) {
  return part_of(engine().known_to_host, lane) >= number;
}

bool is_before_current(std::uint32_t earlier) {
  Engine& e = engine();
  std::uint32_t& cached = e.before_current[earlier % e.before_current.size()];
  if (cached == earlier) {
    return true;
  }
  if (e.current == nullptr) {
    return true;
  }
  const Record& record = e.records[earlier];
  if (part_of(e.current->before, record.lane) < record.number) {
    return false;
  }
  cached = earlier;
  return true;
}

std::uint32_t current_operation() {
  const Operation* const current = engine().current;
  return current == nullptr ? 0 : current->id;
}

std::string describe_operation(std::uint32_t id) {
  const Record& record = engine().records[id];
  const std::string name = record.kernel == nullptr
                               ? record.what
                               : fmt::format("{} {}", record.what, function_name(record.kernel));
  return fmt::format("{} (number {} of stream or branch {})", name, record.number, record.lane);
}

std::string describe_current_operation() {
  return current_operation() == 0 ? "" : describe_operation(current_operation());
}

}  // namespace lockstep::emulated

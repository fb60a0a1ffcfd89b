// How a group of MPI ranks waits: the order of calls, limits, and values through shared memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <sched.h>

#include "base/error.h"
#include "comm/mpi/group.h"
#include "comm/mpi/mpi_call.h"
#include "device/cpu/spin.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSleepAfterSeconds = 0.02;  // longer than any wait in a balanced step
constexpr auto kSleep = std::chrono::microseconds(100);
constexpr double kFirstQuestionSeconds = 0.2;
constexpr double kQuestionIntervalSeconds = 1;
// A rank that gives up asked before and lets the answers arrive.
constexpr double kQuestionBeforeLimit = 0.25;
// A rank that found an error leaves the others this long to take in its notice.
constexpr double kFarewellSeconds = 0.1;
constexpr std::size_t kFirstValues = 8;
constexpr std::uint32_t kTagBase = 1024;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double tag_of(int call, std::size_t num_values) {
  return static_cast<double>(call) * kTagBase + static_cast<double>(num_values);
}

}  // namespace

std::uint32_t MpiGroup::begin_call(int call) {
  const std::uint32_t number = calls_begun_++;
  CallLog& log = block(local_index_).log;
  log.calls[number % CallLog::kEntries].store(static_cast<std::uint32_t>(call),
                                              std::memory_order_relaxed);
  log.count.store(calls_begun_, std::memory_order_release);
  return number;
}

void MpiGroup::fail_order(std::uint32_t call_number, int mine, int rank, int theirs) {
  gave_up_ = true;
  if (notices_ != nullptr) {  // the ranks of other hosts cannot see it yet
    notices_->ask(notice(call_number, mine));
    const auto start = Clock::now();
    while (seconds_since(start) < kFarewellSeconds) {
      notices_->progress(notice(call_number, mine));
      std::this_thread::sleep_for(kSleep);
    }
  }
  const auto name = [&](int call) {
    return 0 <= call && call < static_cast<int>(names_.size())
               ? call_name(call)
               : fmt::format("operation {}", call - kNumPlainCalls);
  };
  throw_error("ranks make different calls (call {} of this group): {} {}, {} {}",
              call_number,
              describe(rank_),
              name(mine),
              describe(rank),
              name(theirs));
}

void MpiGroup::check_order() {
  const CallLog& mine = block(local_index_).log;
  for (std::size_t local = 0; local < checked_.size(); ++local) {
    const CallLog& theirs = block(static_cast<int>(local)).log;
    const std::uint32_t begun = theirs.count.load(std::memory_order_acquire);
    const std::uint32_t both = reached(begun, calls_begun_) ? calls_begun_ : begun;
    for (; checked_[local] != both; ++checked_[local]) {
      const std::uint32_t number = checked_[local];
      const std::uint32_t entry = number % CallLog::kEntries;
      const std::uint32_t their_call = theirs.calls[entry].load(std::memory_order_acquire);
      const std::uint32_t my_call = mine.calls[entry].load(std::memory_order_relaxed);
      // An entry that may have been overwritten meanwhile is not compared.
      const bool kept = theirs.count.load(std::memory_order_acquire) - number < CallLog::kEntries &&
                        calls_begun_ - number < CallLog::kEntries;
      if (kept && their_call != my_call) {
        fail_order(
            number, static_cast<int>(my_call), local_ranks()[local], static_cast<int>(their_call));
      }
    }
  }
}

Notices::Notice MpiGroup::notice(std::uint32_t call_number, int call) const {
  return {call_number, call, calls_begun_, 0};
}

void MpiGroup::check_notices() {
  const CallLog& mine = block(local_index_).log;
  for (std::size_t i = 0; i < notices_->ranks().size(); ++i) {
    const Notices::Notice& theirs = notices_->last(i);
    const auto number = static_cast<std::uint32_t>(theirs.call_number);
    if (theirs.calls_begun == 0 || !reached(calls_begun_, number + 1) ||
        calls_begun_ - number >= CallLog::kEntries) {
      continue;
    }
    const auto my_call = mine.calls[number % CallLog::kEntries].load(std::memory_order_relaxed);
    if (static_cast<std::int64_t>(my_call) != theirs.call) {
      fail_order(
          number, static_cast<int>(my_call), notices_->ranks()[i], static_cast<int>(theirs.call));
    }
  }
}

void MpiGroup::progress_notices(std::uint32_t call_number, int call) {
  if (notices_ != nullptr) {
    notices_->progress(notice(call_number, call));
    check_notices();
  }
}

int MpiGroup::last_call(std::uint32_t& call_number) const {
  if (calls_begun_ == 0) {
    call_number = 0;
    return kCallNone;
  }
  call_number = calls_begun_ - 1;
  const auto& entry = block(local_index_).log.calls[call_number % CallLog::kEntries];
  return static_cast<int>(entry.load(std::memory_order_relaxed));
}

void MpiGroup::look_around() {
  check_order();
  std::uint32_t number = 0;
  const int call = last_call(number);
  progress_notices(number, call);
}

void MpiGroup::wait(int call,
                    std::uint32_t call_number,
                    FunctionRef<bool()> done,
                    FunctionRef<bool(int)> is_missing) {
  wait_until(call, call_number, done, [&](double seconds) {
    fail_time_limit(call, call_number, seconds, is_missing);
  });
}

void MpiGroup::wait_for_peer(const std::string& name, int peer, FunctionRef<bool()> done) {
  std::uint32_t number = 0;
  const int call = last_call(number);
  wait_until(call, number, done, [&](double seconds) {
    gave_up_ = true;
    throw_error("{}: waited {:.1f} s, the limit; missing: {}", name, seconds, sighting(peer));
  });
}

void MpiGroup::wait_until(int call,
                          std::uint32_t call_number,
                          FunctionRef<bool()> done,
                          FunctionRef<void(double seconds)> fail) {
  const auto is_done = [&] {
    if (done()) {
      return true;
    }
    progress_->poll();
    return false;
  };
  if (spin_until(is_done)) {
    return;
  }
  const auto start = Clock::now();
  const double limit = options_.time_limit_seconds;
  const double part = limit > 0 ? kQuestionBeforeLimit * limit : kQuestionIntervalSeconds;
  double next_question = std::min(kFirstQuestionSeconds, part);
  while (!is_done()) {
    const double waited = seconds_since(start);
    if (waited > kSleepAfterSeconds) {
      check_order();
      progress_notices(call_number, call);
      std::this_thread::sleep_for(kSleep);
    } else {
      sched_yield();
    }
    if (notices_ != nullptr && waited > next_question) {
      notices_->ask(notice(call_number, call));
      next_question = waited + std::min(kQuestionIntervalSeconds, part);
    }
    if (limit > 0 && waited > limit) {
      fail(waited);
    }
  }
}

std::string MpiGroup::sighting(int rank) const {
  std::uint32_t begun = 0;
  int call = kCallNone;
  const auto local = std::find(local_ranks().begin(), local_ranks().end(), rank);
  if (local != local_ranks().end()) {
    const CallLog& log = block(static_cast<int>(local - local_ranks().begin())).log;
    begun = log.count.load(std::memory_order_acquire);
    call = static_cast<int>(log.calls[(begun - 1) % CallLog::kEntries].load());
  } else {
    const auto& foreign = notices_->ranks();
    const auto index = std::find(foreign.begin(), foreign.end(), rank) - foreign.begin();
    const Notices::Notice& last = notices_->last(static_cast<std::size_t>(index));
    begun = static_cast<std::uint32_t>(last.calls_begun);
    call = static_cast<int>(last.call);
  }
  std::string text = describe(rank);
  if (begun > 0 && call < static_cast<int>(names_.size())) {
    text += fmt::format(", last seen in {}", call_name(call));
  }
  return text;
}

void MpiGroup::fail_time_limit(int call,
                               std::uint32_t call_number,
                               double seconds,
                               FunctionRef<bool(int)> is_missing) {
  gave_up_ = true;
  std::string missing;
  const auto add = [&](int rank) {
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", sighting(rank));
  };
  for (std::size_t local = 0; local < local_ranks().size(); ++local) {
    if (static_cast<int>(local) != local_index_ && is_missing(static_cast<int>(local))) {
      add(local_ranks()[local]);
    }
  }
  for (std::size_t i = 0; notices_ != nullptr && i < notices_->ranks().size(); ++i) {
    const auto begun = static_cast<std::uint32_t>(notices_->last(i).calls_begun);
    if (!reached(begun, call_number + 1)) {
      add(notices_->ranks()[i]);
    }
  }
  throw_error("{}: waited {:.1f} s for other ranks, the limit; missing: {}",
              call_name(call),
              seconds,
              missing.empty() ? "none (all have begun it)" : missing);
}

void MpiGroup::wait_request(int call, std::uint32_t call_number, MPI_Request& request) {
  const auto has_not_begun = [&](int local) {
    return !reached(block(local).log.count.load(std::memory_order_acquire), call_number + 1);
  };
  wait(
      call,
      call_number,
      [&] {
        int complete = 0;
        mpi_call(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
        return complete != 0;
      },
      has_not_begun);
}

void MpiGroup::all_gather(int call, std::span<const double> mine, std::span<double> all) {
  LOCKSTEP_CHECK(mine.size() <= Communicator::kMaxValues &&
                 all.size() == mine.size() * static_cast<std::size_t>(size()));
  if (notices_ == nullptr) {
    gather_on_host(call, mine, all);
  } else {
    gather_across_hosts(call, mine, all);
  }
}

void MpiGroup::gather_on_host(int call, std::span<const double> mine, std::span<double> all) {
  const std::uint32_t number = begin_call(call);
  const auto tag = static_cast<std::uint32_t>(tag_of(call, mine.size()));
  // Two slots in turn: a rank writes a slot again two calls later, and begins the call between
  // only when all ranks have published in it, which they do after reading this one.
  const std::uint32_t sequence = ++values_sequence_;
  const auto slot_of = [&](int local) -> ValueSlot& { return block(local).slots[sequence % 2]; };
  ValueSlot& own = slot_of(local_index_);
  std::copy(mine.begin(), mine.end(), own.values.begin());
  own.header.store(pack(sequence, tag), std::memory_order_release);
  for (int local = 0; local < size(); ++local) {
    const ValueSlot& slot = slot_of(local);
    const auto published = [&] {
      return upper_half(slot.header.load(std::memory_order_acquire)) == sequence;
    };
    wait(call, number, published, [&](int other) {
      return upper_half(slot_of(other).header.load(std::memory_order_acquire)) != sequence;
    });
    const std::uint32_t their_tag = lower_half(slot.header.load(std::memory_order_relaxed));
    if (their_tag != tag) {
      throw_error(
          "ranks make different calls (call {} of this group): {} {} of {} values, {} {} of {}",
          number,
          describe(rank_),
          call_name(call),
          mine.size(),
          describe(local),
          call_name(static_cast<int>(their_tag / kTagBase)),
          their_tag % kTagBase);
    }
    std::copy_n(slot.values.begin(),
                mine.size(),
                all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * local);
  }
}

// The first message has one size in all calls, so that ranks that make different ones still
// understand each other; what does not fit follows once they are known to make the same.
void MpiGroup::gather_across_hosts(int call, std::span<const double> mine, std::span<double> all) {
  const std::uint32_t number = begin_call(call);
  const std::size_t first = std::min(mine.size(), kFirstValues - 1);
  values_out_[0] = tag_of(call, mine.size());
  std::copy_n(mine.begin(), first, values_out_.begin() + 1);
  exchange_values(call, number, kFirstValues);
  for (int other = 0; other < size(); ++other) {
    const double* theirs = &values_in_[static_cast<std::size_t>(other) * kFirstValues];
    if (theirs[0] != values_out_[0]) {
      fail_order(number, call, other, static_cast<int>(theirs[0] / kTagBase));
    }
    std::copy_n(theirs + 1, first, all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * other);
  }
  const std::size_t rest = mine.size() - first;
  if (rest == 0) {
    return;
  }
  std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(first), rest, values_out_.begin());
  exchange_values(call, number, rest);
  for (int other = 0; other < size(); ++other) {
    std::copy_n(&values_in_[static_cast<std::size_t>(other) * rest],
                rest,
                all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * other +
                    static_cast<std::ptrdiff_t>(first));
  }
}

void MpiGroup::exchange_values(int call, std::uint32_t call_number, std::size_t width) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_call(MPI_Iallgather(values_out_.data(),
                          static_cast<int>(width),
                          MPI_DOUBLE,
                          values_in_.data(),
                          static_cast<int>(width),
                          MPI_DOUBLE,
                          comm_,
                          &request),
           "MPI_Iallgather");
  wait_request(call, call_number, request);
}

}  // namespace lockstep

#include "training/rank_work.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kTensor = 2;
constexpr std::size_t kWorld = 3;

// Kinds that are no operations: only the world's are called in steps.
bool is_control(std::size_t kind) {
  return kind == static_cast<std::size_t>(TrafficKind::kValues) ||
         kind == static_cast<std::size_t>(TrafficKind::kBroadcast);
}

// Calls change(number of work, number of other) for all numbers.
template <typename Change>
void update(RankWork& work, const RankWork& other, Change change) {
  change(work.operations, other.operations);
  for (std::size_t group = 0; group < work.groups.size(); ++group) {
    for (std::size_t kind = 0; kind < kNumTrafficKinds; ++kind) {
      WorkCount& count = work.groups[group].kinds[kind];
      const WorkCount& with = other.groups[group].kinds[kind];
      change(count.calls, with.calls);
      change(count.bytes, with.bytes);
    }
  }
}

}  // namespace

double GroupWork::bytes() const {
  double sum = 0;
  for (const WorkCount& kind : kinds) {
    sum += kind.bytes;
  }
  return sum;
}

bool GroupWork::any() const {
  return std::any_of(
      kinds.begin(), kinds.end(), [](const WorkCount& kind) { return kind.calls > 0; });
}

double RankWork::bytes_sent() const {
  double sum = 0;
  for (const GroupWork& group : groups) {
    sum += group.bytes();
  }
  return sum;
}

RankWork& RankWork::operator+=(const RankWork& other) {
  update(*this, other, [](double& sum, double number) { sum += number; });
  return *this;
}

RankWork& RankWork::operator-=(const RankWork& other) {
  update(*this, other, [](double& difference, double number) { difference -= number; });
  return *this;
}

RankWork& RankWork::operator/=(double divisor) {
  update(*this, *this, [divisor](double& quotient, double /*same*/) { quotient /= divisor; });
  return *this;
}

std::string RankWork::text() const {
  std::string all;
  for (const GroupWork& group : groups) {
    if (!group.any()) {
      continue;
    }
    all += fmt::format("{}{}:", all.empty() ? "" : "; ", group.name);
    const char* before = " ";
    for (std::size_t kind = 0; kind < kNumTrafficKinds; ++kind) {
      const WorkCount& count = group.kinds[kind];
      if (count.calls > 0) {
        all += fmt::format("{}{} {:.0f} calls, {:.0f} bytes",
                           before,
                           name_of(static_cast<TrafficKind>(kind)),
                           count.calls,
                           count.bytes);
        before = ", ";
      }
    }
  }
  return all;
}

RankWork WorkMeter::total() const {
  RankWork sum = done_;
  if (begin_) {
    sum += read();
    sum -= *begin_;
  }
  return sum;
}

RankWork WorkMeter::read() const {
  RankWork work;
  work.operations = queue_->operations();
  const Communicator* const sharing = mesh_->sharing();
  const std::array<const Communicator*, 5> groups{
      &mesh_->data(), &mesh_->pipeline(), &mesh_->tensor(), &mesh_->world(), mesh_->weights()};
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (groups[group] == nullptr || groups[group]->size() == 1) {
      continue;
    }
    const bool is_axis = group != kWorld;
    const bool is_both = std::count(groups.begin(), groups.end(), groups[kWorld]) > 1 &&
                         groups[group] == groups[kWorld];
    const auto counts = groups[group]->traffic();
    for (std::size_t kind = 0; kind < kNumTrafficKinds; ++kind) {
      if (!is_both || is_control(kind) != is_axis) {
        work.groups[group].kinds[kind] = {static_cast<double>(counts[kind].calls),
                                          counts[kind].bytes};
      }
    }
  }
  if (sharing != nullptr && sharing != &mesh_->tensor()) {  // a part of the tensor group
    const auto counts = sharing->traffic();
    for (std::size_t kind = 0; kind < kNumTrafficKinds; ++kind) {
      work.groups[kTensor].kinds[kind].calls += static_cast<double>(counts[kind].calls);
      work.groups[kTensor].kinds[kind].bytes += counts[kind].bytes;
    }
  }
  return work;
}

}  // namespace lockstep

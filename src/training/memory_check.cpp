#include "training/memory_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/human.h"
#include "comm/accelerator.h"
#include "training/collectively.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostShown = 3;
constexpr std::size_t kMostSearched = 300;  // plans of a large model take some milliseconds each

std::string human(double bytes) {
  return human_bytes(static_cast<std::int64_t>(bytes));
}

// The host that is worst off, the same on all ranks.
struct HostNeed {
  double bytes = 0;
  double free = 0;  // 0: unknown

  [[nodiscard]] bool fits() const { return free == 0 || bytes <= free; }
  [[nodiscard]] double excess() const { return free == 0 ? -1 : bytes - free; }
};

// Of the memory that is looked at: the GPU's, or the host's.
std::size_t need_of(const MemoryPlan& plan, const RunOutline& outline) {
  return outline.device == DeviceKind::kCuda ? plan.device() : plan.total();
}

// Of hosts, or of GPUs, of which each rank has one. Collective.
HostNeed find_need(std::size_t mine, std::size_t free_bytes, bool each_rank, Communicator& group) {
  const double own[] = {static_cast<double>(mine), static_cast<double>(free_bytes)};
  std::vector<double> all(2 * static_cast<std::size_t>(group.size()));
  group.all_gather(own, all);
  std::map<int, HostNeed> hosts;
  for (std::size_t rank = 0; rank < group.host_of().size(); ++rank) {
    const auto [host, is_new] =
        hosts.try_emplace(each_rank ? static_cast<int>(rank) : group.host_of()[rank]);
    host->second.bytes += all[2 * rank];
    // Its ranks may have looked at different times.
    const double free = all[2 * rank + 1];
    host->second.free = is_new ? free : std::min(host->second.free, free);
  }
  return std::max_element(
             hosts.begin(),
             hosts.end(),
             [](const auto& a, const auto& b) { return a.second.excess() < b.second.excess(); })
      ->second;
}

// The bubble of a pipeline, as a part of the rest of a step.
double bubble_of(const TrainingConfig& config, const MeshShape& mesh) {
  const double chunks = mesh.pipeline > 1 ? static_cast<double>(config.parallel.virtual_stages) : 1;
  const long all = num_micro_batches(config.train.global_batch_size, config.train.micro_batch_size);
  return (mesh.pipeline - 1) /
         (chunks * static_cast<double>(ceil_div(all, static_cast<long>(mesh.data))));
}

void add(MemoryChange& change, const std::string& text, double cost) {
  change.text += (change.text.empty() ? "" : ", ") + text;
  change.cost += cost;
}

// The kinds of changes, each to an extent of at least 1.
void write_synchronously(MemoryChange& change) {
  change.config.checkpoint.async_write = false;
  add(change, "checkpoint.async = false", 0.001);
}

double cost_of_stage(long zero_stage) {
  constexpr double kCosts[] = {0, 0.01, 0.02, 0.1};
  return kCosts[zero_stage];
}

void shard(MemoryChange& change, int extent) {
  long& stage = change.config.parallel.zero_stage;
  const double before = cost_of_stage(stage);
  stage += extent;
  add(change, fmt::format("parallel.zero_stage = {}", stage), cost_of_stage(stage) - before);
}

void reduce_every_round(MemoryChange& change) {
  change.config.parallel.accumulate = "tree-fold";
  add(change, "parallel.accumulate = \"tree-fold\"", 0.02);
}

double cost_of(Recompute what) {
  return what == Recompute::kFull ? 0.33 : what == Recompute::kSelective ? 0.05 : 0;
}

// How many kinds of recomputation keep less than `now`.
int further(Recompute now) {
  return static_cast<int>(Recompute::kFull) - static_cast<int>(now);
}

void recompute(MemoryChange& change, Recompute now, int extent) {
  const auto next = static_cast<Recompute>(static_cast<int>(now) + extent);
  change.config.train.recompute = next == Recompute::kFull ? "full" : "selective";
  add(change,
      fmt::format("train.recompute = \"{}\"", change.config.train.recompute),
      cost_of(next) - cost_of(now));
}

unsigned long micro_of(const TrainingConfig& config) {
  return static_cast<unsigned long>(config.train.micro_batch_size);
}

void halve(MemoryChange& change, int times) {
  long& size = change.config.train.micro_batch_size;
  size >>= static_cast<unsigned>(times);
  add(change, fmt::format("train.micro_batch_size = {}", size), 0.03 * times);
}

void reshape(MemoryChange& change, const MeshShape& mesh) {
  ParallelConfig& parallel = change.config.parallel;
  const bool wider = mesh.tensor > change.mesh.tensor;
  add(change,
      wider ? fmt::format("parallel.tensor = {}", mesh.tensor)
            : fmt::format("parallel.pipeline = {}", mesh.pipeline),
      wider ? 0.1 * std::log2(mesh.tensor / change.mesh.tensor) : 0);
  if (parallel.data > 0) {
    parallel.data = mesh.data;
    add(change, fmt::format("parallel.data = {}", mesh.data), 0);
  }
  parallel.tensor = mesh.tensor;
  parallel.pipeline = mesh.pipeline;
  change.mesh = mesh;
}

// The present mesh and those that are wider or deeper.
std::vector<MeshShape> meshes_of(const MeshShape& now) {
  std::vector<MeshShape> meshes{now};
  for (int factor = 2; factor <= now.data; ++factor) {
    if (now.data % factor == 0) {
      meshes.push_back({now.data / factor, now.pipeline, now.tensor * factor});
      meshes.push_back({now.data / factor, now.pipeline * factor, now.tensor});
    }
  }
  return meshes;
}

// Joins every change so far with a further kind of change: most(change) says how far it can go, and
// make(change, extent) makes it.
template <typename Most, typename Make>
void extend(std::vector<MemoryChange>& changes, Most most, Make make) {
  std::vector<MemoryChange> joined;
  for (const MemoryChange& change : changes) {
    for (int extent = 0; extent <= most(change); ++extent) {
      MemoryChange& next = joined.emplace_back(change);
      next.extent.push_back(extent);
      if (extent > 0) {
        make(next, extent);
      }
    }
  }
  changes = std::move(joined);
}

std::vector<MemoryChange> changes_of_mesh(const RunOutline& outline) {
  std::vector<MemoryChange> changes;
  for (const MeshShape& mesh : meshes_of(outline.mesh)) {
    MemoryChange& change =
        changes.emplace_back(MemoryChange{.config = outline.config,
                                          .mesh = outline.mesh,
                                          .extent = {mesh.tensor / outline.mesh.tensor - 1,
                                                     mesh.pipeline / outline.mesh.pipeline - 1}});
    if (mesh.data != outline.mesh.data) {
      reshape(change, mesh);
    }
  }
  return changes;
}

// What a rank of the data group sums up before its gradients are reduced; see GradientReducer.
enum class SummedUp { kOneMicroBatch, kOneVirtualRank, kMore };

SummedUp summed_up(const RunOutline& outline, const MemoryChange& change) {
  bool raised = false;
  const long virtual_ranks =
      choose_virtual_degree(outline.wanted_virtual_data, change.mesh.data, raised);
  if (virtual_ranks > change.mesh.data) {
    return SummedUp::kMore;
  }
  const TrainConfig& train = change.config.train;
  const long samples = train.epochs > 0
                           ? std::min(train.global_batch_size, outline.data.num_samples)
                           : train.global_batch_size;
  return change.config.parallel.accumulate == "tree-fold" ||
                 num_micro_batches(samples, train.micro_batch_size) <= virtual_ranks
             ? SummedUp::kOneMicroBatch
             : SummedUp::kOneVirtualRank;
}

// Stage 2 without memory of gradients a unit at a time is as large as stage 1.
bool shards_in_vain(const RunOutline& outline, const MemoryChange& change) {
  return change.config.parallel.zero_stage == 2 && outline.config.parallel.zero_stage < 2 &&
         summed_up(outline, change) != SummedUp::kOneMicroBatch;
}

// Plans changes until enough are found that fit.
class Advisor {
 public:
  Advisor(const RunOutline& outline, std::size_t free_bytes, Communicator& group)
      : outline_(outline), free_bytes_(free_bytes), group_(group) {}

  // Collective.
  std::string advise() {
    const std::vector<MemoryChange> changes = memory_changes(outline_);
    sort_into_families(changes);
    for (const MemoryChange& change : changes) {
      if (found_.size() == kMostShown || planned_.size() >= kMostSearched) {
        break;
      }
      const auto included = [&](const MemoryChange& other) { return change.includes(other); };
      if (outline_with(outline_, change) && std::none_of(found_.begin(), found_.end(), included) &&
          is_hopeful(change)) {
        try_out(change);
      }
    }
    for (const MemoryChange& change : changes) {  // where the search went on for too long
      if (found_.empty() && planned_.count(&change) > 0) {
        try_out(change);
      }
    }
    return found_.empty() ? no_advice() : lines_;
  }

 private:
  // Changes with the same mesh and the same extent of one kind. None of them fits if the one that goes
  // furthest in all other kinds does not.
  using Family =
      std::tuple<int, int, std::size_t, int>;  // pipeline and tensor degree, kind, extent

  static std::vector<Family> families_of(const MemoryChange& change) {
    std::vector<Family> families;
    families.reserve(change.extent.size());
    for (std::size_t kind = 0; kind < change.extent.size(); ++kind) {
      families.emplace_back(change.mesh.pipeline, change.mesh.tensor, kind, change.extent[kind]);
    }
    return families;
  }

  void sort_into_families(const std::vector<MemoryChange>& changes) {
    for (const MemoryChange& change : changes) {
      if (!outline_with(outline_, change)) {
        continue;
      }
      for (const Family& family : families_of(change)) {
        const MemoryChange*& furthest = furthest_[family];
        if (furthest == nullptr || change.includes(*furthest)) {
          furthest = &change;
        }
      }
    }
  }

  // The first kind is one of meshes: a family is then all changes of the mesh. Collective.
  bool is_hopeful(const MemoryChange& change) {
    const std::vector<Family> families = families_of(change);
    return std::all_of(families.begin(), families.end(), [this](const Family& family) {
      return plan(*furthest_.at(family)).need.fits();
    });
  }

  struct Outcome {
    HostNeed need;
    bool other_bits = false;
  };

  // Plans a change that model and schedule allow, once. Collective.
  const Outcome& plan(const MemoryChange& change) {
    const auto [known, is_new] = planned_.try_emplace(&change);
    Outcome& outcome = known->second;
    if (!is_new) {
      return outcome;
    }
    std::size_t mine = 0;
    collectively(group_, [&] {
      const RunOutline changed = outline_with(outline_, change).value();
      mine = need_of(RunPlanner(changed, parts_of(changed)).plan(group_.rank()).memory, changed);
      outcome.other_bits =
          changed.config.train.micro_batch_size != outline_.config.train.micro_batch_size ||
          changed.config.parallel.accumulate != outline_.config.parallel.accumulate ||
          changed.virtual_data != outline_.virtual_data ||
          changed.virtual_tensor != outline_.virtual_tensor;
    });
    outcome.need = find_need(mine, free_bytes_, outline_.device == DeviceKind::kCuda, group_);
    if (!outcome.need.fits() && (smallest_.empty() || outcome.need.excess() < smallest_excess_)) {
      smallest_excess_ = outcome.need.excess();
      smallest_ = fmt::format("{}, still {}", change.text, human(outcome.need.bytes));
    }
    return outcome;
  }

  void try_out(const MemoryChange& change) {
    const Outcome& outcome = plan(change);
    if (outcome.need.fits()) {
      found_.push_back(change);
      lines_ += fmt::format("{}({}) {}: {}{}",
                            found_.size() > 1 ? "; " : "",
                            found_.size(),
                            change.text,
                            human(outcome.need.bytes),
                            outcome.other_bits ? ", other bits" : "");
    }
  }

  [[nodiscard]] std::string no_advice() const {
    const std::string tried =
        smallest_.empty() ? "" : fmt::format(" (the most that helps is {})", smallest_);
    return fmt::format("none{}: use more hosts or a smaller model", tried);
  }

  // Other settings than these leave the parts as they are.
  const ModelParts& parts_of(const RunOutline& outline) {
    auto& parts =
        parts_[{outline.mesh.pipeline, outline.mesh.tensor, outline.config.parallel.zero_stage}];
    if (!parts) {
      parts = make_parts(outline);
    }
    return *parts;
  }

  const RunOutline& outline_;
  std::size_t free_bytes_;
  Communicator& group_;
  std::map<std::tuple<int, int, long>, std::unique_ptr<ModelParts>> parts_;
  std::map<Family, const MemoryChange*> furthest_;
  std::map<const MemoryChange*, Outcome> planned_;
  std::vector<MemoryChange> found_;
  std::string lines_;
  std::string smallest_;
  double smallest_excess_ = 0;
};

}  // namespace

bool MemoryChange::includes(const MemoryChange& other) const {
  return std::equal(extent.begin(), extent.end(), other.extent.begin(), std::greater_equal<>());
}

std::vector<MemoryChange> memory_changes(const RunOutline& outline) {
  const TrainingConfig& config = outline.config;
  const Recompute now = recompute_from(config.train.recompute);
  const bool can_recompute = outline.model.architecture != "mlp";
  std::vector<MemoryChange> changes = changes_of_mesh(outline);
  extend(
      changes,
      [&](const MemoryChange&) { return config.checkpoint.async_write ? 1 : 0; },
      [](MemoryChange& change, int) { write_synchronously(change); });
  extend(
      changes,
      [&](const MemoryChange& change) {
        return change.mesh.data > 1 ? 3 - static_cast<int>(config.parallel.zero_stage) : 0;
      },
      [](MemoryChange& change, int extent) { shard(change, extent); });
  extend(
      changes,
      [&](const MemoryChange&) { return can_recompute ? further(now) : 0; },
      [&](MemoryChange& change, int extent) { recompute(change, now, extent); });
  extend(
      changes,
      [&](const MemoryChange&) { return static_cast<int>(std::bit_width(micro_of(config))) - 1; },
      [](MemoryChange& change, int extent) { halve(change, extent); });
  extend(
      changes,
      [&](const MemoryChange& change) {
        return change.mesh.data > 1 && change.config.parallel.zero_stage > 1 &&
                       summed_up(outline, change) == SummedUp::kOneVirtualRank
                   ? 1
                   : 0;
      },
      [](MemoryChange& change, int) { reduce_every_round(change); });
  const double bubble = bubble_of(config, outline.mesh);
  for (MemoryChange& change : changes) {
    change.cost += std::max(0.0, bubble_of(change.config, change.mesh) - bubble);
  }
  changes.erase(changes.begin());  // the one that changes nothing
  std::erase_if(changes,
                [&](const MemoryChange& change) { return shards_in_vain(outline, change); });
  std::stable_sort(
      changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; });
  return changes;
}

std::optional<RunOutline> outline_with(const RunOutline& outline, const MemoryChange& change) {
  RunOutline changed = outline;
  changed.config = change.config;
  try {
    set_mesh(changed, choose_mesh(change.config.parallel, outline.model, outline.mesh.num_ranks()));
    // Throws where the schedule does not go with the mesh.
    make_schedule(schedule_kind(change.config.parallel.schedule),
                  changed.mesh.pipeline,
                  change.config.parallel.virtual_stages,
                  1);
    if (change.config.train.recompute == "full" &&
        splits_backward(change.config.parallel, changed.mesh)) {
      return std::nullopt;
    }
  } catch (const RequestError&) {
    return std::nullopt;
  }
  return changed;
}

void check_memory_fits(const RunOutline& outline,
                       const MemoryPlan& mine,
                       Communicator& group,
                       Queue& queue) {
  if (queue.kind() == DeviceKind::kDry) {
    return;
  }
  const bool on_gpu = queue.kind() == DeviceKind::kCuda;
  const std::size_t free_bytes =
      on_gpu ? accelerator()->free_bytes(queue) : available_host_memory();
  const HostNeed need = find_need(need_of(mine, outline), free_bytes, on_gpu, group);
  if (need.fits()) {
    return;
  }
  const std::string advice = Advisor(outline, free_bytes, group).advise();
  collectively(group, [&] {
    throw_request_error(
        "{} need{} {} of memory, {} are free (rank {}: {}). Cheapest changes that fit: {}",
        on_gpu ? "a rank" : "the ranks of a host",
        on_gpu ? "s" : "",
        human(need.bytes),
        human(need.free),
        group.rank(),
        mine.text(),
        advice);
  });
}

}  // namespace lockstep

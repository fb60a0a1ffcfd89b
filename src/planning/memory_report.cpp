#include "planning/memory_report.h"

#include <algorithm>
#include <map>

#include "parallel/layer_split.h"

namespace lockstep {
namespace {

std::vector<StageContents> contents_of(const RunOutline& outline) {
  const int stages = outline.mesh.pipeline;
  std::vector<StageContents> contents(static_cast<std::size_t>(stages));
  if (stages == 1) {
    const bool is_mlp = outline.model.architecture == "mlp";
    const long layers =
        is_mlp ? static_cast<long>(outline.model.layer_sizes.size()) - 1 : outline.model.num_layers;
    contents.front() = {.layers = {{0, layers}}, .embeds = !is_mlp, .has_head = !is_mlp};
    return contents;
  }
  const auto chunks = static_cast<int>(outline.config.parallel.virtual_stages);
  const std::vector<ModelPart> parts = split_model(outline.model, stages * chunks);
  for (std::size_t stage = 0; stage < parts.size(); ++stage) {
    StageContents& own = contents[stage % contents.size()];
    own.layers.push_back({parts[stage].first_layer, parts[stage].end_layer});
    own.embeds = own.embeds || parts[stage].embeds;
    own.has_head = own.has_head || parts[stage].has_head;
  }
  return contents;
}

}  // namespace

MemoryReport report_memory(const RunOutline& outline) {
  const std::unique_ptr<ModelParts> parts = make_parts(outline);
  RunPlanner planner(outline, *parts);
  MemoryReport report;
  report.num_parameters = parts->whole().num_elements();
  for (StageContents& contents : contents_of(outline)) {
    report.stages.push_back({.contents = std::move(contents)});
  }
  std::map<long, std::size_t> hosts;
  for (int rank = 0; rank < outline.mesh.num_ranks(); ++rank) {
    const RankMemory own{rank, planner.plan(rank).memory};
    const std::size_t total = own.memory.total();
    const MeshPosition at = position_of(outline.mesh, rank);
    StageMemory& stage = report.stages[static_cast<std::size_t>(at.pipeline)];
    if (at.data == 0 && at.tensor == 0) {
      stage.first = own;
    } else if (!stage.largest || total > stage.largest->memory.total()) {
      stage.largest = own;
    }
    if (rank == 0 || total > report.largest.memory.total()) {
      report.largest = own;
    }
    hosts[outline.host_of[static_cast<std::size_t>(rank)]] += total;
  }
  for (StageMemory& stage : report.stages) {
    if (stage.largest && stage.largest->memory.total() == stage.first.memory.total()) {
      stage.largest.reset();
    }
  }
  const auto fullest = std::max_element(
      hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  report.num_hosts = static_cast<long>(hosts.size());
  report.largest_host = fullest->first;
  report.largest_host_bytes = fullest->second;
  return report;
}

}  // namespace lockstep

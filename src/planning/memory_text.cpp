#include "planning/memory_text.h"

#include <algorithm>
#include <bit>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "base/human.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string human(std::size_t bytes) {
  return human_bytes(static_cast<std::int64_t>(bytes));
}

// "12345678" as "12,345,678".
std::string with_commas(std::size_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

// "embedding, 0-9, head"
std::string text_of(const StageContents& contents) {
  std::vector<std::string> words;
  if (contents.embeds) {
    words.emplace_back("embedding");
  }
  for (const IndexRange& run : contents.layers) {
    words.push_back(run.size() == 1 ? fmt::format("{}", run.begin)
                                    : fmt::format("{}-{}", run.begin, run.end - 1));
  }
  if (contents.has_head) {
    words.emplace_back("head");
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

Row row_of(const RankMemory& own, const RunOutline& outline) {
  const MeshPosition at = position_of(outline.mesh, own.rank);
  Row row{fmt::format("{}", at.pipeline),
          fmt::format("{}", own.rank),
          fmt::format("{}", at.data),
          fmt::format("{}", at.tensor)};
  for (const MemoryPlan::Kind& kind : own.memory.kinds()) {
    row.push_back(kind.bytes > 0 ? human(kind.bytes) : "-");
  }
  row.push_back(with_commas(own.memory.total()));
  return row;
}

// Columns are as wide as their widest word, and to the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    }
    text += "\n";
  }
  return text;
}

std::string table_of(const MemoryReport& report, const RunOutline& outline) {
  Row head{"stage", "rank", "data", "tensor"};
  for (const MemoryPlan::Kind& kind : MemoryPlan().kinds()) {
    head.emplace_back(kind.name);
  }
  head.emplace_back("total bytes");
  std::vector<Row> rows{head};
  for (const StageMemory& stage : report.stages) {
    rows.push_back(row_of(stage.first, outline));
    if (stage.largest) {
      rows.push_back(row_of(*stage.largest, outline));
    }
  }
  return aligned(rows);
}

std::string head_of(const MemoryReport& report, const PlanOutline& plan) {
  const RunOutline& run = plan.run;
  const TrainConfig& train = run.config.train;
  const long all = num_micro_batches(train.global_batch_size, train.micro_batch_size);
  std::string text = fmt::format(
      "model: {}, {} parameters, {}\n"
      "mesh: {} x data, {} x pipeline, {} x tensor: {} rank{} on {} host{}\n"
      "virtual layout: {} x data, {} x tensor; accumulators of gradients: {}\n"
      "a step: {} micro-batches of {}, {} a data rank at most\n",
      run.model.architecture,
      with_commas(static_cast<std::size_t>(report.num_parameters)),
      run.config.run.precision,
      run.mesh.data,
      run.mesh.pipeline,
      run.mesh.tensor,
      run.mesh.num_ranks(),
      run.mesh.num_ranks() == 1 ? "" : "s",
      report.num_hosts,
      report.num_hosts == 1 ? "" : "s",
      run.virtual_data,
      run.virtual_tensor,
      std::bit_width(static_cast<unsigned>(run.virtual_data / run.mesh.data)),
      all,
      train.micro_batch_size,
      ceil_div(all, static_cast<long>(run.mesh.data)));
  for (const std::string& line : plan.assumptions) {
    text += line + "\n";
  }
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
    text += fmt::format("stage {}: {}\n", stage, text_of(report.stages[stage].contents));
  }
  return text;
}

Json json_of(const RankMemory& own, const RunOutline& outline) {
  const MeshPosition at = position_of(outline.mesh, own.rank);
  Json json{
      {"rank", own.rank}, {"data", at.data}, {"pipeline", at.pipeline}, {"tensor", at.tensor}};
  for (const MemoryPlan::Kind& kind : own.memory.kinds()) {
    std::string name = kind.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    json[name] = kind.bytes;
  }
  json["total"] = own.memory.total();
  return json;
}

Json json_of(const StageMemory& stage, const RunOutline& outline) {
  Json layers = Json::array();
  for (const IndexRange& run : stage.contents.layers) {
    layers.push_back({run.begin, run.end});
  }
  Json ranks = Json::array({json_of(stage.first, outline)});
  if (stage.largest) {
    ranks.push_back(json_of(*stage.largest, outline));
  }
  return {{"embedding", stage.contents.embeds},
          {"layers", layers},
          {"head", stage.contents.has_head},
          {"ranks", ranks}};
}

}  // namespace

std::string text_of(const MemoryReport& report, const PlanOutline& plan) {
  return fmt::format(
      "{}\nof each stage the first rank, and the largest of the others where it differs\n{}\n"
      "largest rank: {}, {} bytes ({})\nlargest host: {}, {} bytes ({})\n",
      head_of(report, plan),
      table_of(report, plan.run),
      report.largest.rank,
      with_commas(report.largest.memory.total()),
      human(report.largest.memory.total()),
      report.largest_host,
      with_commas(report.largest_host_bytes),
      human(report.largest_host_bytes));
}

std::string json_of(const MemoryReport& report, const PlanOutline& plan) {
  const RunOutline& run = plan.run;
  Json stages = Json::array();
  for (const StageMemory& stage : report.stages) {
    stages.push_back(json_of(stage, run));
  }
  const Json json{
      {"parameters", report.num_parameters},
      {"mesh",
       {{"data", run.mesh.data}, {"pipeline", run.mesh.pipeline}, {"tensor", run.mesh.tensor}}},
      {"virtual_data", run.virtual_data},
      {"virtual_tensor", run.virtual_tensor},
      {"hosts", report.num_hosts},
      {"assumptions", plan.assumptions},
      {"stages", stages},
      {"largest_rank", json_of(report.largest, run)},
      {"largest_host", {{"host", report.largest_host}, {"total", report.largest_host_bytes}}}};
  return json.dump() + "\n";
}

}  // namespace lockstep

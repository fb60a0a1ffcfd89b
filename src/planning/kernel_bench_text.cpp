#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "base/human.h"
#include "nn/transformer_sizes.h"
#include "planning/kernel_bench.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kColumns = 7;
constexpr std::size_t kTextColumns = 3;  // to the left, the others to the right
using Row = std::array<std::string, kColumns>;

double rate(double amount, const KernelTiming& kernel) {
  return amount / kernel.timing.median_seconds;
}

// 0.0123, 1.23, 123.4: four digits, and none after the point that mean nothing.
std::string short_number(double value) {
  if (value >= 100) {
    return fmt::format("{:.1f}", value);
  }
  return value >= 1 ? fmt::format("{:.2f}", value) : fmt::format("{:.4f}", value);
}

Row row_of(const KernelTiming& kernel, const DeviceLimits& limits) {
  return {kernel.kernel,
          kernel.role,
          kernel.shape,
          short_number(kernel.timing.median_seconds * 1e6),
          short_number(rate(kernel.cost.bytes, kernel) * 1e-9),
          short_number(rate(kernel.cost.operations, kernel) * 1e-12),
          fmt::format("{:.1f} %", 100 * limits.fraction_of(kernel))};
}

std::string aligned(const std::vector<Row>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      text += i < kTextColumns ? fmt::format("{:<{}}  ", row[i], widths[i])
                               : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string model_text(const ModelConfig& model) {
  return fmt::format("{}, {} wide, {} heads ({} of keys) of {}, feed-forward {}, vocabulary {}",
                     model.architecture,
                     model.hidden_size,
                     model.num_heads,
                     model.num_kv_heads > 0 ? model.num_kv_heads : model.num_heads,
                     model.hidden_size / model.num_heads,
                     ffn_size_of(model),
                     model.vocab_size);
}

Json json_of(const KernelTiming& kernel, const DeviceLimits& limits) {
  return {{"kernel", kernel.kernel},
          {"role", kernel.role},
          {"shape", kernel.shape},
          {"median_seconds", kernel.timing.median_seconds},
          {"least_seconds", kernel.timing.least_seconds},
          {"most_seconds", kernel.timing.most_seconds},
          {"batches", kernel.timing.batches},
          {"launches", kernel.timing.launches},
          {"bytes", kernel.cost.bytes},
          {"operations", kernel.cost.operations},
          {"bytes_per_second", rate(kernel.cost.bytes, kernel)},
          {"operations_per_second", rate(kernel.cost.operations, kernel)},
          {"fraction_of_limit", limits.fraction_of(kernel)}};
}

}  // namespace

std::string text_of(const KernelBenchReport& report) {
  const DeviceLimits& limits = report.limits;
  std::string text = fmt::format(
      "device: {}\nmodel: {}\nmicro-batch: {} x {} tokens, {}\n"
      "limits, measured just now: a copy of {} at {} GB/s read and written, a product {} x {} x {} "
      "{} at "
      "{} TFLOP/s\n\n",
      report.device,
      model_text(report.config.model),
      report.config.batch,
      report.config.model.seq_length,
      name_of(report.config.dtype),
      human_bytes(static_cast<std::int64_t>(limits.copied_bytes)),
      short_number(limits.bytes_per_second * 1e-9),
      limits.product_size,
      limits.product_size,
      limits.product_size,
      name_of(limits.product_dtype),
      short_number(limits.operations_per_second * 1e-12));
  std::vector<Row> rows{{"kernel", "role", "shape", "us", "GB/s", "TFLOP/s", "of limit"}};
  rows.reserve(report.kernels.size() + 1);
  for (const KernelTiming& kernel : report.kernels) {
    rows.push_back(row_of(kernel, limits));
  }
  return text + aligned(rows) +
         "\nus: median of a launch. GB/s and TFLOP/s: the least bytes and operations of a kernel "
         "over that. "
         "Of limit: the time\nthat the copy would take for these bytes or the product for these "
         "operations, "
         "the longer one, over the median; what\nfits in a cache can pass 100 %.\n";
}

std::string json_of(const KernelBenchReport& report) {
  const ModelConfig& model = report.config.model;
  const DeviceLimits& limits = report.limits;
  Json kernels = Json::array();
  for (const KernelTiming& kernel : report.kernels) {
    kernels.push_back(json_of(kernel, limits));
  }
  const Json json{{"device", report.device},
                  {"model",
                   {{"architecture", model.architecture},
                    {"num_layers", model.num_layers},
                    {"hidden_size", model.hidden_size},
                    {"num_heads", model.num_heads},
                    {"num_kv_heads", model.num_kv_heads > 0 ? model.num_kv_heads : model.num_heads},
                    {"ffn_hidden_size", ffn_size_of(model)},
                    {"vocab_size", model.vocab_size},
                    {"seq_length", model.seq_length}}},
                  {"micro_batch_size", report.config.batch},
                  {"precision", name_of(report.config.dtype)},
                  {"limits",
                   {{"copied_bytes", limits.copied_bytes},
                    {"bytes_per_second", limits.bytes_per_second},
                    {"product_size", limits.product_size},
                    {"product_dtype", name_of(limits.product_dtype)},
                    {"operations_per_second", limits.operations_per_second}}},
                  {"kernels", kernels}};
  return json.dump() + "\n";
}

}  // namespace lockstep

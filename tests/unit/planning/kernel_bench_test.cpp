#include "planning/kernel_bench.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "device/cpu/cpu_queue.h"
#include "support/catch.h"

namespace lockstep {
namespace {

KernelBenchConfig tiny(const std::string& architecture, DType dtype) {
  KernelBenchConfig config;
  config.model.architecture = architecture;
  config.model.num_layers = 1;
  config.model.hidden_size = 48;
  config.model.num_heads = 4;
  config.model.num_kv_heads = architecture == "llama" ? 2 : 0;
  config.model.seq_length = 16;
  config.model.vocab_size = 101;
  config.batch = 2;
  config.dtype = dtype;
  config.most_elements = 3 * 4096;
  config.copied_bytes = 1U << 20U;
  config.product_size = 64;
  config.effort = {.kernel_seconds = 1e-3, .batch_seconds = 1e-4};
  return config;
}

// The names of all kernels, as their headers declare them.
std::set<std::string> declared_kernels() {
  const auto folder = std::filesystem::path(LOCKSTEP_ORACLE_DATA) / "../../../src/kernels";
  const std::regex name("kName = \"(\\w+)\"");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") {
      continue;
    }
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator found(text.begin(), text.end(), name), end; found != end; ++found) {
      names.insert((*found)[1]);
    }
  }
  return names;
}

void check_figures(const KernelBenchReport& report) {
  CHECK(report.limits.bytes_per_second > 1e7);
  CHECK(report.limits.operations_per_second > 1e6);
  std::set<std::string> rows;
  for (const KernelTiming& kernel : report.kernels) {
    INFO(kernel.kernel << ", " << kernel.role);
    CHECK(rows.insert(kernel.kernel + kernel.role).second);
    CHECK(kernel.cost.bytes > 0);
    CHECK(kernel.timing.launches >= 1);
    CHECK(kernel.timing.batches >= 3);
    CHECK(kernel.timing.least_seconds > 0);
    CHECK(kernel.timing.least_seconds <= kernel.timing.median_seconds);
    CHECK(kernel.timing.median_seconds <= kernel.timing.most_seconds);
    // How large it is says nothing here: the limits are measured on a machine that does other things, too.
    CHECK(report.limits.fraction_of(kernel) > 0);
    CHECK(std::isfinite(report.limits.fraction_of(kernel)));
  }
}

}  // namespace

TEST_CASE("every kernel is measured, in both families and both precisions") {
  CpuQueue queue(2);
  const std::set<std::string> declared = declared_kernels();
  REQUIRE(declared.size() >= 24);

  for (const char* architecture : {"gpt2", "llama"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(architecture << " " << name_of(dtype));
      const KernelBenchReport report = measure_kernels(queue, tiny(architecture, dtype));

      std::set<std::string> measured;
      for (const KernelTiming& kernel : report.kernels) {
        measured.insert(kernel.kernel);
      }
      CHECK(measured == declared);
      check_figures(report);
    }
  }
}

TEST_CASE("a limit is the longer one of the copy and the product") {
  DeviceLimits limits;
  limits.bytes_per_second = 100;
  limits.operations_per_second = 1000;
  KernelTiming kernel;
  kernel.timing.median_seconds = 8;
  kernel.cost = {.operations = 1000, .bytes = 400};

  CHECK(limits.least_seconds(kernel.cost) == 4.0);
  CHECK(limits.fraction_of(kernel) == 0.5);
  kernel.cost.operations = 6000;
  CHECK(limits.fraction_of(kernel) == 0.75);
}

TEST_CASE("the products of a step have its shapes in three forms") {
  CpuQueue queue(1);

  const KernelBenchReport report = measure_kernels(queue, tiny("llama", DType::kF32));

  std::set<std::string> products;
  for (const KernelTiming& kernel : report.kernels) {
    if (kernel.kernel == "matmul") {
      products.insert(kernel.role + ": " + kernel.shape);
    }
  }
  CHECK(products.size() == 15);
  for (const char* row : {"qkv, forward: 32 x 96 x 48 f32",
                          "qkv, input gradient: 32 x 48 x 96 f32",
                          "qkv, weight gradient: 96 x 48 x 32 f32",
                          "gate and up, forward: 32 x 256 x 48 f32",
                          "down, forward: 32 x 48 x 128 f32",
                          "head, weight gradient: 101 x 48 x 32 f32"}) {
    CHECK(products.contains(row));
  }
}

TEST_CASE("the table and the JSON have a row for each measurement") {
  CpuQueue queue(1);
  KernelBenchReport report = measure_kernels(queue, tiny("gpt2", DType::kBF16));
  report.device = "the processor";

  const std::string text = text_of(report);
  const auto json = nlohmann::json::parse(json_of(report));

  CHECK(text.find("device: the processor\n") == 0);
  for (const KernelTiming& kernel : report.kernels) {
    CHECK(text.find("\n" + kernel.kernel) != std::string::npos);
    CHECK(text.find(kernel.role) != std::string::npos);
  }
  CHECK(json["kernels"].size() == report.kernels.size());
  CHECK(json["precision"] == "bf16");
  CHECK(json["model"]["ffn_hidden_size"] == 192);
  CHECK(json["kernels"][0]["fraction_of_limit"].get<double>() > 0);
  CHECK(json["limits"]["product_size"] == 64);
}

TEST_CASE("sizes that do not go together are refused before anything is measured") {
  CpuQueue queue(1);
  KernelBenchConfig config = tiny("gpt2", DType::kF32);
  config.model.num_heads = 5;

  CHECK_THROWS_AS(measure_kernels(queue, config), RequestError);
  CHECK(queue.allocated_bytes() == 0);
}

}  // namespace lockstep

#include "base/error.h"
#include "cli/commands.h"
#include "cli/model_source.h"
#include "cli/rank_resources.h"
#include "cli/validate.h"
#include "comm/accelerator.h"
#include "device/cpu/thread_pool.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "planning/kernel_bench.h"
#include "training/rank_plan.h"

namespace lockstep {
namespace {

std::string describe(Queue& queue) {
  if (queue.kind() == DeviceKind::kCuda) {
    return accelerator()->describe(queue);
  }
  const int threads = queue.host_threads()->num_threads();
  return fmt::format("CPU, {} thread{}, {} kernels, {}",
                     threads,
                     threads == 1 ? "" : "s",
                     instruction_set_name(),
                     matmul_implementation_name());
}

// Sizes that the user did not set are those of `usual`, unless the model comes from a source.
void fill_in_model(Configuration& config, const ModelConfig& usual) {
  if (!config.model.init_from.empty()) {
    adopt_model_of_source(config);
    return;
  }
  ModelConfig& model = config.model;
  const auto fill_in = [&config](const char* key, auto& ours, const auto& theirs) {
    if (!config.is_set(key)) {
      ours = theirs;
    }
  };
  fill_in("model.num_layers", model.num_layers, usual.num_layers);
  fill_in("model.hidden_size", model.hidden_size, usual.hidden_size);
  fill_in("model.num_heads", model.num_heads, usual.num_heads);
  fill_in("model.seq_length", model.seq_length, usual.seq_length);
  if (model.vocab_size == 0) {
    model.vocab_size = usual.vocab_size;
  }
}

KernelBenchConfig bench_config(const Request& request, DeviceKind device) {
  Configuration config = request.config;
  KernelBenchConfig bench = usual_kernel_bench(device);
  fill_in_model(config, bench.model);
  if (config.model.architecture == "mlp") {
    throw_request_error("{}: bench kernels takes the sizes of a transformer; valid: gpt2 | llama",
                        describe_setting(config, "model.architecture"));
  }
  check_model(config);
  bench.model = config.model;
  if (config.is_set("train.micro_batch_size")) {
    bench.batch = config.train.micro_batch_size;
  }
  if (config.is_set("run.precision")) {
    bench.dtype = dtype_of(config.run);
  }
  return bench;
}

}  // namespace

int run_bench_kernels(const Request& request, MpiRuntime& runtime) {
  if (runtime.global_rank() != 0) {
    return 0;
  }
  const auto queue = start_lone_queue(request.config);
  KernelBenchReport report = measure_kernels(*queue, bench_config(request, queue->kind()));
  report.device = describe(*queue);
  fmt::print("{}", request.json ? json_of(report) : text_of(report));
  return 0;
}

}  // namespace lockstep

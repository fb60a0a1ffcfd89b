#include "training/memory_plan.h"

#include <fstream>
#include <utility>

#include "base/human.h"
#include "device/dry/dry_queue.h"

namespace lockstep {

std::size_t MemoryPlan::total() const {
  return parameters + compute + gradients + optimizer + activations + workspace + messages +
         batches + staging;
}

std::string MemoryPlan::text() const {
  const std::pair<const char*, std::size_t> kinds[] = {{"weights", parameters},
                                                       {"bf16 weights", compute},
                                                       {"gradients", gradients},
                                                       {"optimiser", optimizer},
                                                       {"activations", activations},
                                                       {"workspace", workspace},
                                                       {"messages", messages},
                                                       {"batches", batches},
                                                       {"checkpoint copy", staging}};
  std::string text;
  for (const auto& [name, bytes] : kinds) {
    if (bytes > 0) {
      text += (text.empty() ? "" : ", ") + std::string(name) + " " +
              human_bytes(static_cast<std::int64_t>(bytes));
    }
  }
  return text;
}

PassMemory measure_pass(Model& model,
                        DType dtype,
                        PassKind kind,
                        std::span<const long> batch_sizes) {
  DryQueue queue;
  ActivationStack stack(queue);
  const ParameterTable& table = model.parameters();
  const Memory weights =
      queue.allocate(static_cast<std::size_t>(table.flat_size()) * size_of(dtype));
  const Memory gradients =
      queue.allocate(static_cast<std::size_t>(table.gradient_size()) * sizeof(float));
  const Memory inputs = queue.allocate(64);  // an address; the dry device reads nothing
  const auto nothing = [](long) {};
  for (const bool accumulate : {false, true}) {
    Pass pass{.queue = queue,
              .stack = stack,
              .weights = Weights(table, weights.data(), dtype),
              .gradients = Gradients(table, gradients.as<float>()),
              .accumulate = accumulate,
              .gradients_ready = nothing};
    for (const long batch : batch_sizes) {
      const ModelInput input{
          batch, inputs.as<std::int32_t>(), inputs.as<float>(), inputs.as<std::int32_t>()};
      if (kind == PassKind::kEvaluate) {
        model.evaluate(pass, input);
        continue;
      }
      model.forward(pass, input);
      model.backward(pass, input, 1.0F);
    }
  }
  return {stack.peak_bytes(), queue.workspace_bytes()};
}

std::size_t available_host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes) {
    if (key == "MemAvailable:") {
      return kibibytes << 10U;
    }
    std::getline(file, unit);
  }
  return 0;
}

}  // namespace lockstep

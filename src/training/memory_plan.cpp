#include "training/memory_plan.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/human.h"
#include "comm/dry/dry_communicator.h"
#include "device/dry/dry_queue.h"

namespace lockstep {

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const Kind& kind : kinds()) {
    sum += kind.bytes;
  }
  return sum;
}

std::array<MemoryPlan::Kind, 11> MemoryPlan::kinds() const {
  return {{{"weights", parameters},
           {"bf16 weights", compute},
           {"gradients", gradients},
           {"optimiser", optimizer},
           {"activations", activations},
           {"workspace", workspace},
           {"messages", messages},
           {"tables and inputs", tables},
           {"batches", batches},
           {"results", results},
           {"checkpoint copy", staging}}};
}

std::string MemoryPlan::text() const {
  std::string text;
  for (const auto& [name, bytes] : kinds()) {
    if (bytes > 0) {
      text += (text.empty() ? "" : ", ") + std::string(name) + " " +
              human_bytes(static_cast<std::int64_t>(bytes));
    }
  }
  return text;
}

namespace {

// One chunk on the dry device.
class Measurement {
 public:
  Measurement(Model& model, const PassMeasure& measure, TensorGroup* tensor)
      : model_(model),
        measure_(measure),
        tensor_(tensor),
        queue_(measure.device),
        stack_(queue_),
        scratch_(queue_),
        address_(queue_.allocate(std::size_t{1} << 40U)) {}

  void run(bool accumulate, long batch) {
    const ParameterTable& table = model_.parameters();
    const auto nothing = [](long) {};
    const bool pipelined = measure_.boundary_cols > 0;
    const bool evaluates = measure_.kind == PassUse::kEvaluate;
    Pass pass{.queue = queue_,
              .stack = stack_,
              .weights = Weights(table, address_.data(), measure_.dtype),
              .gradients = Gradients(table, address_.as<float>()),
              .accumulate = accumulate,
              .gradients_ready = nothing,
              .tensor = tensor_,
              .recompute = evaluates ? Recompute::kFull : measure_.recompute,
              .scratch_stack = pipelined ? &scratch_ : nullptr,
              .loss = address_.as<double>()};
    if (!evaluates) {
      pass.place = TrainingPlace{};
    }
    if (pipelined) {
      const Matrix rows(
          address_.data(), measure_.dtype, batch * measure_.boundary_rows, measure_.boundary_cols);
      pass.boundary = {.input = rows, .output = rows, .gradient = rows};
    }
    const ModelInput input{
        batch, address_.as<std::int32_t>(), address_.as<float>(), address_.as<std::int32_t>()};
    if (evaluates) {
      model_.evaluate(pass, input);
      return;
    }
    model_.forward(pass, input);
    if (measure_.splits_backward) {
      pass.part = BackwardPart::kInput;
      pass.accumulate = false;
      model_.backward(pass, input, 1.0F);
      pass.part = BackwardPart::kWeight;
      pass.accumulate = accumulate;
    }
    model_.backward(pass, input, 1.0F);
  }

  [[nodiscard]] std::size_t kept() const { return stack_.peak_bytes(); }
  [[nodiscard]] std::size_t scratch() const { return scratch_.peak_bytes(); }
  [[nodiscard]] std::size_t workspace() const { return queue_.workspace_bytes(); }

 private:
  Model& model_;
  const PassMeasure& measure_;
  TensorGroup* tensor_;
  DryQueue queue_;
  ActivationStack stack_;
  ActivationStack scratch_;
  Memory address_;  ///< for weights, gradients and inputs: the dry device reads nothing
};

}  // namespace

void PassMemory::merge(const PassMemory& other) {
  for (std::size_t i = 0; i < stacks.kept.size(); ++i) {
    stacks.kept[i] = std::max(stacks.kept[i], other.stacks.kept[i]);
  }
  stacks.scratch = std::max(stacks.scratch, other.stacks.scratch);
  workspace = std::max(workspace, other.workspace);
  tensor.merge(other.tensor);
}

PassMemory measure_passes(const ModelChunks& chunks, const PassMeasure& measure) {
  const TensorSplit& split = chunks.front()->parameters().split();
  DryCommunicator group(split.rank, std::vector<long>(static_cast<std::size_t>(split.ranks)));
  const int sharing = measure.sharing_ranks;
  DryCommunicator sharing_group(split.rank % sharing,
                                std::vector<long>(static_cast<std::size_t>(sharing)));
  TensorGroup tensor(group, &sharing_group);
  PassMemory memory;
  for (const auto& chunk : chunks) {
    Measurement measurement(*chunk, measure, split.ranks > 1 ? &tensor : nullptr);
    for (const bool accumulate : {false, true}) {
      for (const long batch : measure.batch_sizes) {
        measurement.run(accumulate, batch);
      }
    }
    memory.stacks.kept.push_back(measurement.kept());
    memory.stacks.scratch = std::max(memory.stacks.scratch, measurement.scratch());
    memory.workspace = std::max(memory.workspace, measurement.workspace());
  }
  memory.tensor = tensor.sizes();
  return memory;
}

std::size_t available_host_memory() {
  if (const char* given = std::getenv("LOCKSTEP_TEST_FREE_MEMORY")) {
    return std::strtoull(given, nullptr, 10);
  }
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

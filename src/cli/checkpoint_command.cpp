#include <filesystem>

#include "base/error.h"
#include "base/human.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/run_state_json.h"
#include "cli/commands.h"
#include "device/cpu/cpu_queue.h"
#include "formats/safetensors.h"
#include "nn/model.h"
#include "parallel/model_state.h"

namespace lockstep {
namespace {

void inspect(const std::string& source) {
  const CheckpointLocation found = locate_checkpoint(source);
  fmt::print("{}\n{}", found.path, to_json_text(found.state));
  long total = 0;
  for (const char* name : {"model-00000.safetensors", "optimizer-00000.safetensors"}) {
    const SafetensorsFile file(found.path + "/" + name);
    fmt::print("{}:\n", name);
    for (const auto& [tensor_name, tensor] : file.tensors()) {
      fmt::print(
          "  {:<44} {} [{}]\n", tensor_name, name_of(tensor.dtype), fmt::join(tensor.shape, " x "));
      total += static_cast<long>(tensor.bytes.size());
    }
  }
  fmt::print("{} of tensors\n", human_bytes(total));
}

void verify(const std::string& source) {
  const CheckpointLocation found = locate_checkpoint(source);  // reads and checks every byte
  fmt::print("{}: complete, every file has the bytes that were written\n", found.path);
}

void export_source(const std::string& source, const std::string& destination) {
  const CheckpointLocation found = locate_checkpoint(source);
  CpuQueue queue(1);
  const auto model = make_model(found.state.model, DType::kF32, 1);
  // SGD without momentum has no state: only weights are read.
  ModelState state(model->parameters(), DType::kF32, {.name = "sgd"}, queue);
  load_checkpoint(found.path, state.view(), true);
  export_hugging_face(model->parameters(), state.master(), found.state.model, destination);
  fmt::print(
      "{}: Hugging Face folder of {} at step {}\n", destination, found.path, found.state.step);
}

}  // namespace

int run_checkpoint(const Request& request, MpiRuntime& runtime) {
  if (runtime.global_rank() != 0) {
    return 0;
  }
  const auto& arguments = request.arguments;
  switch (request.command) {
    case Command::kCheckpointInspect:
      inspect(arguments.at(0));
      return 0;
    case Command::kCheckpointVerify:
      verify(arguments.at(0));
      return 0;
    case Command::kCheckpointExport:
      export_source(arguments.at(0), arguments.at(1));
      return 0;
    default:
      LOCKSTEP_CHECK(false);
  }
  return 0;
}

}  // namespace lockstep

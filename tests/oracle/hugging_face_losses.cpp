// What hugging_face_logits.py compares with transformers: loads a Hugging Face folder, prints the
// loss of every target on a line of its own, and exports the model again.
// Usage: hugging_face_losses FOLDER TOKENS BLOCKS EXPORT. TOKENS is a text file with ids; the
// context is one less than their number. BLOCKS is the virtual tensor degree.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint/hugging_face.h"
#include "device/cpu/cpu_queue.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "tensor/activation_stack.h"

namespace lockstep {
namespace {

void run(const std::string& folder,
         const std::vector<std::int32_t>& tokens,
         int blocks,
         const std::string& destination) {
  ModelConfig config = read_hugging_face_config(folder);
  config.seq_length = static_cast<long>(tokens.size()) - 1;
  const auto model = make_model(config, DType::kF32, blocks);
  CpuQueue queue(2);
  ModelState state(model->parameters(), DType::kF32, {.name = "sgd"}, queue);
  load_hugging_face(folder, config, state.view());

  constexpr std::size_t kStackBytes = 1U << 28U;
  ActivationStack stack(queue, kStackBytes);
  const auto ignore = [](long) {};
  double sum = 0;
  Pass pass{.queue = queue,
            .stack = stack,
            .weights = state.weights(),
            .gradients = Gradients(model->parameters(), nullptr),
            .gradients_ready = ignore,
            .loss = &sum};
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    std::vector<std::int32_t> targets(tokens.size() - 1, -1);
    targets[i] = tokens[i + 1];
    model->evaluate(pass, {.batch = 1, .tokens = tokens.data(), .targets = targets.data()});
    std::printf("%.17g\n", sum);
  }
  export_hugging_face(model->parameters(), state.master(), config, destination);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s FOLDER TOKENS BLOCKS EXPORT\n", argv[0]);
    return 2;
  }
  try {
    std::ifstream file(argv[2]);
    const std::vector<std::int32_t> tokens{std::istream_iterator<std::int32_t>(file), {}};
    lockstep::run(argv[1], tokens, std::stoi(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

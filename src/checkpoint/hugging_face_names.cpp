#include "checkpoint/hugging_face_names.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

struct Rename {
  std::string_view ours;
  std::string_view theirs;
};

// Without the layer in front and ".weight" or ".bias" behind.
constexpr std::array kGpt2Modules{Rename{"embedding", "wte"},
                                  Rename{"positions", "wpe"},
                                  Rename{"norm_1", "ln_1"},
                                  Rename{"attention.qkv", "attn.c_attn"},
                                  Rename{"attention.projection", "attn.c_proj"},
                                  Rename{"norm_2", "ln_2"},
                                  Rename{"ffn.up", "mlp.c_fc"},
                                  Rename{"ffn.down", "mlp.c_proj"},
                                  Rename{"norm", "ln_f"}};
constexpr std::array kLlamaModules{Rename{"embedding", "embed_tokens"},
                                   Rename{"norm_1", "input_layernorm"},
                                   Rename{"attention.projection", "self_attn.o_proj"},
                                   Rename{"norm_2", "post_attention_layernorm"},
                                   Rename{"ffn.down", "mlp.down_proj"},
                                   Rename{"norm", "norm"}};
constexpr std::array<std::string_view, 3> kQkv{
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
constexpr std::array<std::string_view, 2> kGateUp{"mlp.gate_proj", "mlp.up_proj"};

constexpr std::string_view kLayers = "layers.";

// "layers.3.norm_1.weight" as {"layers.3.", "norm_1", ".weight"}.
struct NameParts {
  std::string_view layer;
  std::string_view module;
  std::string_view kind;
};

NameParts parts_of(std::string_view name) {
  NameParts parts;
  if (name.starts_with(kLayers)) {
    const std::size_t end = name.find('.', kLayers.size()) + 1;
    parts.layer = name.substr(0, end);
    name.remove_prefix(end);
  }
  const std::size_t dot = name.rfind('.');
  parts.module = name.substr(0, dot);
  parts.kind = name.substr(dot);
  return parts;
}

template <std::size_t kCount>
std::string_view renamed(const std::array<Rename, kCount>& modules, std::string_view module) {
  for (const Rename& rename : modules) {
    if (rename.ours == module) {
      return rename.theirs;
    }
  }
  LOCKSTEP_CHECK(false);
  return {};
}

HuggingFaceTensor gpt2_tensor(const Parameter& parameter, const NameParts& parts) {
  HuggingFaceTensor tensor;
  tensor.name = "transformer.";
  if (!parts.layer.empty()) {
    tensor.name += "h.";
    tensor.name += parts.layer.substr(kLayers.size());
  }
  tensor.name += renamed(kGpt2Modules, parts.module);
  tensor.name += parts.kind;
  tensor.shape = parameter.shape;
  tensor.first_rows = parts.module == "positions";
  tensor.transposed = !parts.layer.empty() && parameter.shape.size() == 2;
  if (tensor.transposed) {
    std::swap(tensor.shape[0], tensor.shape[1]);
  }
  return tensor;
}

// One tensor a part of a fused weight.
template <std::size_t kCount>
void add_llama_parts(std::vector<HuggingFaceTensor>& tensors,
                     const Parameter& parameter,
                     const NameParts& parts,
                     const std::array<std::string_view, kCount>& modules) {
  LOCKSTEP_CHECK(parameter.parts.size() == kCount);
  long row = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    HuggingFaceTensor tensor;
    tensor.name = fmt::format("model.{}{}{}", parts.layer, modules[i], parts.kind);
    tensor.first_row = row;
    tensor.shape = {parameter.parts[i].size, parameter.cols()};
    row += parameter.parts[i].size;
    tensors.push_back(std::move(tensor));
  }
}

void add_llama_tensors(std::vector<HuggingFaceTensor>& tensors,
                       const Parameter& parameter,
                       const NameParts& parts) {
  if (parts.module == "attention.qkv") {
    add_llama_parts(tensors, parameter, parts, kQkv);
    return;
  }
  if (parts.module == "ffn.gate_up") {
    add_llama_parts(tensors, parameter, parts, kGateUp);
    return;
  }
  HuggingFaceTensor tensor;
  tensor.name =
      fmt::format("model.{}{}{}", parts.layer, renamed(kLlamaModules, parts.module), parts.kind);
  tensor.shape = parameter.shape;
  tensors.push_back(std::move(tensor));
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config,
                                                    const ParameterTable& table) {
  const bool gpt2 = config.architecture == "gpt2";
  if (!gpt2 && config.architecture != "llama") {
    throw_request_error(
        "model.architecture = \"{}\": Hugging Face folders hold gpt2 and llama models only",
        config.architecture);
  }
  if (gpt2 && config.num_kv_heads > 0 && config.num_kv_heads != config.num_heads) {
    throw_request_error(
        "model.num_kv_heads = {}: Hugging Face's GPT-2 has as many as heads, here {}",
        config.num_kv_heads,
        config.num_heads);
  }
  std::vector<HuggingFaceTensor> tensors;
  for (std::size_t index = 0; index < table.parameters().size(); ++index) {
    const Parameter& parameter = table.parameters()[index];
    const NameParts parts = parts_of(parameter.name);
    const std::size_t first = tensors.size();
    if (parts.module == "head") {
      HuggingFaceTensor& tensor = tensors.emplace_back();
      tensor.name = kHuggingFaceHead;
      tensor.shape = parameter.shape;
    } else if (gpt2) {
      tensors.push_back(gpt2_tensor(parameter, parts));
    } else {
      add_llama_tensors(tensors, parameter, parts);
    }
    for (std::size_t i = first; i < tensors.size(); ++i) {
      tensors[i].parameter = static_cast<int>(index);
    }
  }
  return tensors;
}

std::string_view hugging_face_prefix(const ModelConfig& config) {
  return config.architecture == "gpt2" ? "transformer." : "model.";
}

bool is_hugging_face_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

}  // namespace lockstep

#include "checkpoint/hugging_face_config.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/memory_map.h"
#include "formats/strict_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLargestConfig = 16'000'000;  // label tables of classifiers can be long
constexpr int kConfigDepth = 16;

// Far above any model, and low enough that no product or sum of sizes overflows.
constexpr long kLargestLayers = 4096;
constexpr long kLargestWidth = 1L << 22U;
constexpr long kLargestCount = (1L << 31U) - 1;  // positions, token ids

// An object of the file whose members are read by key; null counts as absent, as in Python.
class Section {
 public:
  Section(const nlohmann::json& object, std::string what)
      : object_(&object), what_(std::move(what)) {}

  [[nodiscard]] const nlohmann::json* find(const char* key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] long size(const char* key, long largest) const {
    if (find(key) == nullptr) {
      throw_request_error("{}: has no '{}'", what_, key);
    }
    return size(key, largest, 0);
  }

  [[nodiscard]] long size(const char* key, long largest, long absent) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      return absent;
    }
    // Values above the signed range read as negative ones, which are refused too.
    const std::int64_t number = value->is_number_integer() ? value->get<std::int64_t>() : 0;
    if (number < 1 || number > largest) {
      refuse(key, fmt::format("an integer from 1 to {}", largest));
    }
    return number;
  }

  [[nodiscard]] double positive(const char* key, double absent) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      return absent;
    }
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!std::isfinite(number) || number <= 0) {
      refuse(key, "a positive number");
    }
    return number;
  }

  [[nodiscard]] bool flag(const char* key, bool absent) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      return absent;
    }
    if (!value->is_boolean()) {
      refuse(key, "true or false");
    }
    return value->get<bool>();
  }

  // For maths that exists in one form here.
  void require_flag(const char* key, bool wanted) const {
    if (flag(key, wanted) != wanted) {
      refuse(key, wanted ? "true" : "false");
    }
  }

  void require_text(const char* key, std::string_view wanted) const {
    const nlohmann::json* value = find(key);
    if (value != nullptr && (!value->is_string() || value->get<std::string>() != wanted)) {
      refuse(key, fmt::format("\"{}\"", wanted));
    }
  }

  void require_one(const char* key) const {
    if (positive(key, 1.0) != 1.0) {
      refuse(key, "1");
    }
  }

  // A member object, or an empty one.
  [[nodiscard]] Section section(const char* key) const {
    static const nlohmann::json empty = nlohmann::json::object();
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_object()) {
      refuse(key, "an object");
    }
    return {value == nullptr ? empty : *value, fmt::format("{}: {}", what_, key)};
  }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    constexpr std::size_t kLongestQuote = 80;
    using Handler = nlohmann::json::error_handler_t;
    std::string found = object_->at(key).dump(-1, ' ', false, Handler::replace);
    if (found.size() > kLongestQuote) {
      found = found.substr(0, kLongestQuote) + "...";
    }
    throw_request_error("{}: '{}' is {}, supported is {}", what_, key, found, expected);
  }

  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  const nlohmann::json* object_;
  std::string what_;
};

void require_multiple(
    const Section& config, const char* key, long value, const char* part_key, long part) {
  LOCKSTEP_CHECK(part > 0);
  if (value % part != 0) {
    throw_request_error(
        "{}: '{}' = {} is not a multiple of '{}' = {}", config.what(), key, value, part_key, part);
  }
}

ModelConfig gpt2_config(const Section& config) {
  ModelConfig model;
  model.architecture = "gpt2";
  model.num_layers = config.size("n_layer", kLargestLayers);
  model.hidden_size = config.size("n_embd", kLargestWidth);
  model.num_heads = config.size("n_head", kLargestWidth);
  require_multiple(config, "n_embd", model.hidden_size, "n_head", model.num_heads);
  model.num_kv_heads = model.num_heads;
  model.ffn_hidden_size = config.size("n_inner", 4 * kLargestWidth, 4 * model.hidden_size);
  model.seq_length = config.size("n_positions", kLargestCount);
  model.vocab_size = config.size("vocab_size", kLargestCount);
  model.norm_epsilon = config.positive("layer_norm_epsilon", 1e-5);
  model.tie_embeddings = config.flag("tie_word_embeddings", true);
  config.require_text("activation_function", "gelu_new");
  config.require_flag("scale_attn_weights", true);
  config.require_flag("scale_attn_by_inverse_layer_idx", false);
  config.require_flag("reorder_and_upcast_attn", false);
  config.require_flag("add_cross_attention", false);
  return model;
}

// transformers 4.x: rope_theta, and rope_scaling with its type where frequencies are changed;
// 5.x: both in rope_parameters.
double rope_theta_of(const Section& config) {
  constexpr double kDefaultTheta = 10000.0;
  const double old_theta = config.positive("rope_theta", kDefaultTheta);
  double theta = old_theta;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Section rope = config.section(key);
    rope.require_text("rope_type", "default");
    rope.require_text("type", "default");
    rope.require_one("partial_rotary_factor");
    theta = rope.positive("rope_theta", theta);
  }
  if (config.find("rope_theta") != nullptr && theta != old_theta) {
    throw_request_error("{}: 'rope_theta' is {} and, in 'rope_parameters' or 'rope_scaling', {}",
                        config.what(),
                        old_theta,
                        theta);
  }
  return theta;
}

ModelConfig llama_config(const Section& config) {
  ModelConfig model;
  model.architecture = "llama";
  model.num_layers = config.size("num_hidden_layers", kLargestLayers);
  model.hidden_size = config.size("hidden_size", kLargestWidth);
  model.num_heads = config.size("num_attention_heads", kLargestWidth);
  model.num_kv_heads = config.size("num_key_value_heads", kLargestWidth, model.num_heads);
  require_multiple(
      config, "hidden_size", model.hidden_size, "num_attention_heads", model.num_heads);
  require_multiple(
      config, "num_attention_heads", model.num_heads, "num_key_value_heads", model.num_kv_heads);
  const long head_dim = model.hidden_size / model.num_heads;
  if (config.size("head_dim", kLargestWidth, head_dim) != head_dim) {
    config.refuse("head_dim", fmt::format("hidden_size / num_attention_heads = {}", head_dim));
  }
  if (head_dim % 2 != 0) {
    throw_request_error(
        "{}: hidden_size / num_attention_heads = {} is odd: rotary embeddings turn pairs",
        config.what(),
        head_dim);
  }
  model.ffn_hidden_size = config.size("intermediate_size", 4 * kLargestWidth);
  model.seq_length = config.size("max_position_embeddings", kLargestCount);
  model.vocab_size = config.size("vocab_size", kLargestCount);
  model.norm_epsilon = config.positive("rms_norm_eps", 1e-6);
  model.rope_theta = rope_theta_of(config);
  model.tie_embeddings = config.flag("tie_word_embeddings", false);
  config.require_text("hidden_act", "silu");
  config.require_flag("attention_bias", false);
  config.require_flag("mlp_bias", false);
  config.require_one("partial_rotary_factor");
  return model;
}

}  // namespace

ModelConfig read_hugging_face_config(const std::string& folder) {
  const MemoryMap file(folder + "/config.json");
  const auto bytes = file.bytes();
  if (bytes.size() > kLargestConfig) {
    throw_request_error(
        "{}: {} bytes, expected at most {}", file.path(), bytes.size(), kLargestConfig);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const nlohmann::json json = parse_strict_json(text, file.path(), kConfigDepth);
  const Section config(json, file.path());
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "a model that is not quantised");
  }
  const nlohmann::json* type = config.find("model_type");
  if (type == nullptr) {
    throw_request_error("{}: has no 'model_type'", file.path());
  }
  if (*type == "gpt2") {
    return gpt2_config(config);
  }
  if (*type == "llama") {
    return llama_config(config);
  }
  config.refuse("model_type", "\"gpt2\" or \"llama\"");
}

std::string hugging_face_config_text(const ModelConfig& config) {
  const bool gpt2 = config.architecture == "gpt2";
  Json json;
  json["architectures"] = {gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"};
  json["model_type"] = config.architecture;
  if (gpt2) {
    json["activation_function"] = "gelu_new";
    json["n_layer"] = config.num_layers;
    json["n_embd"] = config.hidden_size;
    json["n_head"] = config.num_heads;
    json["n_inner"] = config.ffn_hidden_size;
    json["n_positions"] = config.seq_length;
    json["n_ctx"] = config.seq_length;
    json["layer_norm_epsilon"] = config.norm_epsilon;
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
      json[key] = config.dropout;
    }
    json["scale_attn_weights"] = true;
  } else {
    json["hidden_act"] = "silu";
    json["num_hidden_layers"] = config.num_layers;
    json["hidden_size"] = config.hidden_size;
    json["num_attention_heads"] = config.num_heads;
    json["num_key_value_heads"] = config.num_kv_heads > 0 ? config.num_kv_heads : config.num_heads;
    json["head_dim"] = config.hidden_size / config.num_heads;
    json["intermediate_size"] = config.ffn_hidden_size;
    json["max_position_embeddings"] = config.seq_length;
    json["rms_norm_eps"] = config.norm_epsilon;
    json["rope_theta"] = config.rope_theta;
    json["rope_parameters"] = {{"rope_theta", config.rope_theta}, {"rope_type", "default"}};
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
    json["attention_dropout"] = config.dropout;
    json["pretraining_tp"] = 1;
  }
  json["vocab_size"] = config.vocab_size;
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = "float32";
  json["dtype"] = "float32";
  return json.dump(2) + "\n";
}

}  // namespace lockstep

#include "checkpoint/run_state_json.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json to_json(const ModelConfig& model) {
  return {{"architecture", model.architecture},
          {"layer_sizes", model.layer_sizes},
          {"num_layers", model.num_layers},
          {"hidden_size", model.hidden_size},
          {"num_heads", model.num_heads},
          {"num_kv_heads", model.num_kv_heads},
          {"ffn_hidden_size", model.ffn_hidden_size},
          {"seq_length", model.seq_length},
          {"vocab_size", model.vocab_size},
          {"tie_embeddings", model.tie_embeddings},
          {"norm_epsilon", model.norm_epsilon},
          {"rope_theta", model.rope_theta}};
}

ModelConfig model_from_json(const Json& json) {
  ModelConfig model;
  json.at("architecture").get_to(model.architecture);
  json.at("layer_sizes").get_to(model.layer_sizes);
  json.at("num_layers").get_to(model.num_layers);
  json.at("hidden_size").get_to(model.hidden_size);
  json.at("num_heads").get_to(model.num_heads);
  json.at("num_kv_heads").get_to(model.num_kv_heads);
  json.at("ffn_hidden_size").get_to(model.ffn_hidden_size);
  json.at("seq_length").get_to(model.seq_length);
  json.at("vocab_size").get_to(model.vocab_size);
  json.at("tie_embeddings").get_to(model.tie_embeddings);
  json.at("norm_epsilon").get_to(model.norm_epsilon);
  json.at("rope_theta").get_to(model.rope_theta);
  return model;
}

}  // namespace

std::string to_json_text(const RunState& state) {
  const Json json{{"format", 1},
                  {"step", state.step},
                  {"samples", state.samples},
                  {"tokens", state.tokens},
                  {"seed", state.seed},
                  {"virtual_data", state.virtual_data},
                  {"virtual_tensor", state.virtual_tensor},
                  {"accumulate", state.accumulate},
                  {"precision", state.precision},
                  {"optimizer", state.optimizer},
                  {"fingerprint", state.fingerprint},
                  {"weights_hash", state.weights_hash},
                  {"model", to_json(state.model)}};
  return json.dump(2) + "\n";
}

RunState run_state_from_json(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format").get<int>() != 1) {
      throw_request_error("{}: format {} is not known to this version, which reads 1",
                          source,
                          json.at("format").dump());
    }
    RunState state;
    json.at("step").get_to(state.step);
    json.at("samples").get_to(state.samples);
    json.at("tokens").get_to(state.tokens);
    json.at("seed").get_to(state.seed);
    json.at("virtual_data").get_to(state.virtual_data);
    json.at("virtual_tensor").get_to(state.virtual_tensor);
    json.at("accumulate").get_to(state.accumulate);
    json.at("precision").get_to(state.precision);
    json.at("optimizer").get_to(state.optimizer);
    json.at("fingerprint").get_to(state.fingerprint);
    json.at("weights_hash").get_to(state.weights_hash);
    state.model = model_from_json(json.at("model"));
    if (state.step < 0 || state.samples < 0 || state.virtual_data < 1 || state.virtual_tensor < 1) {
      throw_request_error("{}: a counter or degree is out of range", source);
    }
    return state;
  } catch (const Json::exception& failure) {
    throw_request_error("{}: {}", source, failure.what());
  }
}

RunState read_run_state(const std::string& checkpoint) {
  const std::string path = checkpoint + "/state.json";
  std::ifstream file(path);
  if (!file) {
    throw_request_error("{}: cannot be read; is {} a checkpoint?", path, checkpoint);
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return run_state_from_json(text, path);
}

}  // namespace lockstep

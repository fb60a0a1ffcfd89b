#include "checkpoint/hugging_face_config.h"

#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::request_error_of;
using test::ScratchFolder;

json gpt2() {
  return {{"model_type", "gpt2"},
          {"n_layer", 3},
          {"n_embd", 48},
          {"n_head", 6},
          {"n_positions", 32},
          {"vocab_size", 101}};
}

json llama() {
  return {{"model_type", "llama"},
          {"num_hidden_layers", 3},
          {"hidden_size", 48},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"intermediate_size", 70},
          {"max_position_embeddings", 32},
          {"vocab_size", 101}};
}

json with(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

ModelConfig read_text(const std::string& text) {
  const ScratchFolder folder;
  test::write_file(folder / "config.json", text);
  return read_hugging_face_config(folder.path());
}

ModelConfig read(const json& config) {
  return read_text(config.dump());
}

/// What reading says, "" if it succeeds; always with the file's name when it does not.
std::string refusal(const json& config) {
  std::string error = request_error_of([&] { read(config); });
  CHECK((error.empty() || error.find("config.json") != std::string::npos));
  return error;
}

bool is_refused(const std::string& text) {
  return !request_error_of([&] { read_text(text); }).empty();
}

void check_read_or_refused(const std::string& text) {
  try {
    const ModelConfig model = read_text(text);
    CHECK(model.hidden_size % model.num_heads == 0);
  } catch (const RequestError& error) {
    CHECK_THAT(error.what(), Catch::Contains("config.json"));
  }
}

void check_same_model(const ModelConfig& a, const ModelConfig& b) {
  CHECK(a.architecture == b.architecture);
  CHECK(a.num_layers == b.num_layers);
  CHECK(a.hidden_size == b.hidden_size);
  CHECK(a.num_heads == b.num_heads);
  CHECK(a.num_kv_heads == b.num_kv_heads);
  CHECK(a.ffn_hidden_size == b.ffn_hidden_size);
  CHECK(a.seq_length == b.seq_length);
  CHECK(a.vocab_size == b.vocab_size);
  CHECK(a.tie_embeddings == b.tie_embeddings);
  CHECK(a.norm_epsilon == b.norm_epsilon);
  CHECK(a.rope_theta == b.rope_theta);
}

}  // namespace

TEST_CASE("a short gpt2 config takes transformers' defaults") {
  const ModelConfig model = read(gpt2());

  CHECK(model.architecture == "gpt2");
  CHECK(model.num_layers == 3);
  CHECK(model.hidden_size == 48);
  CHECK(model.num_heads == 6);
  CHECK(model.num_kv_heads == 6);
  CHECK(model.ffn_hidden_size == 192);
  CHECK(model.seq_length == 32);
  CHECK(model.vocab_size == 101);
  CHECK(model.norm_epsilon == 1e-5);
  CHECK(model.tie_embeddings);
}

TEST_CASE("keys of a gpt2 config are read, and null is an absent key") {
  json config = gpt2();
  config["n_inner"] = 90;
  config["layer_norm_epsilon"] = 1e-6;
  config["tie_word_embeddings"] = false;
  config["scale_attn_weights"] = nullptr;
  config["task_specific_params"] = {{"text-generation", {{"do_sample", true}}}};

  const ModelConfig model = read(config);

  CHECK(model.ffn_hidden_size == 90);
  CHECK(model.norm_epsilon == 1e-6);
  CHECK_FALSE(model.tie_embeddings);
  CHECK(read(with(gpt2(), "n_inner", nullptr)).ffn_hidden_size == 192);
}

TEST_CASE("a short llama config takes transformers' defaults") {
  json config = llama();
  config.erase("num_key_value_heads");

  const ModelConfig model = read(config);

  CHECK(model.architecture == "llama");
  CHECK(model.num_layers == 3);
  CHECK(model.hidden_size == 48);
  CHECK(model.num_heads == 6);
  CHECK(model.num_kv_heads == 6);
  CHECK(model.ffn_hidden_size == 70);
  CHECK(model.seq_length == 32);
  CHECK(model.vocab_size == 101);
  CHECK(model.norm_epsilon == 1e-6);
  CHECK(model.rope_theta == 10000.0);
  CHECK_FALSE(model.tie_embeddings);
}

TEST_CASE("the older and the newer form of the rotary base are read") {
  const json old_form = with(with(llama(), "rope_theta", 500000.0), "rope_scaling", nullptr);
  const json new_form =
      with(llama(), "rope_parameters", {{"rope_theta", 500000}, {"rope_type", "default"}});
  json both_forms = old_form;
  both_forms["rope_parameters"] = new_form["rope_parameters"];

  CHECK(read(old_form).rope_theta == 500000.0);
  CHECK(read(new_form).rope_theta == 500000.0);
  CHECK(read(both_forms).rope_theta == 500000.0);
  CHECK(read(llama()).num_kv_heads == 2);
  CHECK_THAT(refusal(with(new_form, "rope_theta", 10000.0)), Catch::Contains("rope_theta"));
}

TEST_CASE("other maths than ours is refused by the key that asks for it") {
  const std::vector<std::pair<std::string, json>> gpt2_keys{
      {"activation_function", "gelu"},
      {"activation_function", "relu"},
      {"activation_function", 3},
      {"scale_attn_weights", false},
      {"reorder_and_upcast_attn", true},
      {"scale_attn_by_inverse_layer_idx", true},
      {"add_cross_attention", true},
      {"quantization_config", json::object()},
      {"reorder_and_upcast_attn", "perhaps"}};
  const std::vector<std::pair<std::string, json>> llama_keys{{"hidden_act", "gelu"},
                                                             {"attention_bias", true},
                                                             {"mlp_bias", true},
                                                             {"head_dim", 16},
                                                             {"partial_rotary_factor", 0.5},
                                                             {"quantization_config", {{"bits", 4}}},
                                                             {"rope_scaling", "linear"}};
  for (const auto& [key, value] : gpt2_keys) {
    INFO(key << " = " << value);
    CHECK_THAT(refusal(with(gpt2(), key, value)), Catch::Contains("'" + key + "'"));
  }
  for (const auto& [key, value] : llama_keys) {
    INFO(key << " = " << value);
    CHECK_THAT(refusal(with(llama(), key, value)), Catch::Contains("'" + key + "'"));
  }
}

TEST_CASE("the only supported form is accepted when it is spelt out, and told when it is not") {
  CHECK(refusal(with(gpt2(), "activation_function", "gelu_new")).empty());
  CHECK(refusal(with(llama(), "hidden_act", "silu")).empty());
  CHECK(refusal(with(llama(), "head_dim", 8)).empty());
  CHECK(refusal(with(llama(), "attention_bias", false)).empty());
  CHECK_THAT(refusal(with(gpt2(), "activation_function", "gelu")),
             Catch::Contains("supported is \"gelu_new\""));
  CHECK_THAT(refusal(with(llama(), "mlp_bias", true)), Catch::Contains("supported is false"));
}

TEST_CASE("scaled rotary frequencies are refused by name") {
  const json llama3{{"factor", 8.0}, {"rope_type", "llama3"}};
  const json linear{{"factor", 2.0}, {"type", "linear"}};

  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    CHECK_THAT(refusal(with(llama(), key, llama3)),
               Catch::Contains(key) && Catch::Contains("'rope_type' is \"llama3\""));
    CHECK_THAT(refusal(with(llama(), key, linear)), Catch::Contains("'type' is \"linear\""));
  }
  CHECK_THAT(refusal(with(llama(), "rope_parameters", {{"partial_rotary_factor", 0.25}})),
             Catch::Contains("partial_rotary_factor"));
}

TEST_CASE("a missing size is refused by name") {
  for (const json& whole : {gpt2(), llama()}) {
    for (const auto& [key, value] : whole.items()) {
      if (key == "num_key_value_heads") {
        continue;  // has a default
      }
      json config = whole;
      config.erase(key);
      INFO(key);
      CHECK_THAT(refusal(config), Catch::Contains("has no '" + key + "'"));
    }
  }
}

TEST_CASE("sizes of a wrong type or out of range are refused by name") {
  const std::vector<json> wrong{0,
                                -1,
                                1.5,
                                48.0,
                                "48",
                                true,
                                json::array(),
                                json::object(),
                                std::numeric_limits<std::int64_t>::max(),
                                std::numeric_limits<std::int64_t>::min(),
                                std::numeric_limits<std::uint64_t>::max(),
                                1e300};
  for (const json& whole : {gpt2(), llama()}) {
    for (const auto& [key, value] : whole.items()) {
      for (const json& bad : wrong) {
        INFO(key << " = " << bad);
        CHECK_THAT(refusal(with(whole, key, bad)), Catch::Contains("'" + key + "'"));
      }
    }
  }
}

TEST_CASE("numbers and flags of a wrong type or out of range are refused by name") {
  const std::vector<json> not_positive{0, -1e-5, "1e-5", true, json::array()};
  for (const json& bad : not_positive) {
    CHECK_THAT(refusal(with(gpt2(), "layer_norm_epsilon", bad)),
               Catch::Contains("layer_norm_epsilon"));
    CHECK_THAT(refusal(with(llama(), "rms_norm_eps", bad)), Catch::Contains("rms_norm_eps"));
    CHECK_THAT(refusal(with(llama(), "rope_theta", bad)), Catch::Contains("rope_theta"));
  }
  for (const json& bad : {json(1), json("true")}) {
    CHECK_THAT(refusal(with(gpt2(), "tie_word_embeddings", bad)),
               Catch::Contains("tie_word_embeddings"));
  }
}

TEST_CASE("sizes that do not divide are refused with both keys") {
  CHECK_THAT(refusal(with(gpt2(), "n_head", 5)),
             Catch::Contains("'n_embd' = 48") && Catch::Contains("'n_head' = 5"));
  CHECK_THAT(refusal(with(llama(), "num_attention_heads", 5)), Catch::Contains("'hidden_size'"));
  CHECK_THAT(refusal(with(llama(), "num_key_value_heads", 4)),
             Catch::Contains("'num_key_value_heads' = 4"));
  CHECK_THAT(refusal(with(llama(), "hidden_size", 54)), Catch::Contains("odd"));
}

TEST_CASE("other model types are refused, quoting what was found") {
  CHECK_THAT(refusal(with(gpt2(), "model_type", "mistral")),
             Catch::Contains("'model_type' is \"mistral\""));
  CHECK_THAT(refusal(with(gpt2(), "model_type", std::string(1000, 'x'))),
             Catch::Contains("xxx...") && !Catch::Contains(std::string(200, 'x')));
}

TEST_CASE("a config.json that is absent, or no JSON object, is refused") {
  const ScratchFolder folder;
  CHECK_THAT(request_error_of([&] { read_hugging_face_config(folder.path()); }),
             Catch::Contains("config.json"));
  for (const char* text :
       {"", "[]", "null", "{", "{\"n_layer\": 3,}", "\xff\xfe", "{\"a\":1,\"a\":1}"}) {
    INFO(text);
    CHECK(is_refused(text));
  }
  CHECK(is_refused(std::string(100'000, '[')));
}

TEST_CASE("a config.json that was cut or had a byte changed is read or refused, never worse") {
  for (const json& whole : {gpt2(), llama()}) {
    const std::string text = whole.dump();
    for (std::size_t i = 0; i < text.size(); ++i) {
      CHECK(is_refused(text.substr(0, i)));
      for (const char byte : {'\0', '"', '{', '}', '9', '-', ',', '\x80'}) {
        std::string changed = text;
        changed[i] = byte;
        check_read_or_refused(changed);
      }
    }
  }
}

TEST_CASE("a written config is read back as the same model") {
  json untied_gpt2 = with(gpt2(), "tie_word_embeddings", false);
  untied_gpt2["layer_norm_epsilon"] = 3.3e-6;
  untied_gpt2["n_inner"] = 91;
  json tied_llama = with(llama(), "tie_word_embeddings", true);
  tied_llama["rope_theta"] = 123456.7;
  for (const json& config : {gpt2(), untied_gpt2, llama(), tied_llama}) {
    const ModelConfig model = read(config);

    const std::string text = hugging_face_config_text(model);

    check_same_model(read_text(text), model);
    const json written = json::parse(text);
    CHECK(written.at("bos_token_id").is_null());
    CHECK(written.at("eos_token_id").is_null());
  }
}

}  // namespace lockstep

#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/bfloat16.h"
#include "device/cpu/cpu_queue.h"
#include "formats/safetensors.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::request_error_of;
using test::ScratchFolder;

struct TestModel {
  TestModel(const ModelConfig& config_in, int blocks, DType dtype = DType::kF32)
      : config(config_in),
        model(make_model(config, dtype, blocks)),
        state(model->parameters(), dtype, {.name = "sgd"}, queue) {}

  [[nodiscard]] std::vector<float> values(const std::string& name) const {
    for (const Parameter& parameter : state.table().parameters()) {
      if (parameter.name == name) {
        std::vector<float> result(static_cast<std::size_t>(parameter.num_elements()));
        copy_to_canonical(parameter, state.master(), result.data());
        return result;
      }
    }
    return {};
  }

  [[nodiscard]] bool untouched() const {
    const auto* bytes = reinterpret_cast<const char*>(state.master());
    return std::all_of(bytes, bytes + state.master_bytes(), [](char byte) { return byte == 0; });
  }

  ModelConfig config;
  CpuQueue queue{1};
  std::unique_ptr<Model> model;
  ModelState state;
};

ModelConfig config_of(const std::string& architecture, bool tied) {
  ModelConfig config;
  config.architecture = architecture;
  config.num_layers = 2;
  config.hidden_size = 48;
  config.num_heads = 6;
  config.num_kv_heads = architecture == "llama" ? 2 : 6;
  config.ffn_hidden_size = 70;
  config.seq_length = 33;
  config.vocab_size = 101;
  config.tie_embeddings = tied;
  return config;
}

/// A tensor of a hand-made file.
struct Tensor {
  std::vector<long> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

/// Values that no other tensor or element has, exact in f32.
Tensor numbered(float first, std::vector<long> shape) {
  Tensor tensor{std::move(shape), {}};
  tensor.values.resize(stored_bytes(DType::kU8, tensor.shape));
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = first + static_cast<float>(i) / 16384.0F;
  }
  return tensor;
}

constexpr long kHidden = 4;
constexpr long kFfn = 6;
constexpr long kVocab = 5;
constexpr long kPositions = 3;

ModelConfig tiny(const std::string& architecture, bool tied) {
  ModelConfig config = config_of(architecture, tied);
  config.num_layers = 1;
  config.hidden_size = kHidden;
  config.num_heads = 2;
  config.num_kv_heads = architecture == "llama" ? 1 : 2;
  config.ffn_hidden_size = kFfn;
  config.seq_length = kPositions;
  config.vocab_size = kVocab;
  return config;
}

Tensors tiny_gpt2() {
  Tensors tensors;
  float first = 1;
  const auto add = [&](const std::string& name, std::vector<long> shape) {
    tensors[name] = numbered(first++, std::move(shape));
  };
  add("transformer.wte.weight", {kVocab, kHidden});
  add("transformer.wpe.weight", {kPositions, kHidden});
  for (const char* name : {"h.0.ln_1", "h.0.ln_2", "ln_f"}) {
    add(fmt::format("transformer.{}.weight", name), {kHidden});
    add(fmt::format("transformer.{}.bias", name), {kHidden});
  }
  const auto add_linear = [&](const char* name, long in, long out) {
    add(fmt::format("transformer.h.0.{}.weight", name), {in, out});
    add(fmt::format("transformer.h.0.{}.bias", name), {out});
  };
  add_linear("attn.c_attn", kHidden, 3 * kHidden);
  add_linear("attn.c_proj", kHidden, kHidden);
  add_linear("mlp.c_fc", kHidden, kFfn);
  add_linear("mlp.c_proj", kFfn, kHidden);
  return tensors;
}

Tensors tiny_llama() {
  constexpr long kKey = kHidden / 2;  // one of two heads
  Tensors tensors;
  float first = 1;
  const auto add = [&](const std::string& name, std::vector<long> shape) {
    tensors[name] = numbered(first++, std::move(shape));
  };
  add("lm_head.weight", {kVocab, kHidden});
  add("model.embed_tokens.weight", {kVocab, kHidden});
  add("model.norm.weight", {kHidden});
  const std::string layer = "model.layers.0.";
  add(layer + "input_layernorm.weight", {kHidden});
  add(layer + "post_attention_layernorm.weight", {kHidden});
  add(layer + "self_attn.q_proj.weight", {kHidden, kHidden});
  add(layer + "self_attn.k_proj.weight", {kKey, kHidden});
  add(layer + "self_attn.v_proj.weight", {kKey, kHidden});
  add(layer + "self_attn.o_proj.weight", {kHidden, kHidden});
  add(layer + "mlp.gate_proj.weight", {kFfn, kHidden});
  add(layer + "mlp.up_proj.weight", {kFfn, kHidden});
  add(layer + "mlp.down_proj.weight", {kHidden, kFfn});
  return tensors;
}

void write_tensors(const std::string& path, const Tensors& tensors, DType dtype = DType::kF32) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, dtype, tensor.shape});
  }
  SafetensorsWriter writer(path, declarations);
  for (const auto& [name, tensor] : tensors) {
    writer.write(std::as_bytes(std::span(tensor.values)));
  }
  writer.close();
}

/// Loads a folder with these tensors; "" or why it was refused, in which case nothing has changed.
std::string load(const Tensors& tensors, TestModel& model) {
  const ScratchFolder folder;
  write_tensors(folder / "model.safetensors", tensors);
  std::string error =
      request_error_of([&] { load_hugging_face(folder.path(), model.config, model.state.view()); });
  CHECK((error.empty() || model.untouched()));
  return error;
}

std::vector<float> transposed(const Tensor& tensor) {
  std::vector<float> result;
  for (long col = 0; col < tensor.shape[1]; ++col) {
    for (long row = 0; row < tensor.shape[0]; ++row) {
      result.push_back(tensor.values[static_cast<std::size_t>(row * tensor.shape[1] + col)]);
    }
  }
  return result;
}

std::vector<float> joined(const std::vector<Tensor>& tensors) {
  std::vector<float> result;
  for (const Tensor& tensor : tensors) {
    result.insert(result.end(), tensor.values.begin(), tensor.values.end());
  }
  return result;
}

Tensors without_prefix(const Tensors& tensors, const std::string& prefix) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    result[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = tensor;
  }
  return result;
}

}  // namespace

TEST_CASE("gpt2's weights are transposed, and found with and without their prefix") {
  const Tensors tensors = tiny_gpt2();
  for (const Tensors& stored : {tensors, without_prefix(tensors, "transformer.")}) {
    TestModel model(tiny("gpt2", true), 2);

    REQUIRE(load(stored, model).empty());

    CHECK(model.values("embedding.weight") == tensors.at("transformer.wte.weight").values);
    CHECK(model.values("positions.weight") == tensors.at("transformer.wpe.weight").values);
    CHECK(model.values("norm.weight") == tensors.at("transformer.ln_f.weight").values);
    CHECK(model.values("norm.bias") == tensors.at("transformer.ln_f.bias").values);
    const std::map<std::string, std::string> linears{{"attention.qkv", "attn.c_attn"},
                                                     {"attention.projection", "attn.c_proj"},
                                                     {"ffn.up", "mlp.c_fc"},
                                                     {"ffn.down", "mlp.c_proj"}};
    for (const auto& [ours, theirs] : linears) {
      const std::string name = "transformer.h.0." + theirs;
      CHECK(model.values("layers.0." + ours + ".weight") ==
            transposed(tensors.at(name + ".weight")));
      CHECK(model.values("layers.0." + ours + ".bias") == tensors.at(name + ".bias").values);
    }
    for (const char* index : {"1", "2"}) {
      const std::string name = fmt::format("transformer.h.0.ln_{}", index);
      const std::string ours = fmt::format("layers.0.norm_{}", index);
      CHECK(model.values(ours + ".weight") == tensors.at(name + ".weight").values);
      CHECK(model.values(ours + ".bias") == tensors.at(name + ".bias").values);
    }
  }
}

TEST_CASE("llama's q, k, v and gate, up become rows of one parameter each") {
  const Tensors tensors = tiny_llama();
  for (const Tensors& stored : {tensors, without_prefix(tensors, "model.")}) {
    TestModel model(tiny("llama", false), 2);

    REQUIRE(load(stored, model).empty());

    const auto at = [&](const std::string& name) { return tensors.at("model.layers.0." + name); };
    CHECK(model.values("layers.0.attention.qkv.weight") == joined({at("self_attn.q_proj.weight"),
                                                                   at("self_attn.k_proj.weight"),
                                                                   at("self_attn.v_proj.weight")}));
    CHECK(model.values("layers.0.ffn.gate_up.weight") ==
          joined({at("mlp.gate_proj.weight"), at("mlp.up_proj.weight")}));
    CHECK(model.values("layers.0.attention.projection.weight") ==
          at("self_attn.o_proj.weight").values);
    CHECK(model.values("layers.0.ffn.down.weight") == at("mlp.down_proj.weight").values);
    CHECK(model.values("layers.0.norm_1.weight") == at("input_layernorm.weight").values);
    CHECK(model.values("layers.0.norm_2.weight") == at("post_attention_layernorm.weight").values);
    CHECK(model.values("norm.weight") == tensors.at("model.norm.weight").values);
    CHECK(model.values("embedding.weight") == tensors.at("model.embed_tokens.weight").values);
    CHECK(model.values("head.weight") == tensors.at("lm_head.weight").values);
  }
}

TEST_CASE("a shorter context takes the first positions") {
  ModelConfig config = tiny("gpt2", true);
  config.seq_length = 2;
  TestModel model(config, 1);
  const Tensors tensors = tiny_gpt2();

  REQUIRE(load(tensors, model).empty());

  std::vector<float> expected = tensors.at("transformer.wpe.weight").values;
  expected.resize(2 * kHidden);
  CHECK(model.values("positions.weight") == expected);

  config.seq_length = kPositions + 1;
  TestModel longer(config, 1);
  CHECK_THAT(load(tensors, longer), Catch::Contains("transformer.wpe.weight"));
}

TEST_CASE("a head beside a tied embedding must equal it") {
  Tensors tensors = tiny_gpt2();
  tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
  TestModel model(tiny("gpt2", true), 2);
  CHECK(load(tensors, model).empty());

  tensors["lm_head.weight"].values.back() += 1;
  TestModel other(tiny("gpt2", true), 2);
  CHECK_THAT(load(tensors, other), Catch::Contains("lm_head.weight") && Catch::Contains("differs"));

  tensors.erase("lm_head.weight");
  TestModel untied(tiny("gpt2", false), 2);
  CHECK_THAT(load(tensors, untied), Catch::Contains("no tensor 'lm_head.weight'"));
}

TEST_CASE("masks and rotary frequencies of older files are passed over") {
  Tensors gpt2 = tiny_gpt2();
  gpt2["transformer.h.0.attn.bias"] = numbered(0, {1, 1, 3, 3});
  gpt2["h.0.attn.masked_bias"] = numbered(0, {1});
  TestModel gpt2_model(tiny("gpt2", true), 1);
  CHECK(load(gpt2, gpt2_model).empty());

  Tensors llama = tiny_llama();
  llama["model.layers.0.self_attn.rotary_emb.inv_freq"] = numbered(0, {1});
  TestModel llama_model(tiny("llama", false), 1);
  CHECK(load(llama, llama_model).empty());
}

TEST_CASE("every tensor of the model is needed, in its shape and finite") {
  const std::map<std::string, Tensors> families{{"gpt2", tiny_gpt2()}, {"llama", tiny_llama()}};
  for (const auto& [architecture, whole] : families) {
    TestModel model(tiny(architecture, architecture == "gpt2"), 2);
    for (const auto& [name, tensor] : whole) {
      INFO(name);
      Tensors missing = whole;
      missing.erase(name);
      CHECK_THAT(load(missing, model), Catch::Contains("'" + name + "'"));

      Tensors reshaped = whole;
      reshaped[name].shape.push_back(1);
      CHECK_THAT(load(reshaped, model), Catch::Contains("tensor '" + name + "' is ["));

      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Tensors poisoned = whole;
        poisoned[name].values.back() = bad;
        CHECK_THAT(load(poisoned, model), Catch::Contains("'" + name + "' holds"));
      }
    }
  }
}

TEST_CASE("tensors without a place, doubled or of integers are refused by name") {
  TestModel model(tiny("llama", false), 1);
  Tensors tensors = tiny_llama();
  tensors["model.layers.0.self_attn.q_proj.bias"] = numbered(0, {kHidden});
  CHECK_THAT(load(tensors, model), Catch::Contains("self_attn.q_proj.bias"));

  tensors = tiny_llama();
  tensors["model.layers.1.input_layernorm.weight"] = numbered(0, {kHidden});
  CHECK_THAT(load(tensors, model), Catch::Contains("layers.1.input_layernorm"));

  tensors = tiny_llama();
  tensors["norm.weight"] = tensors.at("model.norm.weight");
  CHECK_THAT(load(tensors, model), Catch::Contains("both 'model.norm.weight' and 'norm.weight'"));

  CHECK_FALSE(load(tiny_gpt2(), model).empty());

  const ScratchFolder folder;
  write_tensors(folder / "model.safetensors", tiny_llama(), DType::kI32);
  CHECK_THAT(
      request_error_of([&] { load_hugging_face(folder.path(), model.config, model.state.view()); }),
      Catch::Contains("is of i32"));
}

TEST_CASE("half-precision files and several files give the same weights as one of f32") {
  // Small integers are exact in bf16 and f16 alike.
  Tensors tensors = tiny_gpt2();
  for (auto& [name, tensor] : tensors) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<float>(i % 7) - 3.0F;
    }
  }
  TestModel expected(tiny("gpt2", true), 1);
  REQUIRE(load(tensors, expected).empty());

  const ScratchFolder folder;
  std::string index;
  int file = 0;
  for (const auto& [name, tensor] : tensors) {
    const bool bf16 = file % 2 == 0;
    // Small integers in f16: the bits of f32 with another exponent bias.
    std::vector<std::uint16_t> halves;
    for (const float value : tensor.values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const std::uint32_t rebiased =
          value == 0.0F ? 0 : ((bits & 0x7fffffffU) >> 13U) - ((127U - 15U) << 10U);
      halves.push_back(bf16 ? to_bfloat16(value).bits
                            : static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | rebiased));
    }
    const std::string file_name = fmt::format("part-{}.safetensors", file++);
    SafetensorsWriter writer(folder / file_name,
                             {{name, bf16 ? DType::kBF16 : DType::kF16, tensor.shape}});
    writer.write(std::as_bytes(std::span(halves)));
    writer.close();
    index += fmt::format("{}\"{}\":\"{}\"", index.empty() ? "" : ",", name, file_name);
  }
  test::write_file(folder / "model.safetensors.index.json",
                   fmt::format("{{\"weight_map\":{{{}}}}}", index));
  TestModel model(tiny("gpt2", true), 1);

  load_hugging_face(folder.path(), model.config, model.state.view());

  CHECK(hash_of_model(model.state.view()) == hash_of_model(expected.state.view()));
}

TEST_CASE("what is exported loads with the same bits at every number of blocks") {
  for (const char* architecture : {"gpt2", "llama"}) {
    for (const bool tied : {true, false}) {
      const ScratchFolder folder;
      TestModel source(config_of(architecture, tied), 2);
      source.state.initialise(7);
      const std::string destination = folder / "exported";
      export_hugging_face(source.state.table(), source.state.master(), source.config, destination);
      const ModelConfig config = read_hugging_face_config(destination);
      CHECK(config.tie_embeddings == tied);
      for (const int blocks : {1, 2, 3}) {
        INFO(architecture << ", tied " << tied << ", blocks " << blocks);
        TestModel model(config, blocks);

        load_hugging_face(destination, config, model.state.view());

        CHECK(hash_of_model(model.state.view()) == hash_of_model(source.state.view()));
        export_hugging_face(
            model.state.table(), model.state.master(), config, folder / std::to_string(blocks));
        CHECK(test::read_file(folder / (std::to_string(blocks) + "/model.safetensors")) ==
              test::read_file(destination + "/model.safetensors"));
      }
    }
  }
}

TEST_CASE("after loading, a refresh brings the copy for bf16 products up to date") {
  TestModel model(tiny("gpt2", true), 1, DType::kBF16);

  REQUIRE(load(tiny_gpt2(), model).empty());
  model.state.refresh_compute_copy();

  const Parameter& last = model.state.table().parameters().back();
  const auto* copy = static_cast<const BFloat16*>(
      model.state.weights()
          .whole(static_cast<int>(model.state.table().parameters().size()) - 1)
          .data);
  CHECK(copy[0].bits == to_bfloat16(model.state.master()[last.offset]).bits);
  CHECK(copy[0].bits != 0);
}

TEST_CASE("an exported folder holds its two files and says whose format it is") {
  const ScratchFolder folder;
  TestModel model(config_of("llama", true), 3);
  fs::create_directory(folder / "empty");
  fs::create_directory(folder / "linked");
  fs::create_directory_symlink("linked", folder / "link");

  for (const char* name : {"deep/er/new", "empty", "trailing/", "link"}) {
    export_hugging_face(model.state.table(), model.state.master(), model.config, folder / name);
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder / name)) {
      files.insert(entry.path().filename().string());
    }
    CHECK(files == std::set<std::string>{"config.json", "model.safetensors"});
  }

  const SafetensorsFile file(folder / "linked/model.safetensors");
  CHECK(file.metadata().at("format") == "pt");
  CHECK_FALSE(file.tensors().contains("lm_head.weight"));
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    CHECK(entry.path().string().find(".writing-") == std::string::npos);
  }
}

TEST_CASE("a destination that is in use is refused and left as it was") {
  const ScratchFolder folder;
  TestModel model(config_of("gpt2", true), 1);
  test::write_file(folder / "file", "mine");
  fs::create_directory(folder / "full");
  test::write_file(folder / "full/config.json", "mine");

  const auto refusal = [&](const std::string& name) {
    return request_error_of([&] {
      export_hugging_face(model.state.table(), model.state.master(), model.config, name);
    });
  };

  CHECK_THAT(refusal(folder / "file"), Catch::Contains("exists"));
  CHECK_THAT(refusal(folder / "full"), Catch::Contains("exists"));
  CHECK_THAT(refusal(folder.path()), Catch::Contains("exists"));
  CHECK_THAT(refusal(""), Catch::Contains("destination"));
  CHECK_THROWS_AS(
      export_hugging_face(
          model.state.table(), model.state.master(), model.config, folder / "file/below"),
      Error);

  CHECK(test::read_file(folder / "file") == "mine");
  CHECK(test::read_file(folder / "full/config.json") == "mine");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("models that transformers does not have are not exported") {
  const ScratchFolder folder;
  ModelConfig mlp;
  mlp.architecture = "mlp";
  mlp.layer_sizes = {4, 3};
  TestModel mlp_model(mlp, 1);
  ModelConfig grouped = config_of("gpt2", true);
  grouped.num_kv_heads = 2;
  TestModel grouped_model(grouped, 1);

  const auto refusal = [&](const TestModel& model) {
    return request_error_of([&] {
      export_hugging_face(model.state.table(), model.state.master(), model.config, folder / "out");
    });
  };

  CHECK_THAT(refusal(mlp_model), Catch::Contains("mlp"));
  CHECK_THAT(refusal(grouped_model), Catch::Contains("num_kv_heads"));
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace lockstep

#include "cli/validate.h"

#include "support/catch.h"
#include "unit/cli/request_helpers.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using lockstep::refusal_of;
using lockstep::Request;
using lockstep::request_of;

namespace {

using Words = std::vector<std::string>;

std::string refusal_with(const Words& flags) {
  Words words{"--print-config"};
  words.insert(words.end(), flags.begin(), flags.end());
  return refusal_of(words);
}

}  // namespace

TEST_CASE("setting steps or epochs sets the other to 0, and both are refused") {
  const Request epochs = request_of({"--print-config", "--train.epochs", "2"});
  CHECK(epochs.config.train.steps == 0);
  CHECK(epochs.config.train.epochs == 2);

  const Request steps = request_of({"--print-config", "--train.steps", "7"});
  CHECK(steps.config.train.steps == 7);
  CHECK(steps.config.train.epochs == 0);

  CHECK(refusal_with({"--train.steps", "0", "--train.epochs", "2"}).empty());
  CHECK(refusal_with({"--train.steps", "2", "--train.epochs", "0"}).empty());
  CHECK(request_of({"--print-config", "--train.epochs", "0"}).config.train.steps == 1000);
  CHECK_THAT(
      refusal_with({"--train.steps", "5", "--train.epochs", "2"}),
      Contains("--train.steps = 5") && Contains("--train.epochs = 2") && Contains("give one"));
  CHECK_THAT(refusal_with({"--train.steps", "0"}), Contains("at least 1"));
}

TEST_CASE("a printed configuration in epochs can be read again") {
  const Request request = request_of({"--print-config", "--train.epochs", "2"});
  lockstep::Configuration back;

  lockstep::apply_toml(back, to_toml(request.config), "run.toml");

  CHECK_NOTHROW(lockstep::check_configuration(back));
  CHECK(back.train.epochs == 2);
  CHECK(back.train.steps == 0);
}

TEST_CASE("heads must divide, and the message lists what would") {
  CHECK_THAT(refusal_with({"--model.num_heads", "5"}),
             StartsWith("--model.num_heads = 5 does not divide model.hidden_size = 384") &&
                 Contains("valid: 1, 2, 3, 4, 6, 8"));
  CHECK_THAT(refusal_with({"--model.architecture", "llama", "--model.num_kv_heads", "4"}),
             StartsWith("--model.num_kv_heads = 4 does not divide model.num_heads = 6") &&
                 Contains("1, 2, 3, 6"));
  CHECK_THAT(refusal_with({"--model.num_kv_heads", "2"}), Contains("gpt2") && Contains("0, 6"));
  CHECK_THAT(refusal_with({"--model.architecture", "llama", "--model.hidden_size", "18"}),
             Contains("18 / 6 = 3 is odd"));
  CHECK(refusal_with({"--model.architecture", "llama", "--model.num_kv_heads", "2"}).empty());
}

TEST_CASE("an mlp needs two sizes and images") {
  const Words mlp{"--model.architecture", "mlp", "--data.kind", "images"};
  CHECK(refusal_with(mlp).empty());

  Words one = mlp;
  one.insert(one.end(), {"--model.layer_sizes", "784"});
  CHECK_THAT(refusal_with(one),
             StartsWith("--model.layer_sizes = [784]") && Contains("at least two"));
  CHECK_THAT(refusal_with({"--model.architecture", "mlp"}),
             StartsWith("data.kind = \"tokens\" (default) does not fit") &&
                 Contains("images | synthetic"));
  CHECK_THAT(refusal_with({"--data.kind", "images"}), Contains("valid: tokens | synthetic"));
}

TEST_CASE("sizes of a model that comes from elsewhere are checked when they are known") {
  CHECK(refusal_with({"--model.num_heads", "9", "--model.init_from", "folder"}).empty());
}

TEST_CASE("batch sizes need not divide") {
  CHECK(refusal_with({"--train.global_batch_size", "10", "--train.micro_batch_size", "4"}).empty());
  CHECK(refusal_with({"--train.global_batch_size", "2"}).empty());
  CHECK_THAT(refusal_with({"--train.micro_batch_size", "0"}), Contains("from 1 to"));
}

TEST_CASE("what is not yet available is refused with its key and value") {
  const Words cases[] = {{"--run.precision", "fp8"},
                         {"--generate.chat", "true"},
                         {"--generate.max_tokens", "5"},
                         {"--quantize.bits", "4"},
                         {"--prune.sparsity", "0.25"}};
  for (const Words& words : cases) {
    INFO(words.front());
    CHECK_THAT(refusal_with(words),
               StartsWith(words[0] + " = ") && Contains(words[1]) &&
                   Contains("is not yet available; available: "));
  }
}

TEST_CASE("only gpt2 has dropout") {
  CHECK(refusal_with({"--model.dropout", "0.1"}).empty());
  CHECK_THAT(refusal_with({"--model.dropout", "0.1", "--model.architecture", "llama"}),
             StartsWith("--model.dropout = 0.1: --model.architecture = \"llama\" has no dropout") &&
                 Contains("gpt2"));
  CHECK_THAT(
      refusal_with(
          {"--model.dropout", "0.1", "--model.architecture", "mlp", "--data.kind", "images"}),
      StartsWith("--model.dropout = 0.1: --model.architecture = \"mlp\" has no dropout"));
  CHECK_THAT(refusal_with({"--model.dropout", "1"}), Contains("below 1"));
}

TEST_CASE("full recomputation does not go with backward passes in two parts") {
  const Words words{"--train.recompute", "full", "--parallel.schedule", "zero-bubble"};
  Words pipeline = words;
  pipeline.insert(pipeline.end(), {"--parallel.pipeline", "2"});
  CHECK_THAT(refusal_with(pipeline),
             StartsWith("--train.recompute = \"full\"") && Contains("zero-bubble") &&
                 Contains("none | selective") && Contains("1f1b"));
  CHECK(refusal_with(words).empty());  // no pipeline, no parts
  pipeline[1] = "selective";
  CHECK(refusal_with(pipeline).empty());
}

TEST_CASE("defaults of later capabilities and what is available are accepted") {
  CHECK(refusal_with({"--parallel.tensor",
                      "1",
                      "--parallel.schedule",
                      "1f1b",
                      "--parallel.sequence",
                      "false",
                      "--generate.temperature",
                      "1.0",
                      "--quantize.bits",
                      "8",
                      "--model.dropout",
                      "0"})
            .empty());
  CHECK(refusal_with({"--parallel.reduction",
                      "native",
                      "--parallel.virtual_data",
                      "4",
                      "--parallel.virtual_tensor",
                      "2",
                      "--parallel.bucket_mib",
                      "1",
                      "--parallel.overlap",
                      "false",
                      "--parallel.data",
                      "2",
                      "--parallel.backend",
                      "mpi",
                      "--run.device",
                      "cpu",
                      "--run.precision",
                      "bf16",
                      "--checkpoint.async",
                      "false"})
            .empty());
}

TEST_CASE("a trace is a range of steps") {
  CHECK(refusal_with({"--log.trace", "12:14"}).empty());
  for (const char* trace : {"12", "14:12", "12:12", "a:b", "-1:2", ":", "1:", "1:2:3", "1:2 "}) {
    INFO(trace);
    CHECK_THAT(refusal_with({"--log.trace", trace}), Contains("12:14"));
  }
}

TEST_CASE("the decay of a wsd schedule fits behind its warm-up") {
  const Words wsd{"--lr_schedule.name", "wsd", "--train.steps", "100", "--lr_schedule.decay_steps"};
  Words fits = wsd;
  fits.emplace_back("50");
  Words too_long = wsd;
  too_long.emplace_back("51");

  CHECK(refusal_with(fits).empty());
  CHECK_THAT(refusal_with(too_long),
             StartsWith("--lr_schedule.decay_steps = 51") && Contains("0 to 50"));
}

TEST_CASE("a command names the keys it cannot do without") {
  CHECK_THAT(refusal_of({"train"}), StartsWith("data.train must be set"));
  CHECK_THAT(refusal_of({"train", "--data.train="}), StartsWith("data.train must be set"));
  CHECK(refusal_of({"train", "--data.kind", "synthetic"}).empty());
  CHECK_THAT(refusal_of({"tokenize"}), StartsWith("tokenize.input must be set"));
  CHECK_THAT(refusal_of({"tokenize", "--tokenize.input", "a", "--tokenize.output", "b"}),
             StartsWith("data.tokenizer must be set"));
  CHECK(refusal_of({"evaluate"}).empty());
}

TEST_CASE("a learning rate of 0 is valid, and a schedule that rises is pointed out") {
  CHECK(request_of({"--print-config"}).warnings.empty());
  const Request request = request_of({"--print-config", "--optimizer.lr", "0"});

  REQUIRE(request.warnings.size() == 1);
  CHECK_THAT(request.warnings.front(),
             Contains("lr_schedule.min_lr = 0.0001 (default)") && Contains("--optimizer.lr = 0"));
}

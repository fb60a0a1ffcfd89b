#include "cli/request.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "support/catch.h"
#include "unit/cli/request_helpers.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using lockstep::Command;
using lockstep::refusal_of;
using lockstep::Request;
using lockstep::request_of;

namespace {

using Words = std::vector<std::string>;

struct Refused {
  Words words;
  const char* begin;
  const char* fragment;
};

void check_refused(const std::vector<Refused>& cases) {
  for (const Refused& c : cases) {
    INFO(c.words.back());
    CHECK_THAT(refusal_of(c.words), StartsWith(c.begin) && Contains(c.fragment));
  }
}

}  // namespace

TEST_CASE("flags stand before or after the command, with a space or an equals sign") {
  const Words lines[] = {{"train", "--train.steps", "5", "--data.train=x"},
                         {"--train.steps=5", "train", "--data.train", "x"},
                         {"--train.steps", "5", "--data.train", "x", "train"}};
  for (const Words& words : lines) {
    const Request request = request_of(words);

    CHECK(request.kind == Request::Kind::kCommand);
    CHECK(request.command == Command::kTrain);
    CHECK(request.config.train.steps == 5);
    CHECK(request.config.data.train == "x");
    CHECK(request.config.is_set("train.steps"));
    CHECK_FALSE(request.config.is_set("train.epochs"));
  }
}

TEST_CASE("the command line wins over the file, and the file over the defaults") {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lockstep-request-test-" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << "[train]\nsteps = 7\nglobal_batch_size = 8\n[data]\ntrain = 'file'\n"
                      << "[quantize]\nbits = 4\n";

  const Request request = request_of(
      {"train", "--config", path.string(), "--train.steps", "9", "--quantize.bits", "8"});
  const std::string refusal = refusal_of({"train", "--config", path.string()});
  std::filesystem::remove(path);

  CHECK(request.config.train.steps == 9);
  CHECK(request.config.train.global_batch_size == 8);
  CHECK(request.config.train.micro_batch_size == 4);
  CHECK(request.config.data.train == "file");
  CHECK(describe_setting(request.config, "train.steps") == "--train.steps = 9");
  CHECK(describe_setting(request.config, "train.global_batch_size") ==
        path.string() + ":3: train.global_batch_size = 8");
  CHECK(refusal == path.string() + ":7: quantize.bits = 4 is not yet available; available: 8");
}

TEST_CASE("booleans are true, false or bare, and leave the command's words alone") {
  CHECK(request_of({"--print-config", "--fault.nan", "skip"}).config.log.progress);
  CHECK_FALSE(request_of({"--print-config", "--log.progress", "false"}).config.log.progress);
  CHECK_FALSE(request_of({"--print-config", "--log.progress=false"}).config.log.progress);
  CHECK(request_of({"--print-config", "--evaluate.json"}).config.evaluate.json);
  CHECK(request_of({"--evaluate.json", "--print-config"}).config.evaluate.json);
  CHECK(request_of({"--evaluate.json", "evaluate"}).command == Command::kEvaluate);

  const Request request = request_of({"checkpoint", "inspect", "--evaluate.json", "run"});
  CHECK(request.config.evaluate.json);
  CHECK(request.arguments == Words{"run"});
}

TEST_CASE("lists are words or one TOML list") {
  const Words lines[] = {{"--model.layer_sizes", "784", "128", "10", "--print-config"},
                         {"--model.layer_sizes", "[784,128, 10]", "--print-config"},
                         {"--model.layer_sizes=[784, 128, 10]", "--print-config"}};
  for (const Words& words : lines) {
    CHECK(request_of(words).config.model.layer_sizes == std::vector<long>{784, 128, 10});
  }
  CHECK(request_of({"--print-config", "--generate.stop", "[]"}).config.generate.stop.empty());
}

TEST_CASE("values may be empty, negative or look like flags") {
  const Request request = request_of({"--print-config",
                                      "--data.train=--strange",
                                      "--data.validation=",
                                      "--data.ignore_token",
                                      "-1",
                                      "--data.tokenizer",
                                      ""});

  CHECK(request.config.data.train == "--strange");
  CHECK(request.config.data.validation.empty());
  CHECK(request.config.is_set("data.validation"));
  CHECK(request.config.data.ignore_token == -1);
  CHECK(request.config.data.tokenizer.empty());
}

TEST_CASE("checkpoint takes its action and its paths") {
  const Request inspect = request_of({"checkpoint", "inspect", "a", "--log.level", "debug"});
  const Request exported = request_of({"checkpoint", "--log.level=debug", "export", "a", "b"});

  CHECK(inspect.command == Command::kCheckpointInspect);
  CHECK(inspect.arguments == Words{"a"});
  CHECK(exported.command == Command::kCheckpointExport);
  CHECK(exported.arguments == Words{"a", "b"});
  check_refused({{{"checkpoint"}, "checkpoint needs an action", "inspect | verify"},
                 {{"checkpoint", "look", "a"}, "checkpoint needs an action before look", "export"},
                 {{"checkpoint", "verify"}, "checkpoint verify needs SOURCE", ""},
                 {{"checkpoint", "export", "a"}, "checkpoint export needs SOURCE and DEST", ""},
                 {{"checkpoint", "inspect", "a", "b"}, "checkpoint inspect: unexpected", "'b'"}});
}

TEST_CASE("help and version win over everything else") {
  CHECK(request_of({"--help"}).kind == Request::Kind::kHelp);
  CHECK(request_of({"train", "--nonsense", "-h"}).kind == Request::Kind::kHelp);
  CHECK(request_of({"--version"}).kind == Request::Kind::kVersion);
  CHECK(request_of({"generate", "--help"}).kind == Request::Kind::kHelp);
}

TEST_CASE("commands that are missing, unknown, doubled or later are refused") {
  check_refused({{{""}, "unknown command ''", ""},
                 {{"--train.steps", "5"}, "no command given", "--help"},
                 {{"trian"}, "unknown command 'trian'", "nearest is train"},
                 {{"train", "evaluate"}, "one command at a time", "train and evaluate"},
                 {{"train", "now", "--data.train", "x"}, "train: unexpected argument 'now'", ""}});
  CHECK_THAT(refusal_of({}), StartsWith("no command given"));
  for (const char* name : {"generate", "prune", "quantize", "doctor"}) {
    CHECK_THAT(refusal_of({name}), Contains(name) && Contains("is not yet available"));
  }
  CHECK_THAT(refusal_of({"checkpoint", "import", "a", "b"}),
             Contains("checkpoint import is not yet available"));
  CHECK_THAT(refusal_of({"bench", "collectives"}),
             Contains("bench collectives is not yet available"));
}

TEST_CASE("bench takes the action kernels") {
  const Request request = request_of({"bench", "kernels", "--json", "--run.device", "cpu"});

  CHECK(request.command == Command::kBenchKernels);
  CHECK(request.json);
  CHECK_FALSE(request_of({"bench", "kernels"}).json);
  check_refused(
      {{{"bench"}, "bench needs an action", "kernels | collectives"},
       {{"bench", "kernel"}, "bench needs an action before kernel", "kernels"},
       {{"bench", "kernels", "matmul"}, "bench kernels: unexpected", "'matmul'"},
       {{"bench", "kernels", "--json=1"}, "--json takes no value", ""},
       {{"bench", "kernels", "--draw-schedule"}, "--draw-schedule belongs", "plan"},
       {{"bench", "kernels", "--run.precision", "f16"}, "--run.precision", "f32 | bf16"},
       {{"bench", "kernels", "--model.num_heads", "5"}, "--model.num_heads = 5", "valid: 1"}});
}

TEST_CASE("flags of plan belong to plan, and those of its memory do not go with its drawing") {
  const Request memory = request_of({"plan", "--json", "--ranks-per-host", "8"});
  CHECK(memory.json);
  CHECK(memory.ranks_per_host == 8);
  CHECK_FALSE(memory.draw_schedule);
  CHECK(request_of({"plan"}).ranks_per_host == 0);
  CHECK(request_of({"plan", "--ranks-per-host=2"}).ranks_per_host == 2);
  CHECK(request_of({"plan", "--draw-schedule"}).draw_schedule);
  check_refused({{{"train", "--draw-schedule"}, "--draw-schedule belongs to the command plan", ""},
                 {{"train", "--json"}, "--json belongs to the commands plan and bench kernels", ""},
                 {{"--ranks-per-host", "2", "train"}, "--ranks-per-host belongs", ""},
                 {{"plan", "--ranks-per-host", "0"}, "--ranks-per-host = 0", "at least 1"},
                 {{"plan", "--ranks-per-host", "two"}, "--ranks-per-host = two", "an integer"},
                 {{"plan", "--ranks-per-host"}, "--ranks-per-host needs a value", "an integer"},
                 {{"plan", "--ranks-per-host="}, "--ranks-per-host", ""},
                 {{"plan", "--draw-schedule", "--json"}, "--json does not go with", "draw"},
                 {{"plan", "--draw-schedule=true"}, "--draw-schedule takes no value", ""},
                 {{"plan", "--draw-schedule", "now"}, "plan: unexpected argument 'now'", ""}});
}

TEST_CASE("flags that are unknown, doubled or without their value are refused") {
  check_refused(
      {{{"train", "--train.stepz", "5"}, "unknown flag --train.stepz", "--train.steps"},
       {{"train", "--trian.steps=5"}, "unknown flag --trian.steps", "--train.steps"},
       {{"train", "--steps", "5"}, "unknown flag --steps", "--train.steps"},
       {{"train", "--print_config"}, "unknown flag --print_config", "--print-config"},
       {{"train", "-train.steps", "5"}, "unknown flag -train.steps", "--train.steps"},
       {{"train", "--train.steps", "5", "--train.steps=6"}, "--train.steps is given twice", ""},
       {{"train", "--config", "a", "--config", "b"}, "--config is given twice", ""},
       {{"train", "--train.steps"}, "--train.steps needs a value", "an integer"},
       {{"train", "--data.train", "--train.steps", "5"}, "--data.train needs a value", "text"},
       {{"train", "--model.layer_sizes"}, "--model.layer_sizes needs a value", "[784, 10]"},
       {{"train", "--config"}, "--config needs a value", "a file"},
       {{"train", "--config="}, "--config needs a value", "a file"},
       {{"train", "--print-config=true"}, "--print-config takes no value", ""}});
}

TEST_CASE("flags with a wrong value are refused with what is valid") {
  check_refused(
      {{{"train", "--train.steps", "10.0"}, "--train.steps = 10.0", "an integer from 0"},
       {{"train", "--train.steps", "ten"}, "--train.steps = ten", "an integer from 0"},
       {{"train", "--train.steps="}, "--train.steps = ", "an integer from 0"},
       {{"train", "--train.steps", "-1"}, "--train.steps = -1", "an integer from 0"},
       {{"train", "--train.steps", "9223372036854775808"}, "--train.steps = 9223", "from 0"},
       {{"train", "--optimizer.lr", "nan"}, "--optimizer.lr = nan", "a finite number"},
       {{"train", "--optimizer.lr", "-inf"}, "--optimizer.lr = -inf", "a finite number"},
       {{"train", "--optimizer.lr", "1e999"}, "--optimizer.lr = 1e999", "a finite number"},
       {{"train", "--data.shuffle", "maybe"}, "--data.shuffle = maybe", "true | false"},
       {{"train", "--data.shuffle=1"}, "--data.shuffle = 1", "true | false"},
       {{"train", "--model.layer_sizes", "7", "x"}, "--model.layer_sizes = 7 x", "integers"},
       {{"train", "--model.layer_sizes", "[7,"}, "--model.layer_sizes = [7,", "[784, 10]"},
       {{"train", "--model.layer_sizes", "[7]\na=[]"}, "--model.layer_sizes = ", "[784, 10]"},
       {{"train", "--data.train", "\xff"}, "--data.train = text that is not UTF-8", "text"},
       {{"train", "--run.precision", "f16"}, "--run.precision = \"f16\"", "f32 | bf16 | fp8"}});
}

TEST_CASE("the configuration may be printed without a command or data") {
  const Request request = request_of({"--print-config", "--train.epochs", "3"});

  CHECK(request.kind == Request::Kind::kPrintConfig);
  CHECK(request.command == Command::kNone);
  CHECK(request.config.train.epochs == 3);
  CHECK(request_of({"train", "--print-config"}).command == Command::kTrain);
}

#ifdef NDEBUG  // a promise of the optimised build
TEST_CASE("reading a command line takes less than ten milliseconds") {
  request_of({"--print-config"});
  double fastest = 1e9;
  for (int i = 0; i < 10; ++i) {  // the fastest one: others may have the cores
    const auto begin = std::chrono::steady_clock::now();
    request_of({"--print-config", "--train.steps", "5", "--model.layer_sizes", "1", "2"});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    fastest = std::min(fastest, took.count());
  }

  CHECK(fastest < 10.0);
}
#endif

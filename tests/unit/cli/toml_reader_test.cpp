#include "cli/toml_reader.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "cli/key_table.h"
#include "support/catch.h"
#include "unit/cli/request_helpers.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using lockstep::apply_toml;
using lockstep::apply_toml_file;
using lockstep::Configuration;
using lockstep::Key;
using lockstep::key_table;
using lockstep::refusal_of;
using lockstep::refusal_of_toml;
using lockstep::to_toml;

namespace {

struct Refused {
  const char* text;
  const char* begin;     // file and line
  const char* fragment;  // what helps
};

// A folder of its own that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("lockstep-cli-test-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  [[nodiscard]] std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void check_same_values(const Configuration& a, const Configuration& b) {
  for (const Key& key : key_table()) {
    INFO(key.full_name());
    CHECK(key.get(a) == key.get(b));
  }
}

}  // namespace

TEST_CASE("a file sets keys in sections, dotted keys and inline tables") {
  Configuration config;

  apply_toml(config,
             "train.steps = 5\nmodel = { num_layers = 2, layer_sizes = [\n 1,\n 2, # two\n] }\n"
             "[optimizer]\nlr = 1\n'momentum' = 0.5\n[generate]\nstop = ['a', \"\\n\"]\n",
             "run.toml");

  CHECK(config.train.steps == 5);
  CHECK(config.model.num_layers == 2);
  CHECK(config.model.layer_sizes == std::vector<long>{1, 2});
  CHECK(config.optimizer.lr == 1.0);
  CHECK(config.optimizer.momentum == 0.5);
  CHECK(config.generate.stop == std::vector<std::string>{"a", "\n"});
  CHECK(config.is_set("optimizer.lr"));
  CHECK_FALSE(config.is_set("optimizer.beta1"));
  CHECK(describe_setting(config, "optimizer.lr") == "run.toml:7: optimizer.lr = 1.0");
  CHECK(describe_setting(config, "data.shuffle") == "data.shuffle = true (default)");
}

TEST_CASE("an empty file, comments, empty sections and Windows line ends are fine") {
  for (const char* text : {"", "\n\n", "# nothing\n", "[train]\n", "[train]\r\nsteps = 3\r\n"}) {
    CHECK(refusal_of_toml(text).empty());
  }
}

TEST_CASE("a name that is not known is refused with its line and the nearest key") {
  const Refused cases[] = {
      {"[train]\nsteps = 1\nstepz = 2\n", "run.toml:3: ", "unknown key 'train.stepz'"},
      {"[train]\nstepz = 2\n", "run.toml:2: ", "nearest known key is train.steps"},
      {"\n\nsteps = 2\n", "run.toml:3: ", "nearest known key is train.steps"},
      {"[trian]\nsteps = 2\n", "run.toml:2: ", "unknown section [trian]"},
      {"[trian]\nsteps = 2\n", "run.toml:2: ", "nearest known key is train.steps"},
      {"\n[trian]\n", "run.toml:2: ", "unknown section [trian]"},
      {"[model.deep]\nnum_layers = 2\n", "run.toml:2: ", "unknown section [model.deep]"},
      {"model.deep.num_layers = 2\n", "run.toml:1: ", "nearest known key is model.num_layers"},
      {"[model]\nhidden_size = 4\n[data]\n\ntrain.x = 1\n", "run.toml:5: ", "data.train"},
      {"train = 5\n", "run.toml:1: ", "train is a section: write [train]"},
      {"[[data]]\ntrain = 'x'\n", "run.toml:1: ", "data is a section: write [data]"},
      {"[train]\nlr = 0.1\n", "run.toml:2: ", "nearest known key is optimizer.lr"},
      {"[checkpoint]\nasync_write = true\n", "run.toml:2: ", "unknown key"},
      {"[train]\n\"a\\nb\" = 1\n", "run.toml:2: ", "train.\"a\\nb\""}};
  for (const Refused& c : cases) {
    INFO(c.text);
    CHECK_THAT(refusal_of_toml(c.text), StartsWith(c.begin) && Contains(c.fragment));
  }
}

TEST_CASE("the first mistake of a file is the one that is told") {
  CHECK_THAT(refusal_of_toml("[train]\nzzz = 1\n[data]\nyyy = 2\n"), StartsWith("run.toml:2: "));
}

TEST_CASE("a wrong type is refused with its line, the value and what is valid") {
  const Refused cases[] = {
      {"[train]\nsteps = 10.0\n", "run.toml:2: train.steps = 10", "expected an integer from 0"},
      {"[train]\nsteps = \"10\"\n", "run.toml:2: train.steps = \"10\"", "expected an integer"},
      {"[train]\nsteps = true\n", "run.toml:2: train.steps = true", "expected an integer"},
      {"[train]\nsteps = 2020-01-01\n", "run.toml:2: train.steps = 2020-01-01", "an integer"},
      {"[train]\nsteps = 10:00:00\n", "run.toml:2: train.steps = 10:00:00", "an integer"},
      {"[train]\nsteps = [1]\n", "run.toml:2: train.steps = a list", "expected an integer"},
      {"[train]\nsteps = {a = 1}\n", "run.toml:2: train.steps = a table", "expected an integer"},
      {"[train.steps]\n", "run.toml:1: train.steps = a table", "expected an integer"},
      {"[data]\nshuffle = 1\n", "run.toml:2: data.shuffle = 1", "expected true | false"},
      {"[data]\nshuffle = 'yes'\n", "run.toml:2: data.shuffle = \"yes\"", "true | false"},
      {"[data]\ntrain = 5\n", "run.toml:2: data.train = 5", "expected text"},
      {"[data]\ntrain = \"a\\u0000b\"\n", "run.toml:2: data.train = text with a zero", "text"},
      {"[optimizer]\nlr = '1'\n", "run.toml:2: optimizer.lr = \"1\"", "a finite number"},
      {"[model]\nlayer_sizes = 5\n", "run.toml:2: model.layer_sizes = 5", "a list of integers"},
      {"[model]\nlayer_sizes = [\n  1,\n  2.5,\n]\n",
       "run.toml:4: model.layer_sizes = 2.5",
       "a list of integers"},
      {"[model]\nlayer_sizes = [[1]]\n", "run.toml:2: model.layer_sizes = a list", "integers"},
      {"[generate]\nstop = ['a', 1]\n", "run.toml:2: generate.stop = 1", "a list of texts"}};
  for (const Refused& c : cases) {
    INFO(c.text);
    CHECK_THAT(refusal_of_toml(c.text), StartsWith(c.begin) && Contains(c.fragment));
  }
}

TEST_CASE("a value out of its range is refused with its line and the range") {
  const Refused cases[] = {
      {"[train]\nsteps = -1\n", "run.toml:2: train.steps = -1", "from 0 to"},
      {"train.steps = 9223372036854775807\n", "run.toml:1: train.steps = 9223", "from 0 to 1000"},
      {"[model]\nnum_heads = 0\n", "run.toml:2: model.num_heads = 0", "from 1 to 2147483647"},
      {"[model]\nlayer_sizes = [784, -10]\n",
       "run.toml:2: model.layer_sizes = [784, -10]",
       "a list of integers from 1"},
      {"[model]\narchitecture = 'gpt3'\n",
       "run.toml:2: model.architecture = \"gpt3\"",
       "expected mlp | gpt2 | llama"},
      {"[parallel]\nzero_stage = 4\n", "run.toml:2: parallel.zero_stage = 4", "0 | 1 | 2 | 3"},
      {"[optimizer]\nlr = nan\n", "run.toml:2: optimizer.lr = nan", "a finite number"},
      {"[optimizer]\nlr = inf\n", "run.toml:2: optimizer.lr = inf", "a finite number"},
      {"[optimizer]\nlr = -1e-3\n", "run.toml:2: optimizer.lr = -0.001", "of at least 0"},
      {"[optimizer]\nbeta1 = 1.0\n", "run.toml:2: optimizer.beta1 = 1.0", "below 1"},
      {"[optimizer]\nepsilon = 0.0\n", "run.toml:2: optimizer.epsilon = 0.0", "above 0"},
      {"[train]\noutput_dir = ''\n", "run.toml:2: train.output_dir = \"\"", "not empty"}};
  for (const Refused& c : cases) {
    INFO(c.text);
    CHECK_THAT(refusal_of_toml(c.text), StartsWith(c.begin) && Contains(c.fragment));
  }
}

TEST_CASE("what is not TOML is refused with its line") {
  const Refused cases[] = {{"[train]\nsteps = 1\nsteps = 2\n", "run.toml:3: ", "not TOML"},
                           {"[data]\n[train]\n[data]\n", "run.toml:3: ", "not TOML"},
                           {"train.steps = 1\n[train]\nsteps = 2\n", "run.toml:", "not TOML"},
                           {"[train]\nsteps =\n", "run.toml:2: ", "not TOML"},
                           {"[train]\nsteps\n", "run.toml:2: ", "not TOML"},
                           {"[train\nsteps = 1\n", "run.toml:1: ", "not TOML"},
                           {"[train]\nsteps = 99999999999999999999\n", "run.toml:2: ", "not TOML"},
                           {"[data]\ntrain = \"unfinished\n", "run.toml:2: ", "not TOML"},
                           {"[data]\ntrain = \"\xff\"\n", "run.toml:2: ", "not TOML"}};
  for (const Refused& c : cases) {
    INFO(c.text);
    CHECK_THAT(refusal_of_toml(c.text), StartsWith(c.begin) && Contains(c.fragment));
  }
}

TEST_CASE("a file that cannot be one is refused by name") {
  const TemporaryFolder folder;
  const std::string missing = folder.string() + "/missing.toml";
  const std::string large = folder.file("large.toml", std::string(5U << 20U, '\n'));
  Configuration config;

  CHECK_THAT(refusal_of({"--print-config", "--config", missing}),
             StartsWith(missing) && Contains("cannot read"));
  CHECK_THAT(refusal_of({"--print-config", "--config", folder.string()}),
             StartsWith(folder.string()) && Contains("a directory"));
  CHECK_THAT(refusal_of({"--print-config", "--config", "/dev/zero"}), Contains("regular file"));
  CHECK_THAT(refusal_of({"--print-config", "--config", large}), Contains("too many"));
  CHECK_NOTHROW(apply_toml_file(config, folder.file("empty.toml", "")));
}

TEST_CASE("the defaults, printed and read, are the defaults") {
  Configuration back;

  apply_toml(back, to_toml(Configuration{}), "run.toml");

  check_same_values(Configuration{}, back);
}

TEST_CASE("a printed configuration reads as the same values") {
  Configuration config;
  config.data.train = "quotes \" and \\ and \n\t\r\x01\x7f \xe2\x82\xac '''\"\"\" # [x] = 1";
  config.data.validation = " ";
  config.model.layer_sizes = {};
  config.generate.stop = {"", ",", "]", "\"", "\n"};
  config.optimizer.lr = 1.0 / 3.0;
  config.optimizer.epsilon = 4.9406564584124654e-324;
  config.optimizer.grad_clip = 1.7976931348623157e308;
  config.optimizer.weight_decay = 1e22;
  config.train.steps = 999999999999999;
  config.checkpoint.async_write = false;
  Configuration back;

  apply_toml(back, to_toml(config), "run.toml");

  check_same_values(config, back);
  CHECK(to_toml(back) == to_toml(config));
}

#include "cli/key_table.h"

#include <set>

#include "base/error.h"
#include "cli/help.h"
#include "support/catch.h"

using lockstep::Configuration;
using lockstep::describe_allowed;
using lockstep::find_key;
using lockstep::help_text;
using lockstep::is_available;
using lockstep::is_section;
using lockstep::Key;
using lockstep::key_table;
using lockstep::not_yet_available;
using lockstep::set_value;
using lockstep::to_toml;
using lockstep::Value;
using lockstep::version_text;

TEST_CASE("every key stands once, and sections are not torn apart") {
  std::set<std::string> names;
  std::set<std::string_view> sections;
  std::string_view section;
  for (const Key& key : key_table()) {
    CHECK(names.insert(key.full_name()).second);
    if (key.section != section) {
      section = key.section;
      CHECK(sections.insert(section).second);
    }
  }
  CHECK(sections.size() == 15);
}

TEST_CASE("every default is allowed and available") {
  for (const Key& key : key_table()) {
    INFO(key.full_name());
    Configuration config;
    CHECK_NOTHROW(set_value(config, key, key.default_value, "test"));
    CHECK(is_available(key, key.default_value));
  }
}

TEST_CASE("a set value is the one that is read back, and no other key changes") {
  Configuration config;
  set_value(config, *find_key("checkpoint.async"), Value(false), "test");
  set_value(config, *find_key("optimizer.beta2"), Value(0.5), "test");

  CHECK_FALSE(config.checkpoint.async_write);
  CHECK(config.optimizer.beta2 == 0.5);
  for (const Key& key : key_table()) {
    INFO(key.full_name());
    const bool changed = !(key.get(config) == key.default_value);
    CHECK(changed == config.is_set(key.full_name()));
  }
}

TEST_CASE("what is not yet available restricts keys that exist") {
  for (const auto& entry : not_yet_available()) {
    INFO(entry.key_or_section);
    CHECK((find_key(entry.key_or_section) != nullptr || is_section(entry.key_or_section)));
  }
}

TEST_CASE("ranges and choices are spelled out") {
  CHECK(describe_allowed(*find_key("model.architecture")) == "mlp | gpt2 | llama");
  CHECK(describe_allowed(*find_key("parallel.zero_stage")) == "0 | 1 | 2 | 3");
  CHECK(describe_allowed(*find_key("data.shuffle")) == "true | false");
  CHECK(describe_allowed(*find_key("model.num_heads")) == "an integer from 1 to 2147483647");
  CHECK(describe_allowed(*find_key("optimizer.lr")) == "a finite number of at least 0");
  CHECK(describe_allowed(*find_key("optimizer.epsilon")) == "a finite number above 0");
  CHECK(describe_allowed(*find_key("optimizer.beta1")) ==
        "a finite number of at least 0 and below 1");
}

TEST_CASE("the help shows every key below its section, with its default") {
  const std::string text = help_text();
  for (const Key& key : key_table()) {
    INFO(key.full_name());
    const std::size_t section = text.find(fmt::format("\n[{}]\n", key.section));
    const std::size_t flag = text.find(fmt::format("  --{} ", key.full_name()));
    REQUIRE(section != std::string::npos);
    REQUIRE(flag != std::string::npos);
    CHECK(section < flag);
    const std::string line = text.substr(flag, text.find('\n', flag) - flag);
    CHECK(line.find(fmt::format("[{}]", to_toml(key.default_value))) != std::string::npos);
  }
}

TEST_CASE("the version names the commit, the build and the first line of the MPI library") {
  const std::string text = version_text("Open MPI v4\nsecond line");

  for (const char* part : {"lockstep ",
                           "commit: ",
                           "build: ",
                           "LOCKSTEP_WERROR=",
                           "LOCKSTEP_CUDA=",
                           "devices: cpu\n",
                           "\nCUDA at build: ",
                           "compiler: ",
                           "MPI: Open MPI v4\n"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("second line") == std::string::npos);
}

#include "cli/nearest.h"

#include "cli/key_table.h"
#include "support/catch.h"

using lockstep::edit_distance;
using lockstep::key_names;
using lockstep::nearest_key;

TEST_CASE("the distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("steps", "steps") == 0);
  CHECK(edit_distance("", "lr") == 2);
  CHECK(edit_distance("step", "steps") == 1);
  CHECK(edit_distance("stepss", "steps") == 1);
  CHECK(edit_distance("stebs", "steps") == 1);
  CHECK(edit_distance("setps", "steps") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("a misspelt key suggests the right one") {
  const auto names = key_names();
  CHECK(nearest_key("train.step", names) == "train.steps");
  CHECK(nearest_key("trian.steps", names) == "train.steps");
  CHECK(nearest_key("model.hiden_size", names) == "model.hidden_size");
  CHECK(nearest_key("optimizer.beta_1", names) == "optimizer.beta1");
  CHECK(nearest_key("parallel.zero-stage", names) == "parallel.zero_stage");
}

TEST_CASE("a key in the wrong section or in none suggests its own section") {
  const auto names = key_names();
  CHECK(nearest_key("train.lr", names) == "optimizer.lr");
  CHECK(nearest_key("train.grad_clip", names) == "optimizer.grad_clip");
  CHECK(nearest_key("warmup_steps", names) == "lr_schedule.warmup_steps");
}

TEST_CASE("very long names and no candidates are answered") {
  CHECK_FALSE(nearest_key(std::string(1000000, 'x'), key_names()).empty());
  CHECK(nearest_key("steps", {}).empty());
}

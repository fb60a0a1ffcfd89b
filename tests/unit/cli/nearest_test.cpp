#include "cli/nearest.h"

#include "cli/key_table.h"
#include "support/catch.h"

using lockstep::edit_distance;
using lockstep::find_key;
using lockstep::key_names;
using lockstep::nearest_key;
using lockstep::other_names;

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

TEST_CASE("a key in its own section is nearer than the same name in another") {
  const auto names = key_names();
  CHECK(nearest_key("train.output", names) == "train.output_dir");
  CHECK(nearest_key("data.seed", names) == "run.seed");
}

TEST_CASE("abbreviated, missing and surplus words suggest the key that has the others") {
  const auto names = key_names();
  CHECK(nearest_key("train.batch_size", names) == "train.global_batch_size");
  CHECK(nearest_key("train.micro_batch", names) == "train.micro_batch_size");
  CHECK(nearest_key("model.n_layer", names) == "model.num_layers");
  CHECK(nearest_key("model.layers", names) == "model.num_layers");
  CHECK(nearest_key("model.num_hidden_layers", names) == "model.num_layers");
  CHECK(nearest_key("n_head", names) == "model.num_heads");
  CHECK(nearest_key("warmup", names) == "lr_schedule.warmup_steps");
  CHECK(nearest_key("train.log_interval", names) == "log.interval");
  CHECK(nearest_key("optimizer_lr", names) == "optimizer.lr");
}

TEST_CASE("what other programs call a key suggests it") {
  const auto names = key_names();
  CHECK(nearest_key("optimizer.learning_rate", names) == "optimizer.lr");
  CHECK(nearest_key("train.learning_rate", names) == "optimizer.lr");
  CHECK(nearest_key("learning-rate", names) == "optimizer.lr");
  CHECK(nearest_key("train.max_grad_norm", names) == "optimizer.grad_clip");
  CHECK(nearest_key("model.block_size", names) == "model.seq_length");
  CHECK(nearest_key("train.max_steps", names) == "train.steps");
  CHECK(nearest_key("optimizer.learing_rate", names) == "optimizer.lr");
  CHECK(nearest_key("foo", names) != "optimizer.weight_decay");  // which some call "wd"
}

TEST_CASE("every other name is one of a key that exists and suggests it") {
  const auto names = key_names();
  for (const auto& [name, key] : other_names()) {
    INFO(name);
    CHECK(find_key(key) != nullptr);
    CHECK(nearest_key(name, names) == key);
  }
}

TEST_CASE("very long names and no candidates are answered") {
  CHECK_FALSE(nearest_key(std::string(1000000, 'x'), key_names()).empty());
  CHECK(nearest_key("steps", {}).empty());
}

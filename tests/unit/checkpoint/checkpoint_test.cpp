#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "checkpoint/checkpoint_writer.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "unit/checkpoint/checkpoint_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::CheckpointModel;
using test::request_error_of;
using test::ScratchFolder;
using test::tiny_config;

const std::vector<std::string> kFiles{
    "model-00000.safetensors", "optimizer-00000.safetensors", "state.json"};

std::string name_of_step(long step) {
  return fmt::format("checkpoints/step-{:08d}", step);
}

void save(CheckpointModel& model, const std::string& run, const std::vector<long>& steps) {
  CheckpointWriter writer(
      run, {.keep = 10, .async_write = false}, model.state().view(), false, model.queue());
  for (const long step : steps) {
    model.update(step);
    writer.save(model.run_state(step));
  }
}

void flip_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
}

}  // namespace

TEST_CASE("weights and optimiser state come back whatever the numbers of blocks") {
  for (const int saved_blocks : {1, 2, 4}) {
    const ScratchFolder folder;
    CheckpointModel saved(saved_blocks);
    save(saved, folder.path(), {1, 2});
    for (const int blocks : {1, 2, 3}) {
      CheckpointModel loaded(blocks);
      load_checkpoint(folder / name_of_step(2), loaded.state().view(), false);

      CHECK(loaded.hash() == saved.hash());
    }
  }
}

TEST_CASE("training goes on after a load as if it had not stopped") {
  const ScratchFolder folder;
  CheckpointModel straight(2);
  save(straight, folder.path(), {1, 2});
  straight.update(3);
  CheckpointModel resumed(3);
  load_checkpoint(folder / name_of_step(2), resumed.state().view(), false);

  resumed.update(3);

  CHECK(resumed.hash() == straight.hash());
}

TEST_CASE("weights alone leave the optimiser's state as it was") {
  const ScratchFolder folder;
  CheckpointModel saved(1);
  save(saved, folder.path(), {1});
  CheckpointModel loaded(2);

  load_checkpoint(folder / name_of_step(1), loaded.state().view(), true);

  const ModelState& state = loaded.state();
  const auto count = static_cast<long>(state.master_bytes() / sizeof(float));
  const float* moments = state.optimizer().states()[0].data;
  CHECK(std::count(moments, moments + count, 0.0F) == count);
  CHECK(loaded.hash() != CheckpointModel(2).hash());
}

TEST_CASE("the state of a run comes back as it was saved") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  save(model, folder.path(), {3});

  const RunState state = read_run_state(folder / name_of_step(3));

  CHECK(state.step == 3);
  CHECK(state.samples == 18);
  CHECK(state.tokens == 126);
  CHECK(state.seed == 7);
  CHECK(state.virtual_data == 4);
  CHECK(state.virtual_tensor == 2);
  CHECK(state.fingerprint == "a machine");
  CHECK(state.model.architecture == "llama");
  CHECK(state.model.ffn_hidden_size == 37);
  CHECK(state.model.tie_embeddings);
}

TEST_CASE("the newest complete checkpoint is found through every way of naming a run") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  save(model, folder.path(), {1, 2, 10});

  const auto newest = find_newest_checkpoint(folder.path());

  REQUIRE(newest);
  CHECK(newest->path == folder / name_of_step(10));
  CHECK(newest->state.step == 10);
  CHECK(locate_checkpoint(folder.path()).state.step == 10);
  CHECK(locate_checkpoint(folder / "checkpoints").state.step == 10);
  CHECK(locate_checkpoint(folder / "checkpoints/latest").state.step == 10);
  CHECK(locate_checkpoint(folder / name_of_step(2)).state.step == 2);
}

TEST_CASE("a changed byte in any file is named and the checkpoint before is used") {
  for (const std::string& file : kFiles) {
    const ScratchFolder folder;
    CheckpointModel model(1);
    save(model, folder.path(), {1, 2});
    flip_last_byte(folder / (name_of_step(2) + "/" + file));

    const std::string damage = find_damage(folder / name_of_step(2), true);

    CHECK_THAT(damage, Catch::Contains(file));
    CHECK_THAT(damage, Catch::Contains("checksum"));
    CHECK(find_newest_checkpoint(folder.path())->state.step == 1);
    CHECK_THAT(request_error_of([&] { locate_checkpoint(folder / name_of_step(2)); }),
               Catch::Contains(file));
  }
}

TEST_CASE("a truncated or missing file is named without reading the others") {
  for (const std::string& file : kFiles) {
    const ScratchFolder folder;
    CheckpointModel model(1);
    save(model, folder.path(), {1, 2, 3});
    const std::string truncated = folder / (name_of_step(2) + "/" + file);
    fs::resize_file(truncated, fs::file_size(truncated) - 1);
    fs::remove(folder / (name_of_step(3) + "/" + file));

    CHECK_THAT(find_damage(folder / name_of_step(2), false),
               Catch::Contains(file) && Catch::Contains("were written"));
    CHECK_THAT(find_damage(folder / name_of_step(3), false),
               Catch::Contains(file) && Catch::Contains("missing"));
    CHECK(find_newest_checkpoint(folder.path())->state.step == 1);
  }
}

TEST_CASE("a checkpoint without its mark, or with a damaged one, is passed over") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  save(model, folder.path(), {1, 2, 3});
  fs::remove(folder / (name_of_step(3) + "/COMPLETE"));
  for (const char* text : {"", "{", "[]", "null", "{\"files\": 3}", "{\"files\": {\"a\": 1}}"}) {
    test::write_file(folder / (name_of_step(2) + "/COMPLETE"), text);

    INFO("COMPLETE holds " << text);
    CHECK_THAT(find_damage(folder / name_of_step(2), true), Catch::Contains("COMPLETE"));
    CHECK_THAT(find_damage(folder / name_of_step(3), true), Catch::Contains("no COMPLETE"));
    CHECK(find_newest_checkpoint(folder.path())->state.step == 1);
  }
}

TEST_CASE("a mark that does not vouch for every file is damage") {
  const ScratchFolder folder;
  CheckpointModel model(1);
  save(model, folder.path(), {1});
  for (const char* text : {"{\"files\": {}}", "{\"files\": []}"}) {
    test::write_file(folder / (name_of_step(1) + "/COMPLETE"), text);

    INFO("COMPLETE holds " << text);
    CHECK_FALSE(find_damage(folder / name_of_step(1), true).empty());
  }
}

TEST_CASE("a folder without a complete checkpoint is refused by name") {
  const ScratchFolder folder;

  CHECK_FALSE(find_newest_checkpoint(folder.path()));
  CHECK_THAT(request_error_of([&] { locate_checkpoint(folder.path()); }),
             Catch::Contains(folder.path()));
  CHECK_THAT(request_error_of([&] { locate_checkpoint(folder / "none"); }),
             Catch::Contains(folder / "none"));
}

TEST_CASE("a checkpoint of another model is refused and nothing is changed") {
  const ScratchFolder folder;
  CheckpointModel saved(1);
  save(saved, folder.path(), {1});
  ModelConfig wider = tiny_config("llama");
  wider.ffn_hidden_size = 38;
  ModelConfig deeper = tiny_config("llama");
  deeper.num_layers = 3;
  ModelConfig shallower = tiny_config("llama");
  shallower.num_layers = 1;
  const std::pair<ModelConfig, const char*> others[] = {
      {wider, "ffn"}, {deeper, "layers.2"}, {shallower, "parameters"}};
  for (const auto& [config, part] : others) {
    CheckpointModel other(1, config);
    const std::uint64_t before = other.hash();

    CHECK_THAT(request_error_of(
                   [&] { load_checkpoint(folder / name_of_step(1), other.state().view(), false); }),
               Catch::Contains(part) && Catch::Contains("safetensors"));
    CHECK(other.hash() == before);
  }
}

TEST_CASE("weights that are not finite are refused by name") {
  const ScratchFolder folder;
  CheckpointModel saved(1);
  const Parameter& parameter = saved.state().table()[2];
  saved.state().master()[parameter.offset] = std::numeric_limits<float>::quiet_NaN();
  CheckpointWriter(
      folder.path(), {.async_write = false}, saved.state().view(), false, saved.queue())
      .save(saved.run_state(1));
  CheckpointModel loaded(1);
  const std::uint64_t before = loaded.hash();

  CHECK_THAT(request_error_of(
                 [&] { load_checkpoint(folder / name_of_step(1), loaded.state().view(), true); }),
             Catch::Contains(parameter.name) && Catch::Contains("not finite"));
  CHECK(loaded.hash() == before);
}

}  // namespace lockstep

#include "parallel/model_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/bfloat16.h"
#include "device/cpu/cpu_queue.h"
#include "nn/model.h"
#include "support/catch.h"
#include "support/test_matrix.h"
#include "unit/nn/tiny_model.h"

namespace lockstep {
namespace {

using test::tiny_config;

struct State {
  State(const ModelConfig& config, int blocks, DType dtype = DType::kF32, int threads = 1)
      : queue(threads),
        model(make_model(config, dtype, blocks)),
        state(model->parameters(), dtype, {.name = "adamw"}, queue) {
    state.initialise(7);
  }

  // One update whose gradients are a function of the element as users see it.
  void update(long number) {
    std::vector<float> gradients(state.master_bytes() / sizeof(float), 0.0F);
    for (const Parameter& parameter : state.table().parameters()) {
      const std::vector<float> values =
          test_vector(parameter.num_elements(), site_of(parameter.name.c_str()));
      copy_from_canonical(parameter, values.data(), gradients.data());
    }
    state.update(gradients.data(), 0.01, 0.5F, number);
  }

  CpuQueue queue;
  std::unique_ptr<Model> model;
  ModelState state;
};

}  // namespace

TEST_CASE("the hash of equal weights does not depend on blocks or threads, also after updates") {
  for (const char* architecture : {"mlp", "gpt2", "llama"}) {
    State whole(tiny_config(architecture), 1);
    State cut(tiny_config(architecture), 3);
    State threaded(tiny_config(architecture), 2, DType::kF32, 3);
    CHECK(hash_of_model(whole.state.view()) == hash_of_model(cut.state.view()));
    for (const long number : {1L, 2L}) {
      for (State* each : {&whole, &cut, &threaded}) {
        each->update(number);
      }

      CHECK(hash_of_model(whole.state.view()) == hash_of_model(cut.state.view()));
      CHECK(hash_of_model(whole.state.view()) == hash_of_model(threaded.state.view()));
    }
  }
}

TEST_CASE("the hash tells a change of one bit in a weight or in the optimiser's state") {
  State state(tiny_config("gpt2"), 2);
  const std::uint64_t before = hash_of_model(state.state.view());
  const Parameter& parameter = state.state.table()[3];
  for (float* buffer : {state.state.master(), state.state.optimizer().states()[1].data}) {
    float& value = buffer[parameter.offset];
    const float old = value;
    value = std::nextafter(old, 2.0F);
    CHECK(hash_of_model(state.state.view()) != before);
    value = old;
    CHECK(hash_of_model(state.state.view()) == before);
  }
}

TEST_CASE("initialising again starts over, optimiser included") {
  State state(tiny_config("llama"), 2);
  const std::uint64_t before = hash_of_model(state.state.view());
  state.update(1);
  CHECK(hash_of_model(state.state.view()) != before);

  state.state.initialise(7);

  CHECK(hash_of_model(state.state.view()) == before);
}

TEST_CASE("padding stays zero through updates") {
  State state(tiny_config("llama", false), 4);
  state.update(1);
  state.update(2);

  const auto count = static_cast<long>(state.state.master_bytes() / sizeof(float));
  const long zeros = std::count(state.state.master(), state.state.master() + count, 0.0F);

  CHECK(zeros >= count - state.state.table().num_elements());
}

TEST_CASE("layers compute with the master weights rounded to bf16, after every change") {
  State state(tiny_config("gpt2"), 2, DType::kBF16);
  const auto not_rounded = [&] {
    const auto count = static_cast<long>(state.state.master_bytes() / sizeof(float));
    const auto* compute =
        reinterpret_cast<const BFloat16*>(state.state.weights().block(0, 0).data) -
        state.state.table()[0].offset;
    long different = 0;
    for (long i = 0; i < count; ++i) {
      different += to_float(compute[i]) != to_float(to_bfloat16(state.state.master()[i])) ? 1 : 0;
    }
    return different;
  };
  CHECK(state.state.compute_bytes() == state.state.master_bytes() / 2);
  CHECK(not_rounded() == 0);

  state.update(1);
  CHECK(not_rounded() == 0);

  state.state.master()[5] = 0.3F;
  CHECK(not_rounded() == 1);
  state.state.refresh_compute_copy();
  CHECK(not_rounded() == 0);
}

TEST_CASE("a hundred steps too small for bf16 move the weights") {
  State state(tiny_config("gpt2"), 1, DType::kBF16);
  const Parameter& gain = state.state.table()[1];  // ones: a bf16 step is 2^-8 below one
  REQUIRE(gain.initialisation == Initialisation::kOne);
  std::vector<float> gradients(state.state.master_bytes() / sizeof(float), 1.0F);
  constexpr double kLr = 0x1p-12;

  for (long number = 1; number <= 100; ++number) {
    state.state.update(gradients.data(), kLr, 1.0F, number);
  }

  // Equal gradients make Adam's step the learning rate, up to epsilon.
  const auto moved = 1.0 - static_cast<double>(state.state.master()[gain.offset]);
  CHECK(std::abs(moved - 100 * kLr) <= 100 * epsilon(DType::kF32));
  const auto* compute = state.state.weights().block(1, 0).as<BFloat16>();
  CHECK(to_float(compute[0]) < 1.0F);
}

TEST_CASE("copying a parameter to the user's order and back keeps it, whatever its blocks") {
  for (const int blocks : {1, 2, 3}) {
    State state(tiny_config("llama"), blocks);
    std::vector<float> flat(state.state.master_bytes() / sizeof(float), 0.0F);
    for (const Parameter& parameter : state.state.table().parameters()) {
      std::vector<float> canonical(static_cast<std::size_t>(parameter.num_elements()));
      copy_to_canonical(parameter, state.state.master(), canonical.data());
      copy_from_canonical(parameter, canonical.data(), flat.data());
    }
    CHECK(std::memcmp(flat.data(), state.state.master(), state.state.master_bytes()) == 0);
  }
}

}  // namespace lockstep

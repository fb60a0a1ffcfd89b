#include "parallel/model_view.h"

#include <algorithm>

#include "base/hash.h"

namespace lockstep {

std::vector<float*> ModelView::buffers() const {
  std::vector<float*> all{weights};
  for (const Optimizer::State& state : states) {
    all.push_back(state.data);
  }
  return all;
}

std::uint64_t hash_of_model(const ModelView& model) {
  Hasher hasher;
  std::vector<float> canonical;
  for (const float* buffer : model.buffers()) {
    for (const Parameter& parameter : model.table->parameters()) {
      canonical.resize(static_cast<std::size_t>(parameter.num_elements()));
      copy_to_canonical(parameter, buffer, canonical.data());
      hasher.update(canonical.data(), canonical.size() * sizeof(float));
    }
  }
  return hasher.digest();
}

void copy_to_canonical(const Parameter& parameter, const float* flat, float* canonical) {
  parameter.for_each_run([&](long user, long stored, long count) {
    std::copy_n(flat + parameter.offset + stored, count, canonical + user);
  });
}

void copy_from_canonical(const Parameter& parameter, const float* canonical, float* flat) {
  parameter.for_each_run([&](long user, long stored, long count) {
    std::copy_n(canonical + user, count, flat + parameter.offset + stored);
  });
}

}  // namespace lockstep

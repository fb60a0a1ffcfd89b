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
  std::vector<float> room(static_cast<std::size_t>(largest_tensor(*model.table)));
  return hash_of_model(model, room.data());
}

std::uint64_t hash_of_model(const ModelView& model, float* room) {
  Hasher hasher;
  for (std::size_t buffer = 0; buffer < model.num_buffers(); ++buffer) {
    for (const Parameter& parameter : model.table->parameters()) {
      model.read(buffer, parameter, room);
      hasher.update(room, static_cast<std::size_t>(parameter.num_elements()) * sizeof(float));
    }
  }
  return hasher.digest();
}

void ModelView::read(std::size_t buffer, const Parameter& parameter, float* canonical) const {
  if (access != nullptr) {
    access->read(buffer, parameter, canonical);
  } else {
    copy_to_canonical(parameter, flat(buffer), canonical);
  }
}

void ModelView::write(std::size_t buffer,
                      const Parameter& parameter,
                      const float* canonical) const {
  if (access != nullptr) {
    access->write(buffer, parameter, canonical);
  } else {
    copy_from_canonical(parameter, canonical, flat(buffer));
  }
}

long largest_tensor(const ParameterTable& table) {
  long largest = 0;
  for (const Parameter& parameter : table.parameters()) {
    largest = std::max(largest, parameter.num_elements());
  }
  return largest;
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

#include "parallel/model_state.h"

#include <algorithm>

#include "base/hash.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

std::vector<DecayRange> decay_ranges(const ParameterTable& table) {
  std::vector<DecayRange> ranges;
  for (const Parameter& parameter : table.parameters()) {
    const long end = parameter.offset + parameter.stored_elements();
    if (!ranges.empty() && ranges.back().decays == parameter.decays()) {
      ranges.back().end = end;
    } else {
      ranges.push_back({parameter.offset, end, parameter.decays()});
    }
  }
  return ranges;
}

std::size_t flat_bytes(const ParameterTable& table, DType dtype) {
  return static_cast<std::size_t>(table.flat_size()) * size_of(dtype);
}

}  // namespace

ModelState::ModelState(const ParameterTable& table,
                       DType dtype,
                       const OptimizerConfig& optimizer,
                       Queue& queue)
    : table_(&table),
      queue_(&queue),
      dtype_(dtype),
      master_(queue.allocate(flat_bytes(table, DType::kF32))),
      compute_(queue.allocate(dtype == DType::kF32 ? 0 : flat_bytes(table, dtype))),
      optimizer_(optimizer, decay_ranges(table), table.flat_size(), queue) {}

void ModelState::initialise(std::uint64_t seed) {
  launch(*queue_, FillZero{.data = master(), .bytes = master_.bytes()});
  for (const Optimizer::State& state : optimizer_.states()) {
    launch(*queue_, FillZero{.data = state.data, .bytes = master_.bytes()});
  }
  lockstep::initialise(*table_, seed, master(), *queue_);
  refresh_compute_copy();
}

void ModelState::refresh_compute_copy() {
  if (compute_.bytes() > 0) {
    launch(*queue_,
           CastToBFloat16{.from = master(), .to = compute_.data(), .count = table_->flat_size()});
  }
}

void ModelState::update(const float* gradients,
                        double lr,
                        float gradient_scale,
                        long update_number) {
  optimizer_.update(*queue_,
                    {.parameters = master(),
                     .gradients = gradients,
                     .compute_bf16 = compute_.bytes() > 0 ? compute_.data() : nullptr,
                     .lr = lr,
                     .gradient_scale = gradient_scale,
                     .update_number = update_number});
}

Weights ModelState::weights() const {
  return {*table_, compute_.bytes() > 0 ? compute_.data() : master_.data(), dtype_};
}

std::uint64_t ModelState::hash() const {
  Hasher hasher;
  std::vector<const float*> buffers{master()};
  for (const Optimizer::State& state : optimizer_.states()) {
    buffers.push_back(state.data);
  }
  std::vector<float> canonical;
  for (const float* buffer : buffers) {
    for (const Parameter& parameter : table_->parameters()) {
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

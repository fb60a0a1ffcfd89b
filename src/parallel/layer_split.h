// Which layers every stage of a pipeline has.
#pragma once

#include <vector>

#include "nn/model.h"
#include "nn/model_config.h"

namespace lockstep {

/// Cuts `num_layers` layers into `stages` runs, at least one layer each, so that the most expensive
/// stage costs the least, and of such cuts the one that is most even (least sum of squares), then the one
/// with fewer layers in front, where a pipeline keeps most micro-batches. Costs are in those of a layer:
/// `first` and `last` are added to the ends (embedding, head). Cost: stages * num_layers^2.
std::vector<IndexRange> split_layers(long num_layers, int stages, double first, double last);

/// The parts of a transformer for all global stages, balanced by operations.
std::vector<ModelPart> split_model(const ModelConfig& model, int stages);

}  // namespace lockstep

// Model FLOP utilisation: how much of the machine's peak the model's own arithmetic takes.
#pragma once

namespace lockstep {

/// What the count needs to know of a model.
struct FlopsModel {
  /// Parameters that every token is multiplied with: all but tables that are only looked up
  /// (positions; tokens, unless the table is tied to the output layer and so multiplied there).
  long matmul_parameters = 0;
  long num_layers = 0;   ///< with attention; 0 for an MLP
  long hidden_size = 0;  ///< heads x head_dim
  long seq_length = 0;
};

/// Operations a trained token: 6 N + 12 L H T, forward and backward (Chowdhery et al., "PaLM",
/// 2022, appendix B). Attention is counted in full, as there, although a causal one needs half;
/// recomputation is not counted. For an MLP it is the operations a sample.
constexpr double flops_per_token(const FlopsModel& model) {
  const double attention = static_cast<double>(model.num_layers) *
                           static_cast<double>(model.hidden_size) *
                           static_cast<double>(model.seq_length);
  return 6.0 * static_cast<double>(model.matmul_parameters) + 12.0 * attention;
}

/// The fraction of `peak_flops` (operations a second of all ranks together, measured or configured)
/// that `tokens_per_second` (global) takes. NaN, which metrics write as null, when no peak is known
/// (not above 0).
double model_flops_utilisation(double tokens_per_second,
                               double flops_of_a_token,
                               double peak_flops);

}  // namespace lockstep

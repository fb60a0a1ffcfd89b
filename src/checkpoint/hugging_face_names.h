// Which Hugging Face tensors a model's parameters are made of: names, shapes, transpositions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/model_config.h"
#include "nn/parameter_table.h"

namespace lockstep {

/// A tensor of a Hugging Face model and the rows of our parameter that it holds. GPT-2's Conv1D
/// weights are stored [in x out], ours are [out x in]; Llama's q, k, v and gate, up are tensors of
/// their own and rows of one parameter here.
struct HuggingFaceTensor {
  std::string name;         ///< as transformers writes it: "transformer.h.0.ln_1.weight"
  int parameter = -1;       ///< index in the table
  long first_row = 0;       ///< of the parameter; of a vector the first element
  std::vector<long> shape;  ///< in the file
  bool transposed = false;  ///< the file has [in x out]
  bool first_rows = false;  ///< the file may have more rows, which are not read (positions)

  [[nodiscard]] long num_elements() const { return shape[0] * (shape.size() == 2 ? shape[1] : 1); }
};

/// The tensors of a model in table order; the parts of a fused parameter follow one another by
/// row. A tied head is not among them. `table` is that of the model of `config`.
/// Errors: RequestError for a model that Hugging Face's GPT-2 and Llama cannot express.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config,
                                                    const ParameterTable& table);

/// "transformer." or "model.": what files of the model without its head leave out.
std::string_view hugging_face_prefix(const ModelConfig& config);

/// Name of the output projection; the tied one is the embedding again.
inline constexpr std::string_view kHuggingFaceHead = "lm_head.weight";

/// True for constants that older files store beside the weights: causal masks, rotary frequencies.
bool is_hugging_face_buffer(std::string_view name);

}  // namespace lockstep

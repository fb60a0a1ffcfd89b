#include "nn/dropout.h"

#include "kernels/dropout.h"

namespace lockstep {

DropoutSource LayerDropout::at(const Pass& pass, DropoutSite site) const {
  if (!drops(pass)) {
    return {};
  }
  return {.probability = probability,
          .seed = pass.place->seed,
          .step = pass.place->step,
          .site = site,
          .layer = layer};
}

AttentionDropout LayerDropout::of_heads(const Pass& pass, long first_head) const {
  if (!drops(pass)) {
    return {};
  }
  return {.source = at(pass, DropoutSite::kAttention),
          .first_sample = pass.place->first_sample,
          .first_head = first_head};
}

Matrix LayerDropout::apply(Pass& pass, DropoutSite site, Matrix x, Matrix y) const {
  if (!drops(pass)) {
    return x;
  }
  const IndexRange own = split.own_tokens(seq_length);
  launch(pass.queue,
         Dropout{.source = at(pass, site),
                 .rows = {.first_sample = pass.place->first_sample,
                          .tokens = own.size(),
                          .first_token = own.begin},
                 .x = x,
                 .y = y});
  return y;
}

}  // namespace lockstep

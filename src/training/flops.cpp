#include "training/flops.h"

#include <limits>

namespace lockstep {

double model_flops_utilisation(double tokens_per_second,
                               double flops_of_a_token,
                               double peak_flops) {
  if (!(peak_flops > 0.0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return tokens_per_second * flops_of_a_token / peak_flops;
}

}  // namespace lockstep

#include "training/flops.h"

#include <cmath>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("operations a token are six a parameter and twelve a layer, width and position") {
  CHECK(flops_per_token({10, 0, 0, 0}) == 60.0);
  CHECK(flops_per_token({10, 2, 3, 5}) == 60.0 + 12.0 * 30.0);
  CHECK(flops_per_token({100'000'000'000, 100, 10'000, 4'096}) == 6e11 + 12.0 * 4.096e9);
}

TEST_CASE("utilisation is the share of the peak, and unknown without one") {
  CHECK(model_flops_utilisation(100.0, 30.0, 6000.0) == 0.5);
  CHECK(std::isnan(model_flops_utilisation(100.0, 30.0, 0.0)));
  CHECK(std::isnan(model_flops_utilisation(100.0, 30.0, std::nan(""))));
}

}  // namespace lockstep

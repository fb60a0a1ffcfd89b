#include "kernels/dropout.h"

#include "operand.h"
#include "support/catch.h"

namespace lockstep {

TEST_CASE("dropout on a GPU has the bits of the CPU") {
  TwinQueues queues;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const long cols : {1L, 16L, 37L, 300L}) {
      for (const Placement placement : kPlacements) {
        CAPTURE(name_of(dtype), cols, placement.offset);
        Operand x(queues, dtype, 6, cols, 1, placement);
        Operand y(queues, dtype, 6, cols, 2, placement);
        Dropout op{.source = {.probability = 0.3,
                              .seed = 5,
                              .step = 7,
                              .site = DropoutSite::kFeedForward,
                              .layer = 3},
                   .rows = {.first_sample = 9, .tokens = 3, .first_token = 2},
                   .x = x.cpu(),
                   .y = y.cpu()};
        launch(queues.cpu(), op);
        op.x = x.cuda();
        op.y = y.cuda();

        run_on_cuda(queues.cuda(), op);

        CHECK(same_bits(y.from_cuda(), y.from_cpu()));
        CHECK(y.surroundings_agree());
      }
    }
  }
}

}  // namespace lockstep

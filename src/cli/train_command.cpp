#include "cli/commands.h"
#include "cli/model_source.h"
#include "cli/rank_resources.h"
#include "cli/validate.h"
#include "training/collectively.h"
#include "training/trainer.h"

namespace lockstep {
namespace {

constexpr int kStoppedStatus = 75;

}  // namespace

int run_train(const Request& request, MpiRuntime& runtime) {
  const RankResources rank = start_rank(request.config, runtime);
  Configuration config = request.config;
  collectively(*rank.world, [&] {
    adopt_model_of_source(config);
    check_model(config);
  });
  return train(training_config(config), *rank.world, *rank.queue) == TrainingEnd::kStopped
             ? kStoppedStatus
             : 0;
}

}  // namespace lockstep

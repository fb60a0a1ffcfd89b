#include "optim/lr_schedule.h"

#include <cmath>
#include <string>

#include "base/dtype.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr double kPeak = 1e-3;
constexpr double kLow = 1e-4;

double rate(const std::string& name, long step, long warmup, long total, long decay = 0) {
  OptimizerConfig optimizer;
  optimizer.lr = kPeak;
  LrScheduleConfig schedule;
  schedule.name = name;
  schedule.warmup_steps = warmup;
  schedule.min_lr = kLow;
  schedule.decay_steps = decay;
  return learning_rate(optimizer, schedule, step, total);
}

// A handful of operations in f64.
bool close(double a, double b) {
  return std::abs(a - b) <= 8 * epsilon(DType::kF64) * kPeak;
}

}  // namespace

TEST_CASE("warm-up rises from the first share of the peak to the peak") {
  for (const char* name : {"constant", "linear", "cosine", "wsd"}) {
    CHECK(close(rate(name, 0, 10, 100), kPeak / 10));
    CHECK(close(rate(name, 4, 10, 100), kPeak / 2));
    CHECK(rate(name, 9, 10, 100) == kPeak);
    CHECK(close(rate(name, 10, 10, 100), kPeak));
  }
}

TEST_CASE("without warm-up the first step has the peak") {
  for (const char* name : {"constant", "linear", "cosine", "wsd"}) {
    CHECK(close(rate(name, 0, 0, 100), kPeak));
  }
}

TEST_CASE("constant stays at the peak to the last step") {
  CHECK(rate("constant", 99, 10, 100) == kPeak);
}

TEST_CASE("linear falls in equal steps and would reach the minimum after the last one") {
  CHECK(close(rate("linear", 55, 10, 100), (kPeak + kLow) / 2));
  CHECK(close(rate("linear", 99, 10, 100), kLow + (kPeak - kLow) / 90));
  CHECK(close(rate("linear", 100, 10, 100), kLow));
}

TEST_CASE("cosine is half way in the middle and would reach the minimum after the last step") {
  CHECK(close(rate("cosine", 55, 10, 100), (kPeak + kLow) / 2));
  CHECK(close(rate("cosine", 40, 10, 100), kLow + (kPeak - kLow) * 0.75));  // cos(pi/3) = 1/2
  CHECK(close(rate("cosine", 100, 10, 100), kLow));
}

TEST_CASE("wsd keeps the peak and falls over its last steps alone") {
  CHECK(rate("wsd", 79, 10, 100, 20) == kPeak);
  CHECK(close(rate("wsd", 80, 10, 100, 20), kPeak));
  CHECK(close(rate("wsd", 90, 10, 100, 20), (kPeak + kLow) / 2));
  CHECK(close(rate("wsd", 99, 10, 100, 20), kLow + (kPeak - kLow) / 20));
  CHECK(rate("wsd", 99, 10, 100, 0) == kPeak);
}

TEST_CASE("a run that is all warm-up ends at the peak") {
  for (const char* name : {"linear", "cosine"}) {
    CHECK(rate(name, 9, 10, 10) == kPeak);
    CHECK(close(rate(name, 10, 10, 10), kPeak));
  }
}

TEST_CASE("a run shorter than its warm-up does not reach the peak") {
  CHECK(close(rate("cosine", 4, 10, 5), kPeak / 2));
}

}  // namespace lockstep

#include "base/dropout_mask.h"

#include <cmath>

#include "support/catch.h"

namespace lockstep {
namespace {

constexpr DropoutSource kSource{.probability = 0.3,
                                .seed = (1ULL << 40U) + 7,
                                .step = 4,
                                .site = DropoutSite::kAttention,
                                .layer = 2};

template <typename Change>
std::array<std::uint32_t, 4> words_with(const Change& change, long head = 5) {
  DropoutSource source = kSource;
  change(source);
  return source.mask(head).words(9, 6, 3);
}

}  // namespace

TEST_CASE("masks are those of any other program with the same definition") {
  // Found with Philox written in Python: runs are resumed by other versions of this program.
  constexpr std::array<std::uint32_t, 4> kWords{0xba377f8c, 0xb7038881, 0xf97a3229, 0xbd065815};

  CHECK(kSource.mask(5).words(9, 6, 3) == kWords);
  CHECK(kSource.mask().threshold == 1288490189U);  // 0.3 * 2^32, rounded
  CHECK(kSource.mask().scale == static_cast<float>(1 / 0.7));
}

TEST_CASE("a mask depends on everything that it is a function of") {
  const auto words = words_with([](DropoutSource& /*source*/) {});

  CHECK(words != words_with([](DropoutSource& source) { source.seed = 7; }));
  CHECK(words != words_with([](DropoutSource& source) { source.step = 5; }));
  CHECK(words != words_with([](DropoutSource& source) { source.layer = 3; }));
  CHECK(words != words_with([](DropoutSource& source) { source.site = DropoutSite::kProjection; }));
  CHECK(words != words_with([](DropoutSource& /*source*/) {}, 6));
  const DropoutMask mask = kSource.mask(5);
  CHECK(words != mask.words(8, 6, 3));
  CHECK(words != mask.words(9, 7, 3));
  CHECK(words != mask.words(9, 6, 2));
}

TEST_CASE("elements are dropped at the rate of the probability, and the mean is kept") {
  constexpr long kCount = 40000;
  for (const double probability : {0.01, 0.1, 0.5, 0.9}) {
    DropoutSource source = kSource;
    source.probability = probability;
    const DropoutMask mask = source.mask();
    long dropped = 0;
    long other = 0;
    double sum = 0;
    for (long i = 0; i < kCount; ++i) {
      const float factor = mask.factor(i % 5, i / 5 % 8, i / 40);
      other += factor == 0.0F || factor == mask.scale ? 0 : 1;
      dropped += factor == 0.0F ? 1 : 0;
      sum += static_cast<double>(factor);
    }

    CHECK(other == 0);
    // Five standard deviations of a binomial share.
    const double deviation = 5 * std::sqrt(probability * (1 - probability) / kCount);
    CHECK(std::abs(static_cast<double>(dropped) / kCount - probability) < deviation);
    CHECK(std::abs(sum / kCount - 1) < deviation / (1 - probability) + 1e-6);
  }
}

TEST_CASE("extreme probabilities neither overflow nor drop when there are none") {
  DropoutSource source = kSource;
  source.probability = 1 - 0x1p-50;
  CHECK(source.mask().threshold == 0xffffffffU);
  source.probability = 0x1p-40;
  CHECK(source.mask().threshold == 0);
  CHECK(source.drops());
  CHECK_FALSE(DropoutSource{}.drops());
}

}  // namespace lockstep

#include "kernels/cpu/isa.h"

#include <cstdint>

#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl.h>

namespace lockstep {
namespace {

std::int64_t disable_what_onednn_may_not_use() {
  const auto allows =
      [effective = static_cast<unsigned>(dnnl_get_effective_cpu_isa())](dnnl_cpu_isa_t isa) {
        return (effective & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
      };
  std::int64_t disabled = 0;
  if (!allows(dnnl_cpu_isa_avx512_core)) {
    disabled |= HWY_AVX3 | HWY_AVX3_DL;
  }
  if (!allows(dnnl_cpu_isa_avx2)) {
    disabled |= HWY_AVX2;
  }
  if (disabled != 0) {
    hwy::DisableTargets(disabled);
  }
  return hwy::SupportedTargets();
}

std::int64_t supported_targets() {
  static const std::int64_t targets = disable_what_onednn_may_not_use();
  return targets;
}

}  // namespace

void select_instruction_set() {
  supported_targets();
}

std::string instruction_set_name() {
  const std::int64_t targets = supported_targets();
  if ((targets & HWY_AVX3) != 0) {
    return "avx512";
  }
  return (targets & HWY_AVX2) != 0 ? "avx2" : "baseline";
}

}  // namespace lockstep

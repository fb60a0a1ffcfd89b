#include "formats/safetensors_dtypes.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::array kDTypes{
    SafetensorsDType{"F64", 8, DType::kF64},
    SafetensorsDType{"F32", 4, DType::kF32},
    SafetensorsDType{"F16", 2, DType::kF16},
    SafetensorsDType{"BF16", 2, DType::kBF16},
    SafetensorsDType{"I64", 8, DType::kI64},
    SafetensorsDType{"I32", 4, DType::kI32},
    SafetensorsDType{"U16", 2, DType::kU16},
    SafetensorsDType{"U8", 1, DType::kU8},
    SafetensorsDType{"C64", 8, std::nullopt},
    SafetensorsDType{"U64", 8, std::nullopt},
    SafetensorsDType{"U32", 4, std::nullopt},
    SafetensorsDType{"I16", 2, std::nullopt},
    SafetensorsDType{"I8", 1, std::nullopt},
    SafetensorsDType{"BOOL", 1, std::nullopt},
    SafetensorsDType{"F8_E5M2", 1, std::nullopt},
    SafetensorsDType{"F8_E4M3", 1, std::nullopt},
    SafetensorsDType{"F8_E8M0", 1, std::nullopt},
    SafetensorsDType{"F8_E4M3FNUZ", 1, std::nullopt},
    SafetensorsDType{"F8_E5M2FNUZ", 1, std::nullopt},
};

}  // namespace

const SafetensorsDType* find_safetensors_dtype(std::string_view name) {
  const auto* found = std::find_if(
      kDTypes.begin(), kDTypes.end(), [name](const auto& entry) { return entry.name == name; });
  return found == kDTypes.end() ? nullptr : found;
}

std::string_view safetensors_name_of(DType dtype) {
  const auto* found = std::find_if(
      kDTypes.begin(), kDTypes.end(), [dtype](const auto& entry) { return entry.dtype == dtype; });
  LOCKSTEP_CHECK(found != kDTypes.end());
  return found->name;
}

}  // namespace lockstep

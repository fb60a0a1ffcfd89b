// How this program was built.
#pragma once

#include <string_view>

namespace lockstep {

struct BuildInfo {
  std::string_view version;
  std::string_view commit;  ///< 12 digits, "-dirty" with local changes; "unknown" outside git
  std::string_view build_type;
  std::string_view options;  ///< "LOCKSTEP_WERROR=ON LOCKSTEP_SANITIZE=OFF LOCKSTEP_CUDA=AUTO"
  std::string_view compiler;
  std::string_view cuda;  ///< what was found, or why CUDA was left out
};

/// The source of this function is generated at every build, and written only when it changes.
BuildInfo build_info();

}  // namespace lockstep

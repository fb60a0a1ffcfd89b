#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("kernels use no wider instructions than ONEDNN_MAX_CPU_ISA allows") {
  select_instruction_set();
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string allowed = limit == nullptr ? "" : limit;

  const std::string name = instruction_set_name();

  CHECK((name == "avx512" || name == "avx2" || name == "baseline"));
  CHECK((allowed != "AVX2" || name != "avx512"));
  CHECK((allowed != "SSE41" || name == "baseline"));
}

}  // namespace lockstep

#include "parallel/virtual_layout.h"

namespace lockstep {

int choose_virtual_degree(long wanted, int real, bool& changed) {
  changed = false;
  if (wanted <= 0) {
    return real;
  }
  long degree = real;
  while (degree < wanted) {
    degree *= 2;
  }
  changed = degree != wanted;
  return static_cast<int>(degree);
}

std::vector<int> equivalent_degrees(int virtual_data) {
  std::vector<int> degrees;
  for (int degree = 1; degree <= virtual_data; ++degree) {
    if (virtual_data % degree == 0 && is_power_of_two(virtual_data / degree)) {
      degrees.push_back(degree);
    }
  }
  return degrees;
}

}  // namespace lockstep

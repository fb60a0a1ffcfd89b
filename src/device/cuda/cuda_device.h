// Which GPUs there are, and which of them a rank uses.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct CudaDevice {
  int index = 0;  ///< among the visible ones
  std::string name;
  std::string uuid;  ///< hexadecimal: the same from whichever process it is seen
  int major = 0;     ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
};

/// Why this process cannot use CUDA, in words for users ("no driver", "no device is visible, ..."); empty if
/// it can. Works on a machine without a driver.
std::string why_no_cuda();

/// Visible devices (CUDA_VISIBLE_DEVICES); 0 without a driver.
int num_cuda_devices();

/// The device of a rank: the only visible one if there is one, else the one whose number is the rank's number
/// on its host, around again where ranks outnumber devices. Throws Error without a device.
CudaDevice choose_cuda_device(int local_rank);

}  // namespace lockstep

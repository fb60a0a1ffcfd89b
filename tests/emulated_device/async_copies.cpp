// Copies to shared memory that run beside the kernel: bytes arrive at the wait for them, and are read from global memory
// at any time before.
#include <algorithm>
#include <cstring>

#include "emulated_device/access_checks.h"
#include "emulated_device/fault.h"
#include "emulated_device/kernel_run.h"
#include "emulated_device/settings.h"

namespace lockstep::emulated {
namespace {

void read_source(AsyncCopy& copy) {
  if (!copy.is_read) {
    std::memcpy(copy.bytes.data(),
                reinterpret_cast<const void*>(copy.global),
                static_cast<std::size_t>(copy.valid_bytes));
    copy.is_read = true;
  }
}

// The first `count` groups.
void complete_groups(KernelThread& thread, std::size_t count) {
  AsyncCopies& async = thread.async;
  const std::size_t end = async.group_ends[count - 1];
  for (std::size_t i = 0; i < end; ++i) {
    AsyncCopy& copy = async.copies[i];
    {
      const Unchecked unchecked;
      read_source(copy);
      std::memcpy(reinterpret_cast<void*>(copy.shared), copy.bytes.data(), copy.bytes.size());
    }
    mark_arrived(copy.shared, copy.bytes.size());
  }
  const Unchecked unchecked;
  async.copies.erase(async.copies.begin(), async.copies.begin() + static_cast<std::ptrdiff_t>(end));
  async.group_ends.erase(async.group_ends.begin(),
                         async.group_ends.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t& group_end : async.group_ends) {
    group_end -= end;
  }
}

}  // namespace

void copy_async(void* shared, const void* global, int valid_bytes) {
  const void* const code = __builtin_return_address(0);
  AsyncCopy copy;
  copy.shared = reinterpret_cast<std::uintptr_t>(shared);
  copy.global = reinterpret_cast<std::uintptr_t>(global);
  copy.valid_bytes = valid_bytes;
  if (valid_bytes < 0 || valid_bytes > 16) {
    fault_at(code, "an asynchronous copy of {} bytes: 0 to 16 are possible", valid_bytes);
  }
  if (copy.shared - running->shared >= running->shared_bytes) {
    fault_at(code, "an asynchronous copy to {}, which is not in shared memory", shared);
  }
  if (copy.shared % 16 != 0 || copy.global % 16 != 0) {
    fault_at(code, "an asynchronous copy from {} to {}: not multiples of 16", global, shared);
  }
  check_thread_access(copy.shared, 16, Access::kWrite, code);
  if (valid_bytes > 0) {
    check_thread_access(copy.global, static_cast<std::size_t>(valid_bytes), Access::kRead, code);
  }
  mark_arriving(copy.shared, 16);
  const Unchecked unchecked;
  std::memset(shared, 0xff, 16);
  if (random_below(2) == 0) {
    read_source(copy);
  }
  running_thread().async.copies.push_back(copy);
}

void copy_async_commit() {
  const Unchecked unchecked;
  AsyncCopies& async = running_thread().async;
  async.group_ends.push_back(async.copies.size());
}

void copy_async_wait(int pending) {
  KernelThread& thread = running_thread();
  const auto kept = static_cast<std::size_t>(std::max(pending, 0));
  if (thread.async.group_ends.size() > kept) {
    complete_groups(thread, thread.async.group_ends.size() - kept);
  }
}

}  // namespace lockstep::emulated

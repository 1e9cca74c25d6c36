// SPDX-License-Identifier: Apache-2.0
#include "core/memory/host_memory.h"

#include "core/base/error.h"

namespace outrigger::memory {

device::HostMemory allocate_host(Purpose purpose, size_t bytes,
                                 std::span<const device::Neighbour> others) {
  const device::HostMemory memory = device::allocate_host(bytes, others);
  if (memory.data == nullptr) {
    fail(OTR_E_OUT_OF_MEMORY,
         "{} bytes of {} are not to be had: use more ranks, a higher ZeRO stage or "
         "lower-precision states",
         bytes, name_of(purpose));
  }
  return memory;
}

}  // namespace outrigger::memory

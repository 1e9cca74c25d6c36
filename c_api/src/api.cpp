// SPDX-License-Identifier: Apache-2.0
// The functions as one table, for programs that load the library at run time.
#include "c_api/src/api_table.h"
#include "c_api/src/guard.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

extern "C" int32_t otr_get_api(int32_t abi_version, size_t size, const otr_api** out_api) noexcept {
  return guard([&] {
    required(out_api, "out_api") = nullptr;
    if (abi_version != OTR_ABI_VERSION) {
      fail(OTR_E_ABI,
           "the program speaks the binary interface {} of Outrigger, this library, {}, has {}: "
           "build the program with this library's header, or load the library of its own",
           abi_version, OTR_VERSION_STRING, OTR_ABI_VERSION);
    }
    if (size < offsetof(otr_api, status_name) || size > sizeof(otr_api)) {
      fail(OTR_E_ABI,
           "otr_api has {} bytes in the program and {} in this library, {}: a library at least as "
           "new as the header that the program was built with is needed",
           size, sizeof(otr_api), OTR_VERSION_STRING);
    }
    *out_api = &kApi;
  });
}

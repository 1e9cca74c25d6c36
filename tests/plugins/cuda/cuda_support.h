// SPDX-License-Identifier: Apache-2.0
// What tests of the CUDA plugin share: the mock driver beside it, and a small training.
#pragma once

#include "device_support.h"
#include "mock.h"

namespace otr_test {

// The mock driver's functions, of the library that OTR_CUDA_DRIVER names to the plugin.
struct MockCuda {
  decltype(&otr_mock_cuda_set) set;
  decltype(&otr_mock_cuda_get) get;
  decltype(&otr_mock_cuda_fail) fail;
  decltype(&otr_mock_cuda_failed) failed;
  decltype(&otr_mock_cuda_device_set) device_set;
  decltype(&otr_mock_cuda_device_get) device_get;
};
const MockCuda& mock_cuda();

inline otr_device cuda(int32_t id = 0) { return {OTR_DEVICE_CUDA, id}; }

// Streams, events, memory and the rest: all was given back, and no context is current.
void expect_nothing_held();

// A few steps of a few parameters, of any configuration; all values afterwards. Throws what a call
// reports, with its text.
struct Refused : std::runtime_error {
  Refused(int32_t code, const std::string& text) : std::runtime_error(text), status(code) {}
  int32_t status;
};
std::vector<Values> trained_on_host(otr_comm* comm, const std::string& config);
std::vector<Values> trained_on_cuda(otr_context* context, otr_comm* comm,
                                    const std::string& config);

}  // namespace otr_test

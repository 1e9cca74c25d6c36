// SPDX-License-Identifier: Apache-2.0
// What tests of the CUDA plugin share: the mock driver beside it, and a small training.
#pragma once

#include <map>
#include <string>

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

// Streams, events, memory and the rest that the driver holds; the depth of this thread's contexts.
std::map<std::string, double> held();
// All was given back, and no context is current: but for what an earlier test has accepted, where
// the driver had refused to make its context current, so that nothing could be given back.
void expect_nothing_held();
void accept_what_is_held();

// The plugin's own table.
const otr_device_plugin& cuda_table();

// A few steps of a few parameters, of any configuration; all values afterwards. Throws what a call
// reports, with its text.
struct Refused : std::runtime_error {
  Refused(int32_t code, const std::string& text) : std::runtime_error(text), status(code) {}
  int32_t status;
};
// Rank r is on device r, and has gradients of its own. small: how many more parameters there are,
// of few elements.
std::vector<Values> trained_on_host(otr_comm* comm, const std::string& config, int small = 0);
std::vector<Values> trained_on_cuda(otr_context* context, otr_comm* comm, const std::string& config,
                                    int small = 0);

}  // namespace otr_test

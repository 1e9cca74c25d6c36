// SPDX-License-Identifier: Apache-2.0
// A CUDA driver whose GPUs are the simulated devices of plugins/simulated: threads that work in
// order, races that are found, copies of pages that are not locked. What it is asked for beyond
// CUDA's own interface, tests ask by these functions.
#pragma once

#include <cstdint>

extern "C" {

// How the driver behaves, from now on:
//   devices, capability (of compute, times ten), memory_pools (0 or 1), version
//   fail_in, fail_with   the call after so many more returns this result; fail_in 0: none
// False: there is no such value.
bool otr_mock_cuda_set(const char* name, double value);
// What it holds: streams, events, pools, modules, contexts, registrations, bytes (of devices' live
// memory); calls: how many functions were called; depth: of this thread's stack of contexts;
// most_blocks: of a launch. −1: there is no such value.
double otr_mock_cuda_get(const char* name);
// Every call of this function returns this result; 0: not any more.
void otr_mock_cuda_fail(const char* function, int result);
// The name of the call that fail_in has met; "" if it has met none.
const char* otr_mock_cuda_failed();

// A simulated device's own values, with its statuses; text: of the last failure on this thread.
int32_t otr_mock_cuda_device_set(int32_t id, const char* name, double value);
int32_t otr_mock_cuda_device_get(int32_t id, const char* name, double* out);
const char* otr_mock_cuda_text();
}

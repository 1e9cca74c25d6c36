// SPDX-License-Identifier: Apache-2.0
// A libnccl without GPUs: ranks are threads or processes of this host, memory is that of the mock
// driver's devices, and data goes through host memory in the order of the streams. It never blocks,
// as NCCL does not with `blocking` 0: what was begun is in its stream only once it has been asked
// after twice. What it is asked for beyond NCCL's interface, tests ask by these functions.
#pragma once

#include <cstdint>

extern "C" {

// How the library behaves in this process, from now on:
//   version              as ncclGetVersion tells it
//   fail_in, fail_with   the call after so many more returns this result; fail_in 0: none
//   async_error          every communicator has failed with this result; 0: none
//   stall                1: nothing that is in a stream moves, as with a rank that hangs
//   registers            0: memory that is registered is refused
// False: there is no such value.
bool otr_mock_nccl_set(const char* name, double value);
// What this process holds: communicators, registrations, bytes (of buffers); calls: how many
// functions were called; operations, sums: how many of either went into a stream. −1: there is no
// such value.
double otr_mock_nccl_get(const char* name);
// The name of the call that fail_in has met; "" if it has met none.
const char* otr_mock_nccl_failed();
}

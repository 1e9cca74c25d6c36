/* SPDX-License-Identifier: Apache-2.0
 *
 * What all parts of the scenario in C share: the output, the rank, and where tensors are. */
#ifndef SCENARIO_STATE_H
#define SCENARIO_STATE_H

#include "print.h"

enum { LARGEST = 303 }; /* elements of a tensor */

extern FILE* out;
extern int32_t rank, world;
extern otr_context* context;
extern otr_device device; /* of the engines' tensors */

/* Ends the process unless the call succeeded. */
void check(int32_t status, const char* call);
#define TRY(call) check((call), #call)

otr_tensor tensor_of(void* data, const char* dtype, int32_t ndim, int64_t* shape);

/* The tensor's copy on the device, until give_back. On the CPU these three do nothing. */
otr_tensor there(const otr_tensor* here);
void give_back(void);
/* The tensor's copy in `memory`, on the CPU. */
otr_tensor fetch(const otr_tensor* tensor, void* memory);

void show(const otr_tensor* tensor);

/* small_engines.c */
void chain(otr_comm* comm);
void save_and_load(otr_comm* comm, const char* directory);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <stdlib.h>

FILE* out;
int32_t rank, world;
otr_context* context;
otr_device device = {OTR_DEVICE_CPU, 0};

void check(int32_t status, const char* call) {
  if (status == OTR_OK) return;
  fprintf(stderr, "rank %d: %s: %s: %s\n", (int)rank, call, otr_status_name(status),
          otr_last_error_message());
  exit(1);
}

otr_tensor tensor_of(void* data, const char* dtype, int32_t ndim, int64_t* shape) {
  otr_tensor tensor;
  TRY(otr_tensor_init(data, dtype, ndim, shape, &tensor));
  return tensor;
}

static void* borrowed[256]; /* device memory, until give_back */
static int borrowed_count;

static int64_t bytes_of(const otr_tensor* t) {
  return element_count(t->ndim, t->shape) * (t->dtype.bits / 8);
}

otr_tensor there(const otr_tensor* here) {
  otr_tensor copy = *here;
  if (device.device_type == OTR_DEVICE_CPU) return copy;
  copy.device = device;
  if (bytes_of(here) == 0) return copy;
  TRY(otr_device_allocate(context, device.device_type, device.device_id, (size_t)bytes_of(here),
                          &copy.data));
  TRY(otr_tensor_copy(context, &copy, here));
  borrowed[borrowed_count++] = copy.data;
  return copy;
}

void give_back(void) {
  while (borrowed_count > 0)
    TRY(otr_device_free(context, device.device_type, device.device_id, borrowed[--borrowed_count]));
}

otr_tensor fetch(const otr_tensor* tensor, void* memory) {
  otr_tensor copy = *tensor;
  if (tensor->device.device_type == OTR_DEVICE_CPU) return copy;
  copy.device.device_type = OTR_DEVICE_CPU;
  copy.data = memory;
  TRY(otr_tensor_copy(context, &copy, tensor));
  return copy;
}

void show(const otr_tensor* tensor) {
  float memory[LARGEST];
  otr_tensor here = fetch(tensor, memory);
  print_tensor(out, &here);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors, lists and texts of errors for languages that have none of their own that fit: plain.i
 * shows them to any language of SWIG, and calls.i is written in terms of them. */
#ifndef OUTRIGGER_SWIG_PLAIN_H
#define OUTRIGGER_SWIG_PLAIN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "outrigger.h"
#include "refusal.h"

/* ---- Tensors: an otr_tensor, what it keeps, and what may be done with it ---- */
enum { OTR_SWIG_OPEN = 1, OTR_SWIG_WRITABLE = 2 };

/* Every otr_tensor that a language holds begins one of these. */
typedef struct otr_swig_tensor {
  otr_tensor tensor;
  int32_t flags;
  void* owned; /* its memory, or NULL where that is somebody else's */
  int64_t extents[];
} otr_swig_tensor;

static int64_t otr_swig_elements(const otr_tensor* tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; d++) count *= tensor->shape[d];
  return count;
}

static size_t otr_swig_bytes(const otr_tensor* tensor) {
  return tensor ? (size_t)otr_swig_elements(tensor) * (tensor->dtype.bits / 8u) : 0;
}

/* The first byte; somewhere for a tensor of none, NULL for no tensor. */
static void* otr_swig_data(const otr_tensor* tensor) {
  if (!tensor) return NULL;
  return tensor->data ? (char*)tensor->data + tensor->byte_offset : (void*)tensor;
}

static int32_t otr_swig_flags(const otr_tensor* tensor) {
  return ((const otr_swig_tensor*)tensor)->flags;
}

/* NULL stands for itself: the library knows where it may. */
static int otr_swig_readable(const otr_tensor* tensor, const char* name, int32_t* status) {
  if (!tensor || (otr_swig_flags(tensor) & OTR_SWIG_OPEN)) return 1;
  return otr_swig_refuse(status, OTR_E_STATE, "%s is closed: its memory was given back", name);
}

static int otr_swig_writable(const otr_tensor* tensor, const char* name, int32_t* status) {
  if (!tensor) return otr_swig_refuse(status, OTR_E_ARGUMENT, "%s is no tensor", name);
  if (!otr_swig_readable(tensor, name, status)) return 0;
  if (otr_swig_flags(tensor) & OTR_SWIG_WRITABLE) return 1;
  return otr_swig_refuse(status, OTR_E_ARGUMENT, "%s is read-only", name);
}

static const char* otr_swig_dtype_name(otr_dtype dtype) {
  static const char* const names[][4] = {{"int8", "int16", "int32", "int64"},
                                         {"uint8", "uint16", "uint32", "uint64"},
                                         {"", "float16", "float32", "float64"},
                                         {"", "bfloat16", "", ""}};
  const int size = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  if (dtype.code == OTR_DTYPE_BOOL) return "bool";
  return names[dtype.code == OTR_DTYPE_BFLOAT ? 3 : dtype.code][size];
}

static int otr_swig_is(const otr_tensor* tensor, const char* name, const char* dtype,
                       int32_t* status) {
  if (strcmp(otr_swig_dtype_name(tensor->dtype), dtype) == 0) return 1;
  return otr_swig_refuse(status, OTR_E_DTYPE, "%s is of %s; give %s", name,
                         otr_swig_dtype_name(tensor->dtype), dtype);
}

static int otr_swig_holds_all(const otr_comm* comm, const otr_tensor* mine, const otr_tensor* all,
                              int32_t* status) {
  int32_t ranks = 0;
  *status = otr_comm_size(comm, &ranks);
  if (*status != OTR_OK) return 0;
  if (mine && otr_swig_bytes(all) == (size_t)ranks * otr_swig_bytes(mine)) return 1;
  return otr_swig_refuse(status, OTR_E_SHAPE, "all has %zu bytes; %d ranks give %zu each",
                         otr_swig_bytes(all), (int)ranks, otr_swig_bytes(mine));
}

static otr_swig_tensor* otr_swig_new(const otr_tensor* tensor, int32_t flags, int32_t* status) {
  const size_t dims = (size_t)tensor->ndim;
  otr_swig_tensor* made = (otr_swig_tensor*)calloc(1, sizeof *made + 2 * dims * sizeof(int64_t));
  if (!made) {
    otr_swig_no_memory(status);
    return NULL;
  }
  made->tensor = *tensor;
  made->flags = OTR_SWIG_OPEN | flags;
  made->tensor.shape = made->extents;
  if (dims) memcpy(made->extents, tensor->shape, dims * sizeof(int64_t));
  if (tensor->strides) {
    made->tensor.strides = made->extents + dims;
    memcpy(made->tensor.strides, tensor->strides, dims * sizeof(int64_t));
  }
  return made;
}

/* A row-major tensor over `bytes` bytes of the caller's, or with NULL over zeros of its own. */
static otr_tensor* otr_swig_tensor_over(void* memory, size_t bytes, const char* dtype,
                                        const int64_t* shape, int64_t ndim, int32_t flags,
                                        int32_t* status) {
  otr_tensor tensor;
  *status =
      otr_tensor_init(memory, dtype, ndim > 64 ? 65 : (int32_t)ndim, (int64_t*)shape, &tensor);
  if (*status != OTR_OK) return NULL;
  size_t wanted = tensor.dtype.bits / 8u;
  for (int64_t d = 0; d < ndim; d++) {
    if (__builtin_mul_overflow(wanted, (size_t)shape[d], &wanted) || wanted > INT64_MAX / 2) {
      otr_swig_refuse(status, OTR_E_SHAPE, "the shape has more elements than memory can hold");
      return NULL;
    }
  }
  if (memory && wanted != bytes) {
    otr_swig_refuse(status, OTR_E_SHAPE,
                    "the shape asks for %zu bytes of %s, and the memory has %zu", wanted, dtype,
                    bytes);
    return NULL;
  }
  otr_swig_tensor* made = otr_swig_new(&tensor, flags, status);
  if (made && !memory && wanted) {
    made->owned = made->tensor.data = calloc(1, wanted);
    if (!made->owned) {
      otr_swig_no_memory(status);
      free(made);
      made = NULL;
    }
  }
  return made ? &made->tensor : NULL;
}

/* What a function has shown, as a tensor; NULL after a failure. */
static otr_tensor* otr_swig_show(const otr_tensor* shown, int32_t read_only, int32_t* status) {
  if (*status != OTR_OK) return NULL;
  otr_swig_tensor* made = otr_swig_new(shown, read_only ? 0 : OTR_SWIG_WRITABLE, status);
  return made ? &made->tensor : NULL;
}

static otr_tensor* otr_swig_shape(int32_t ndim, const int64_t* shape, int32_t* status) {
  otr_tensor tensor = {0};
  tensor.ndim = ndim;
  tensor.shape = (int64_t*)shape;
  otr_swig_tensor* made = *status == OTR_OK ? otr_swig_new(&tensor, 0, status) : NULL;
  if (made) made->flags = 0;
  return made ? &made->tensor : NULL;
}

static otr_tensor* otr_swig_own_bytes(void* bytes, size_t size, int32_t* status) {
  const int64_t shape[1] = {(int64_t)size};
  otr_tensor* made = NULL;
  if (*status == OTR_OK)
    made = otr_swig_tensor_over(bytes, size, "uint8", shape, 1, OTR_SWIG_WRITABLE, status);
  if (made)
    ((otr_swig_tensor*)made)->owned = bytes;
  else
    free(bytes);
  return made;
}

/* Gives its own memory back, or lets go of another's; elements can then not be reached any more. */
static void otr_swig_close(otr_tensor* tensor) {
  otr_swig_tensor* self = (otr_swig_tensor*)tensor;
  self->flags = 0;
  free(self->owned);
  self->owned = self->tensor.data = NULL;
}

/* ---- Elements as numbers, and as their bits ---- */
static uint64_t otr_swig_load(const char* at, uint32_t bits) {
  uint8_t a;
  uint16_t b;
  uint32_t c;
  uint64_t d;
  switch (bits) {
    case 8:
      return memcpy(&a, at, sizeof a), a;
    case 16:
      return memcpy(&b, at, sizeof b), b;
    case 32:
      return memcpy(&c, at, sizeof c), c;
    default:
      return memcpy(&d, at, sizeof d), d;
  }
}

static void otr_swig_store(char* at, uint32_t bits, uint64_t value) {
  const uint8_t a = (uint8_t)value;
  const uint16_t b = (uint16_t)value;
  const uint32_t c = (uint32_t)value;
  switch (bits) {
    case 8:
      memcpy(at, &a, sizeof a);
      break;
    case 16:
      memcpy(at, &b, sizeof b);
      break;
    case 32:
      memcpy(at, &c, sizeof c);
      break;
    default:
      memcpy(at, &value, sizeof value);
  }
}

/* The header has no function that converts numbers alone, so the two formats of 16 bits stand here.
 */
static float otr_swig_from_half(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u,
                 mantissa = half & 1023u;
  uint32_t bits;
  if (exponent == 0) { /* zero or subnormal: exact in float32 */
    const float value = (float)mantissa / 16777216.0f;
    memcpy(&bits, &value, sizeof bits);
  } else {
    bits = (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
  }
  bits |= sign;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A float's bits without the lowest `drop` ones, rounded to nearest even. */
static uint32_t otr_swig_round(uint32_t bits, uint32_t drop) {
  return (bits + (1u << (drop - 1)) - 1 + (bits >> drop & 1u)) >> drop;
}

static uint32_t otr_swig_to_half(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x47800000u) return sign | 0x7c00u; /* 65536 and beyond */
  if (magnitude >= 0x38800000u) return sign | otr_swig_round(magnitude - 0x38000000u, 13);
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return sign; /* below half of the smallest */
  return sign | otr_swig_round((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent);
}

static double otr_swig_number(uint64_t bits, otr_dtype dtype) {
  float single;
  double number;
  uint32_t low = (uint32_t)bits;
  if (dtype.code == OTR_DTYPE_BFLOAT) low <<= 16;
  if (dtype.code == OTR_DTYPE_FLOAT && dtype.bits == 16) return otr_swig_from_half(low);
  if (dtype.code == OTR_DTYPE_FLOAT && dtype.bits == 64)
    return memcpy(&number, &bits, sizeof number), number;
  if (dtype.code == OTR_DTYPE_FLOAT || dtype.code == OTR_DTYPE_BFLOAT)
    return memcpy(&single, &low, sizeof single), single;
  if (dtype.code == OTR_DTYPE_INT && dtype.bits < 64)
    return (double)((int64_t)(bits << (64 - dtype.bits)) >> (64 - dtype.bits));
  return dtype.code == OTR_DTYPE_INT ? (double)(int64_t)bits : (double)bits;
}

static uint64_t otr_swig_bits_of(double number, otr_dtype dtype) {
  const float single = (float)number;
  uint32_t low;
  uint64_t bits;
  memcpy(&low, &single, sizeof low);
  memcpy(&bits, &number, sizeof bits);
  if (dtype.code == OTR_DTYPE_BFLOAT) return single != single ? 0x7fc0u : otr_swig_round(low, 16);
  if (dtype.code == OTR_DTYPE_FLOAT)
    return dtype.bits == 64 ? bits : dtype.bits == 32 ? low : otr_swig_to_half(low);
  /* Whole numbers: towards zero, and the nearest one that 64 bits hold. */
  if (number != number) return 0;
  if (number < 0) return number > -9223372036854775808.0 ? (uint64_t)(int64_t)number : 1ull << 63;
  return number < 18446744073709551616.0 ? (uint64_t)number : UINT64_MAX;
}

/* Where element `index` lies, row-major; NULL after a refusal. */
static char* otr_swig_at(const otr_tensor* tensor, int64_t index, int32_t wanted, int32_t* status) {
  const int64_t count = otr_swig_elements(tensor);
  if (wanted & OTR_SWIG_WRITABLE ? !otr_swig_writable(tensor, "the tensor", status)
                                 : !otr_swig_readable(tensor, "the tensor", status))
    return NULL;
  if (index < 0 || index >= count) {
    otr_swig_refuse(status, OTR_E_ARGUMENT, "index %lld is outside of a tensor of %lld elements",
                    (long long)index, (long long)count);
    return NULL;
  }
  if (tensor->device.device_type != OTR_DEVICE_CPU || tensor->strides) {
    otr_swig_refuse(status, OTR_E_DEVICE,
                    "the tensor's elements are not in host memory, one behind the other");
    return NULL;
  }
  return (char*)tensor->data + tensor->byte_offset + (size_t)index * (tensor->dtype.bits / 8u);
}

/* ---- Lists ---- */
#define OTR_SWIG_LIST_OF(type, name)                          \
  typedef struct otr_swig_##name {                            \
    int64_t count;                                            \
    type* items;                                              \
  } otr_swig_##name;                                          \
  static void otr_swig_##name##_free(otr_swig_##name* self) { \
    free(self->items);                                        \
    free(self);                                               \
  }
#define OTR_SWIG_GROWS(type, name)                                                        \
  static int otr_swig_##name##_append(otr_swig_##name* self, type item) {                 \
    type* items = (type*)realloc(self->items, (size_t)(self->count + 1) * sizeof *items); \
    if (!items) return 0;                                                                 \
    self->items = items;                                                                  \
    items[self->count++] = item;                                                          \
    return 1;                                                                             \
  }
#define OTR_SWIG_HANDLES(type, name)                                         \
  OTR_SWIG_LIST_OF(type*, name)                                              \
  OTR_SWIG_GROWS(type*, name)                                                \
  static int64_t otr_swig_##name##_count(const otr_swig_##name* list) {      \
    return list ? list->count : 0;                                           \
  }                                                                          \
  static type* const* otr_swig_##name##_items(const otr_swig_##name* list) { \
    return list ? list->items : NULL;                                        \
  }
OTR_SWIG_HANDLES(otr_engine, engines)
OTR_SWIG_HANDLES(otr_shard, shards)
OTR_SWIG_HANDLES(otr_snapshot, snapshots)
OTR_SWIG_LIST_OF(otr_tensor, tensors)
OTR_SWIG_GROWS(otr_tensor, tensors)
OTR_SWIG_LIST_OF(otr_comm*, comms)
OTR_SWIG_LIST_OF(otr_step_report, reports)
OTR_SWIG_LIST_OF(otr_memory_entry, entries)

/* A list of tensors refers to them: who fills it keeps them. */
static const otr_tensor* otr_swig_items(const otr_swig_tensors* list) {
  return list ? list->items : NULL;
}
static int64_t otr_swig_count(const otr_swig_tensors* list) { return list ? list->count : 0; }

static int otr_swig_one_each(const otr_swig_tensors* values, int64_t ids, int32_t* status) {
  if (otr_swig_count(values) == ids) return 1;
  return otr_swig_refuse(status, OTR_E_ARGUMENT, "%lld values for %lld ids: give one for each",
                         (long long)otr_swig_count(values), (long long)ids);
}

/* An index of a list; 0 after a refusal. */
static int otr_swig_has(int64_t count, int64_t index, int32_t* status) {
  if (index >= 0 && index < count) return 1;
  return otr_swig_refuse(status, OTR_E_ARGUMENT, "index %lld is outside of a list of %lld",
                         (long long)index, (long long)count);
}

/* A list of `count` zeros for the library to fill; a count that it refuses is as good as 0. */
#define OTR_SWIG_FILLED(type, name, prepare)                                                \
  static otr_swig_##name* otr_swig_new_##name(int64_t count, int32_t* status) {             \
    otr_swig_##name* made = (otr_swig_##name*)calloc(1, sizeof *made);                      \
    if (made) made->items = (type*)calloc(count > 0 ? (size_t)count : 1, sizeof(type));     \
    if (!made || !made->items) {                                                            \
      free(made);                                                                           \
      otr_swig_no_memory(status);                                                           \
      return NULL;                                                                          \
    }                                                                                       \
    made->count = count > 0 ? count : 0;                                                    \
    for (int64_t i = 0; i < made->count; i++) prepare;                                      \
    return made;                                                                            \
  }                                                                                         \
  static otr_swig_##name* otr_swig_##name##_if_ok(otr_swig_##name* made, int32_t* status) { \
    if (*status == OTR_OK || !made) return made;                                            \
    otr_swig_##name##_free(made);                                                           \
    return NULL;                                                                            \
  }
OTR_SWIG_FILLED(otr_comm*, comms, made->items[i] = NULL)
OTR_SWIG_FILLED(otr_tensor, tensors, made->items[i].data = NULL)
OTR_SWIG_FILLED(otr_step_report, reports,
                made->items[i].struct_size = (uint32_t)sizeof *made->items)

static void* otr_swig_if_ok(void* made, int32_t* status) {
  if (*status == OTR_OK) return made;
  free(made);
  return NULL;
}

/* Memory for a struct that begins with its size. */
static void* otr_swig_new_record(size_t size, int32_t* status) {
  uint32_t* made = (uint32_t*)calloc(1, size);
  if (made)
    *made = (uint32_t)size;
  else
    otr_swig_no_memory(status);
  return made;
}

static otr_swig_entries* otr_swig_own_entries(otr_memory_entry* items, size_t count,
                                              int32_t* status) {
  otr_swig_entries* made = *status == OTR_OK ? (otr_swig_entries*)calloc(1, sizeof *made) : NULL;
  if (!made) {
    free(items);
    if (*status == OTR_OK) otr_swig_no_memory(status);
    return NULL;
  }
  made->items = items;
  made->count = (int64_t)count;
  return made;
}

typedef struct otr_swig_range {
  int64_t first;
  int64_t count;
} otr_swig_range;

static otr_swig_range* otr_swig_new_range(int64_t first, int64_t count, int32_t* status) {
  otr_swig_range* made = *status == OTR_OK ? (otr_swig_range*)malloc(sizeof *made) : NULL;
  if (made) {
    made->first = first;
    made->count = count;
  } else if (*status == OTR_OK) {
    otr_swig_no_memory(status);
  }
  return made;
}

#endif /* OUTRIGGER_SWIG_PLAIN_H */

// SPDX-License-Identifier: Apache-2.0
// outrigger.i for languages without arrays of their own that the library could read: tensors are a class, outputs are results.
// Such a language includes this file and adds
//   OTR_RAISE(code)         throws its error with the status and otr_swig_error_text()
//   OTR_CONTEXT(options)    what a wait asks, if anything
//   typemaps for (const int64_t *ids, int64_t count) and (const int64_t *shape, int64_t ndim), its lists of whole numbers
//   where it has memory that the library can read, a Tensor over it: otr_swig_tensor_over
// A function that calls the language back is left out (calls.i names all); what is made of a pass is a few lines there.
%{
#include "plain.h"
%}
#define OTR_PLAIN
#if !defined(OTR_UNLOCK)
#define OTR_UNLOCK
#endif
#define OTR_LOCK
#define OTR_SUCCEEDED
#define OTR_CALLBACKS
#define OTR_OUT_HANDLE(type, name)
%define OTR_ASKED_IN_ONE_CALL(name)
%ignore otr_swig_##name;
%enddef

// A status is the last argument, which no language sees.
%typemap(in, numinputs=0) int32_t *status (int32_t status = OTR_OK) "$1 = &status;"
%typemap(argout, canthrow=1) int32_t *status {
  if (*$1 != OTR_OK) {
    OTR_RAISE(*$1);
  }
}

// ---- Tensors ----
%rename(Tensor) otr_tensor;
%nodefaultctor otr_tensor;
%ignore otr_tensor::data;
%ignore otr_tensor::device;
%ignore otr_tensor::ndim;
%ignore otr_tensor::dtype;
%ignore otr_tensor::shape;
%ignore otr_tensor::strides;
%ignore otr_tensor::byte_offset;
%ignore otr_swig_tensor;
%extend otr_tensor {
  ~otr_tensor() {
    otr_swig_close($self);
    free($self);
  }
  // Gives its memory back, or lets go of the library's. Doing it again is a no-op.
  void close() { otr_swig_close($self); }
  int32_t is_open() { return otr_swig_flags($self) & OTR_SWIG_OPEN; }
  int32_t is_writable() { return (otr_swig_flags($self) & OTR_SWIG_WRITABLE) != 0; }
  const char *dtype_name() { return otr_swig_dtype_name($self->dtype); }
  int32_t dimensions() { return $self->ndim; }
  int64_t extent(int32_t dimension) { return dimension >= 0 && dimension < $self->ndim ? $self->shape[dimension] : 0; }
  int64_t elements() { return otr_swig_elements($self); }
  int64_t bytes() { return (int64_t)otr_swig_bytes($self); }
  // Where it lies; two tensors over one slot have the same.
  int64_t address() { return otr_swig_flags($self) & OTR_SWIG_OPEN ? (int64_t)(intptr_t)otr_swig_data($self) : 0; }
  // Elements in row-major order, as numbers (16-bit floats rounded to nearest even) or as their bits.
  double get(int64_t index, int32_t *status) {
    const char *at = otr_swig_at($self, index, OTR_SWIG_OPEN, status);
    return at ? otr_swig_number(otr_swig_load(at, $self->dtype.bits), $self->dtype) : 0;
  }
  void set(int64_t index, double number, int32_t *status) {
    char *at = otr_swig_at($self, index, OTR_SWIG_WRITABLE, status);
    if (at) otr_swig_store(at, $self->dtype.bits, otr_swig_bits_of(number, $self->dtype));
  }
  int64_t get_bits(int64_t index, int32_t *status) {
    const char *at = otr_swig_at($self, index, OTR_SWIG_OPEN, status);
    return at ? (int64_t)otr_swig_load(at, $self->dtype.bits) : 0;
  }
  void set_bits(int64_t index, int64_t bits, int32_t *status) {
    char *at = otr_swig_at($self, index, OTR_SWIG_WRITABLE, status);
    if (at) otr_swig_store(at, $self->dtype.bits, (uint64_t)bits);
  }
  void fill(double number, int32_t *status) {
    const int64_t count = otr_swig_elements($self);
    char *at = count ? otr_swig_at($self, 0, OTR_SWIG_WRITABLE, status) : NULL;
    const uint64_t bits = otr_swig_bits_of(number, $self->dtype);
    for (int64_t i = 0; at && i < count; i++, at += $self->dtype.bits / 8u) otr_swig_store(at, $self->dtype.bits, bits);
  }
}

// A part of a checkpoint is bytes of the language's, for which these have no form yet.
%ignore otr_save_options::add_part;
%ignore otr_snapshot_options::add_part;

// ---- Lists: what one call takes or gives ----
%define OTR_LIST(name, Class)
%rename(Class) otr_swig_##name;
%nodefaultctor otr_swig_##name;
typedef struct otr_swig_##name {} otr_swig_##name;
%extend otr_swig_##name {
  int64_t size() { return $self->count; }
}
%enddef
%define OTR_LIST_TAKES(type, name)
%extend otr_swig_##name {
  otr_swig_##name() { return (otr_swig_##name *)calloc(1, sizeof(otr_swig_##name)); }
  ~otr_swig_##name() { otr_swig_##name##_free($self); }
  // Refers to the item: keep it as long as the list.
  void add(type *item, int32_t *status) {
    if (!item) otr_swig_refuse(status, OTR_E_ARGUMENT, "an item of the list is nothing");
    else if (!otr_swig_##name##_append($self, item)) otr_swig_no_memory(status);
  }
}
%enddef
OTR_LIST(engines, Engines)
OTR_LIST(shards, Shards)
OTR_LIST(snapshots, Snapshots)
OTR_LIST_TAKES(otr_engine, engines)
OTR_LIST_TAKES(otr_shard, shards)
OTR_LIST_TAKES(otr_snapshot, snapshots)
OTR_LIST(tensors, Tensors)
%newobject otr_swig_tensors::view;
%extend otr_swig_tensors {
  otr_swig_tensors() { return (otr_swig_tensors *)calloc(1, sizeof(otr_swig_tensors)); }
  ~otr_swig_tensors() { otr_swig_tensors_free($self); }
  void add(const otr_tensor *item, int32_t *status) {
    if (!item) otr_swig_refuse(status, OTR_E_ARGUMENT, "an item of the list is nothing");
    else if (otr_swig_readable(item, "a tensor", status) && !otr_swig_tensors_append($self, *item)) otr_swig_no_memory(status);
  }
  // Of acquired tensors: read-only.
  otr_tensor *view(int64_t index, int32_t *status) {
    return otr_swig_has($self->count, index, status) ? otr_swig_show(&$self->items[index], 1, status) : NULL;
  }
}
OTR_LIST(comms, Comms)
%newobject otr_swig_comms::take;
%extend otr_swig_comms {
  ~otr_swig_comms() {
    for (int64_t i = 0; i < $self->count; i++) otr_comm_destroy($self->items[i]);
    otr_swig_comms_free($self);
  }
  // Each once: it is the caller's from then on.
  otr_comm *take(int64_t index, int32_t *status) {
    if (!otr_swig_has($self->count, index, status)) return NULL;
    otr_comm *taken = $self->items[index];
    $self->items[index] = NULL;
    return taken;
  }
}
OTR_LIST(reports, StepReports)
%newobject otr_swig_reports::copy;
%extend otr_swig_reports {
  ~otr_swig_reports() { otr_swig_reports_free($self); }
  otr_step_report *copy(int64_t index, int32_t *status) {
    if (!otr_swig_has($self->count, index, status)) return NULL;
    otr_step_report *made = (otr_step_report *)malloc(sizeof *made);
    if (made) *made = $self->items[index];
    else otr_swig_no_memory(status);
    return made;
  }
}
OTR_LIST(entries, MemoryEntries)
%extend otr_swig_entries {
  ~otr_swig_entries() { otr_swig_entries_free($self); }
  const char *purpose(int64_t index, int32_t *status) { return otr_swig_has($self->count, index, status) ? $self->items[index].purpose : NULL; }
  int64_t resident_bytes(int64_t index, int32_t *status) { return otr_swig_has($self->count, index, status) ? $self->items[index].resident_bytes : 0; }
  int64_t peak_bytes(int64_t index, int32_t *status) { return otr_swig_has($self->count, index, status) ? $self->items[index].peak_bytes : 0; }
}
%rename(Range) otr_swig_range;
%nodefaultctor otr_swig_range;
typedef struct otr_swig_range {
  %immutable;
  int64_t first;
  int64_t count;
  %mutable;
} otr_swig_range;

%include "plain_message.i"
%rename(tensor_new) otr_plain_tensor_new;
%newobject otr_plain_tensor_new;
%inline %{
/* Zeros in memory of the tensor's own. */
static otr_tensor *otr_plain_tensor_new(const char *dtype, const int64_t *shape, int64_t ndim, int32_t *status) {
  return otr_swig_tensor_over(NULL, 0, dtype, shape, ndim, OTR_SWIG_WRITABLE, status);
}
%}

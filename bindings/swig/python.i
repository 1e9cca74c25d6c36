// SPDX-License-Identifier: Apache-2.0
// Python's side of outrigger.i: the GIL, exceptions, log lines, buffers; out_ parameters become results.
%{
#include "python_buffer.h"
#include "python_comm.h"
#include "python_interrupt.h"
#include "python_log.h"
#include "python_message.h"
%}

%define OTR_UNLOCK
Py_BEGIN_ALLOW_THREADS
%enddef
%define OTR_LOCK
Py_END_ALLOW_THREADS
%enddef
%define OTR_RAISE(code)
otr_python_raise(code);
otr_python_log_called();
SWIG_fail;
%enddef
%define OTR_SUCCEEDED
otr_python_log_called();
%enddef
%define OTR_CONTEXT(options)
otr_python_find_main_thread();
options->interrupt_callback = otr_python_interrupted;
options->log_callback = otr_python_log;
%enddef

%define OTR_ASKED_IN_ONE_CALL(name)
%rename(name) otr_swig_##name;
%enddef
%ignore otr_tensor;  // the typemaps make it of arrays

// What the module needs once; returns the class of the tensors that come out.
%{
static PyObject *otr_python_start(PyObject *self, PyObject *arguments) {
  (void)self;
  (void)arguments;
  otr_python_find_main_thread();
  return otr_python_log_open() == 0 ? Py_XNewRef((PyObject *)otr_python_view_type()) : NULL;
}
%}
%native(_start) PyObject *otr_python_start(PyObject *self, PyObject *arguments);

%pythoncode %{
TensorView = _lowlevel._start()

class OutriggerError(RuntimeError):
    """A call failed: code is the negative status, name its name, text the library's explanation."""

    def __init__(self, code, text):
        self.code, self.name, self.text = code, status_name(code), text
        super().__init__(code, text)

    def __str__(self):
        return f"{self.name}: {self.text}"
%}

// ---- The status is checked by %exception and is no result; without outputs a call returns None ----
%typemap(in, numinputs=0) int32_t *status (int32_t status = OTR_OK) "$1 = &status;"
%typemap(argout) int32_t *status { if (*$1 != OTR_OK) { OTR_RAISE(*$1) } }
%typemap(out) int32_t "$result = NULL;"
%typemap(ret) int32_t "if (!resultobj) resultobj = SWIG_Py_Void();"
%define OTR_NUMBER(name)
%typemap(out) int32_t name "$result = PyLong_FromLong($1);"
%typemap(ret) int32_t name ""
%enddef
OTR_NUMBER(otr_abi_version)
// Fields of the structs; test_python.py fails where one is missing here.
OTR_NUMBER(log_level)
OTR_NUMBER(workers)
OTR_NUMBER(rank)
OTR_NUMBER(world_size)
OTR_NUMBER(trainable)
OTR_NUMBER(contributions)
OTR_NUMBER(replicated)
OTR_NUMBER(outcome)
OTR_NUMBER(reason)
OTR_NUMBER(nonfinite_rank)
OTR_NUMBER(accumulation)
OTR_NUMBER(layout)
OTR_NUMBER(separate_memory)
OTR_NUMBER(grads_at_once)
OTR_NUMBER(ranks)
OTR_NUMBER(start)
OTR_NUMBER(replace)
OTR_NUMBER(keep_last)
OTR_NUMBER(weights_only)
OTR_NUMBER(strict)
OTR_NUMBER(exp_avg)
OTR_NUMBER(exp_avg_sq)
OTR_NUMBER(skip_other_dtypes)
OTR_NUMBER(initial_element_bytes)
OTR_NUMBER(hosts)
OTR_NUMBER(on_device)
OTR_NUMBER(states)
OTR_NUMBER(page_lock)
OTR_NUMBER(keep_last)
OTR_NUMBER(replace)
OTR_NUMBER(asynchronous)
OTR_NUMBER(when_busy)
OTR_NUMBER(weights_only)
OTR_NUMBER(strict)
OTR_NUMBER(state)
OTR_NUMBER(replicas)
OTR_NUMBER(copies)

// ---- Numbers and texts ----
%define OTR_OUT_NUMBER(type, name, from)
%typemap(in, numinputs=0) type *name (type number = 0) "$1 = &number;"
%typemap(argout) type *name { %append_output(from(*$1)); }
%enddef
OTR_OUT_NUMBER(int32_t, out_rank, PyLong_FromLong)
OTR_OUT_NUMBER(int32_t, out_world_size, PyLong_FromLong)
OTR_OUT_NUMBER(int32_t, out_count, PyLong_FromLong)
OTR_OUT_NUMBER(int32_t, out_shares, PyLong_FromLong)
OTR_OUT_NUMBER(int32_t, out_is_boundary, PyBool_FromLong)
OTR_OUT_NUMBER(int32_t, out_has_grad, PyBool_FromLong)
OTR_OUT_NUMBER(int64_t, out_first, PyLong_FromLongLong)
OTR_OUT_NUMBER(int64_t, out_index, PyLong_FromLongLong)
OTR_OUT_NUMBER(int64_t, out_id, PyLong_FromLongLong)
OTR_OUT_NUMBER(int64_t, out_count, PyLong_FromLongLong)
OTR_OUT_NUMBER(int64_t, out_bytes, PyLong_FromLongLong)
OTR_OUT_NUMBER(int64_t, out_step, PyLong_FromLongLong)
OTR_OUT_NUMBER(double, out_value, PyFloat_FromDouble)
OTR_OUT_NUMBER(double, out_scale, PyFloat_FromDouble)
OTR_OUT_NUMBER(double, out_norm, PyFloat_FromDouble)
OTR_OUT_NUMBER(void *, out_data, PyLong_FromVoidPtr)  // of a device: its address as a number
%typemap(in) void *data, const void *mpi_comm {
  $1 = $input == Py_None ? NULL : PyLong_AsVoidPtr($input);
  if (PyErr_Occurred()) SWIG_fail;
}

%typemap(in, numinputs=0) const char **out_name (char *text = NULL) "$1 = &text;"
%typemap(argout) const char **out_name { %append_output(PyUnicode_FromString(*$1)); }
%typemap(in, numinputs=0) char **out_text (char *text = NULL) "$1 = &text;"
%typemap(argout) char **out_text { %append_output(PyUnicode_FromString(*$1)); }
%typemap(freearg) char **out_text { free(*$1); }
%typemap(in, numinputs=0) (void **out_bytes, size_t *out_size) (void *bytes = NULL, size_t size = 0) "$1 = &bytes; $2 = &size;"
%typemap(argout) (void **out_bytes, size_t *out_size) {
  %append_output(PyBytes_FromStringAndSize((const char *)*$1, (Py_ssize_t)*$2));
}
%typemap(freearg) (void **out_bytes, size_t *out_size) { free(*$1); }

%typemap(in, numinputs=0) (int32_t *out_ndim, const int64_t **out_shape) (int32_t ndim = 0, int64_t *shape = NULL)
  "$1 = &ndim; $2 = &shape;"
%typemap(argout) (int32_t *out_ndim, const int64_t **out_shape) {
  PyObject *tuple = PyTuple_New(*$1);
  for (int32_t d = 0; tuple && d < *$1; d++) {
    if (PyTuple_SetItem(tuple, d, PyLong_FromLongLong((*$2)[d])) != 0) Py_CLEAR(tuple);
  }
  if (!tuple) SWIG_fail;
  %append_output(tuple);
}

// ---- Handles and records ----
%define OTR_OUT_HANDLE(type, name)
%typemap(in, numinputs=0) type **name (type *handle = NULL) "$1 = &handle;"
%typemap(argout) type **name { %append_output(SWIG_NewPointerObj(*$1, $*1_descriptor, SWIG_POINTER_OWN)); }
%enddef

// The fields in their order, numbers that have names by name. Hidden ones of the struct are no properties.
%pythoncode %{
def _repr_of_record(record, prefixes):
    def name(prefix, number):
        return next((word for word, value in globals().items() if word.startswith(prefix) and value == number), number)

    names = [word for word, value in vars(type(record)).items() if isinstance(value, property) and word not in ("thisown", "struct_size")]
    values = {word: name(prefixes[word], getattr(record, word)) if word in prefixes else getattr(record, word) for word in names}
    return f"{type(record).__name__}({', '.join(f'{word}={value}' for word, value in values.items())})"
%}
%extend otr_step_report {
%pythoncode %{
    def __repr__(self):
        return _repr_of_record(self, {"outcome": "STEP_", "reason": "SKIP_"})
%}
}
%extend otr_save_status {
%pythoncode %{
    def __repr__(self):
        return _repr_of_record(self, {"state": "SAVE_"})
%}
}
%extend otr_snapshot_info {
%pythoncode %{
    def __repr__(self):
        return _repr_of_record(self, {})
%}
}
%extend otr_message_info {
%pythoncode %{
    def __repr__(self):
        return _repr_of_record(self, {})
%}
}
%define OTR_OUT_RECORD(type, name)
%typemap(in, numinputs=0) type *name (type record) {
  memset(&record, 0, sizeof record);
  record.struct_size = (uint32_t)sizeof record;
  $1 = &record;
}
%typemap(argout) type *name {
  type *copy = (type *)malloc(sizeof *copy);
  if (!copy) {
    PyErr_NoMemory();
    SWIG_fail;
  }
  *copy = *$1;
  %append_output(SWIG_NewPointerObj(copy, $1_descriptor, SWIG_POINTER_OWN));
}
%enddef
OTR_OUT_RECORD(otr_step_report, report)
OTR_OUT_RECORD(otr_save_status, out_status)
OTR_OUT_RECORD(otr_snapshot_info, out_info)
OTR_OUT_RECORD(otr_message_info, out_info)

%typemap(in, numinputs=0) otr_step_report *reports "$1 = NULL;"
%typemap(check) otr_step_report *reports {  /* otr_step_many: arg2 is the number of engines */
  $1 = (otr_step_report *)calloc((size_t)arg2 + 1, sizeof *$1);
  for (int64_t i = 0; $1 && i < arg2; i++) $1[i].struct_size = (uint32_t)sizeof *$1;
}
%typemap(argout) otr_step_report *reports {
  PyObject *list = PyList_New((Py_ssize_t)arg2);
  for (int64_t i = 0; list && i < arg2; i++) {
    otr_step_report *copy = (otr_step_report *)malloc(sizeof *copy);
    if (copy) *copy = $1[i];
    PyObject *item = copy ? SWIG_NewPointerObj(copy, $1_descriptor, SWIG_POINTER_OWN) : PyErr_NoMemory();
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
  }
  if (!list) SWIG_fail;
  %append_output(list);
}
%typemap(freearg) otr_step_report *reports { free($1); }

%typemap(in, numinputs=0) (otr_memory_entry **out_entries, size_t *out_entry_count)
    (otr_memory_entry *entries = NULL, size_t count = 0) "$1 = &entries; $2 = &count;"
%typemap(argout) (otr_memory_entry **out_entries, size_t *out_entry_count) {
  PyObject *list = PyList_New((Py_ssize_t)*$2);
  for (size_t i = 0; list && i < *$2; i++) {
    const otr_memory_entry *e = &(*$1)[i];
    PyObject *item = Py_BuildValue("(sLL)", e->purpose, (long long)e->resident_bytes, (long long)e->peak_bytes);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
  }
  if (!list) SWIG_fail;
  %append_output(list);
}
%typemap(freearg) (otr_memory_entry **out_entries, size_t *out_entry_count) { free(*$1); }

%typemap(in, numinputs=0) otr_comm **out_comms "$1 = NULL;"
%typemap(check) otr_comm **out_comms {  /* otr_comm_create_threads: arg2 is the world size */
  $1 = (otr_comm **)calloc(arg2 > 0 ? (size_t)arg2 : 1, sizeof *$1);
}
%typemap(argout) otr_comm **out_comms {
  PyObject *list = PyList_New(arg2);
  for (int32_t r = 0; list && r < arg2; r++) {
    PyList_SetItem(list, r, SWIG_NewPointerObj($1[r], $*1_descriptor, SWIG_POINTER_OWN));
  }
  if (!list) SWIG_fail;
  %append_output(list);
}
%typemap(freearg) otr_comm **out_comms { free($1); }

// ---- Tensors ----
%typemap(in) const otr_tensor * (otr_python_tensor held) {
  if ($input != Py_None) {
    if (otr_python_acquire($input, 0, &held) != 0) SWIG_fail;
    $1 = &held.tensor;
  }
}
// Memory that the library writes into has to be writable.
%typemap(in) const otr_tensor *out (otr_python_tensor held), const otr_tensor *weights (otr_python_tensor held),
             const otr_tensor *to (otr_python_tensor held), const otr_tensor *destination (otr_python_tensor held) {
  if (otr_python_acquire($input, 1, &held) != 0) SWIG_fail;
  $1 = &held.tensor;
}
%typemap(in) const otr_tensor *kept (otr_python_tensor held) {
  if ($input != Py_None) {
    if (otr_python_acquire($input, 1, &held) != 0) SWIG_fail;
    $1 = &held.tensor;
  }
}
%typemap(freearg) const otr_tensor * { if ($1) otr_python_release(&held$argnum); }

%typemap(in, numinputs=0) otr_tensor *out_tensor (otr_tensor shown) "$1 = &shown;"
%typemap(argout) otr_tensor *out_tensor {
  PyObject *view = otr_python_show($1, swig_obj[0], 0);
  if (!view) SWIG_fail;
  %append_output(view);
}
%apply otr_tensor *out_tensor { otr_tensor *out_slot };

%typemap(in, numinputs=0) otr_tensor *out_tensors "$1 = NULL;"
%typemap(check) otr_tensor *out_tensors {  /* otr_engine_acquire: arg3 is the number of ids */
  $1 = (otr_tensor *)calloc((size_t)arg3 + 1, sizeof *$1);
}
%typemap(argout) otr_tensor *out_tensors {
  PyObject *list = PyList_New((Py_ssize_t)arg3);
  for (int64_t i = 0; list && i < arg3; i++) {
    PyObject *view = otr_python_show(&$1[i], swig_obj[0], 1);
    if (!view || PyList_SetItem(list, (Py_ssize_t)i, view) != 0) Py_CLEAR(list);
  }
  if (!list) SWIG_fail;
  %append_output(list);
}
%typemap(freearg) otr_tensor *out_tensors { free($1); }

// ---- Arrays of arguments: any Python sequence ----
%define OTR_SEQUENCE(pattern, convert)
%typemap(in) pattern (otr_python_list list) {
  if (otr_python_list_of($input, &list, convert) != 0) SWIG_fail;
  $1 = list.items;
  $2 = (int64_t)list.count;
}
%typemap(freearg) pattern { if ($1) otr_python_list_free(&list$argnum); }
%enddef
OTR_SEQUENCE((const int64_t *ids, int64_t count), otr_python_item_id)
OTR_SEQUENCE((const int64_t *shape, int64_t ndim), otr_python_item_id)
OTR_SEQUENCE((const otr_tensor *output_grads, int64_t count), otr_python_item_tensor)
OTR_SEQUENCE((otr_shard *const *shards, int64_t count), otr_python_item_shard)
OTR_SEQUENCE((otr_engine *const *engines, int64_t count), otr_python_item_engine)
OTR_SEQUENCE((otr_snapshot *const *snapshots, int64_t count), otr_python_item_snapshot)
%typemap(in) const otr_tensor *values (otr_python_list list) {  /* otr_engine_set_initial: arg3 is the number of ids */
  if (otr_python_list_of($input, &list, otr_python_item_tensor) != 0) SWIG_fail;
  $1 = (otr_tensor *)list.items;
  if ((int64_t)list.count != arg3) {
    PyErr_Format(PyExc_ValueError, "%zd values for %lld ids: give one for each", list.count, (long long)arg3);
    SWIG_fail;
  }
}
%typemap(freearg) const otr_tensor *values { if ($1) otr_python_list_free(&list$argnum); }
%{
static int otr_python_item_handle(PyObject *item, otr_python_list *list, Py_ssize_t index, swig_type_info *type,
                                  const char *name) {
  void *pointer = NULL;
  if (!SWIG_IsOK(SWIG_ConvertPtr(item, &pointer, type, 0)) || !pointer) {
    PyErr_Format(PyExc_TypeError, "item %zd is no %s", index, name);
    return -1;
  }
  ((void **)list->items)[index] = pointer;
  return 0;
}
static int otr_python_item_shard(PyObject *item, otr_python_list *list, Py_ssize_t index) {
  return otr_python_item_handle(item, list, index, SWIGTYPE_p_otr_shard, "Shard");
}
static int otr_python_item_engine(PyObject *item, otr_python_list *list, Py_ssize_t index) {
  return otr_python_item_handle(item, list, index, SWIGTYPE_p_otr_engine, "Engine");
}
static int otr_python_item_snapshot(PyObject *item, otr_python_list *list, Py_ssize_t index) {
  return otr_python_item_handle(item, list, index, SWIGTYPE_p_otr_snapshot, "Snapshot");
}
%}

// ---- Plain memory: contiguous buffers ----
%define OTR_MEMORY(pattern, flags)
%typemap(in) pattern (Py_buffer view) {
  if (PyObject_GetBuffer($input, &view, flags) != 0) SWIG_fail;
  $1 = view.buf ? view.buf : &view;
  $2 = (size_t)view.len;
}
%typemap(freearg) pattern { if ($1) PyBuffer_Release(&view$argnum); }
%enddef
OTR_MEMORY((void *data, size_t bytes), PyBUF_CONTIG)
OTR_MEMORY((const void *mine, size_t bytes), PyBUF_CONTIG_RO)
OTR_MEMORY((double *values, size_t count), PyBUF_CONTIG | PyBUF_FORMAT)
%typemap(check) (double *values, size_t count) {
  if (!view$argnum.format || strcmp(view$argnum.format, "d") != 0) {
    PyErr_SetString(PyExc_TypeError, "expected a contiguous array of float64");
    SWIG_fail;
  }
  $2 /= sizeof(double);
}
%typemap(in) (int64_t count, float *out) (Py_buffer view) {
  if (PyObject_GetBuffer($input, &view, PyBUF_CONTIG | PyBUF_FORMAT) != 0) SWIG_fail;
  if (!view.format || strcmp(view.format, "f") != 0) {
    PyBuffer_Release(&view);
    PyErr_SetString(PyExc_TypeError, "expected a contiguous array of float32");
    SWIG_fail;
  }
  $1 = (int64_t)((size_t)view.len / sizeof(float));
  $2 = (float *)view.buf;
}
%typemap(freearg) (int64_t count, float *out) { if ($2) PyBuffer_Release(&view$argnum); }

OTR_MEMORY((void *buffer, size_t size), PyBUF_CONTIG)
OTR_MEMORY((const void *data, size_t size), PyBUF_CONTIG_RO)

// The sizes have to be those of the buffers, one for each rank.
OTR_MEMORY((const void *parts, size_t parts_size), PyBUF_CONTIG_RO)
OTR_MEMORY((void *received, size_t received_size), PyBUF_CONTIG)
OTR_SEQUENCE((const int64_t *part_bytes, int64_t part_count), otr_python_item_id)
OTR_SEQUENCE((const int64_t *received_bytes, int64_t received_count), otr_python_item_id)
%typemap(check) (const int64_t *received_bytes, int64_t received_count) {
  if (!otr_python_fits("part_bytes", arg1, arg4, arg5, arg3) || !otr_python_fits("received_bytes", arg1, arg8, arg9, arg7)) SWIG_fail;
}
%{
static int otr_python_fits(const char *name, const otr_comm *comm, const int64_t *bytes, int64_t count, size_t size) {
  int32_t ranks = 0;
  uint64_t sum = 0;
  if (otr_comm_size(comm, &ranks) != OTR_OK) return 1;  /* the call says why */
  if (count != ranks) return PyErr_Format(PyExc_ValueError, "%s has %lld numbers; give one for each of %d ranks", name, (long long)count, (int)ranks) != NULL;
  for (int64_t r = 0; r < count; r++) {
    sum += (uint64_t)bytes[r];
    if (bytes[r] < 0 || sum > size) return PyErr_Format(PyExc_ValueError, "%s[%lld] = %lld: the buffer has %zu bytes for all", name, (long long)r, (long long)bytes[r], size) != NULL;
  }
  if (sum != size) return PyErr_Format(PyExc_ValueError, "%s are %llu bytes together, and the buffer has %zu", name, (unsigned long long)sum, size) != NULL;
  return 1;
}

/* size_t of a 64-bit machine is int64_t's size, and no number is negative. */
static int32_t otr_python_comm_all_to_all(otr_comm *comm, const void *parts, size_t parts_size, const int64_t *part_bytes, int64_t part_count,
                                     void *received, size_t received_size, const int64_t *received_bytes, int64_t received_count) {
  (void)parts_size;
  (void)part_count;
  (void)received_size;
  (void)received_count;
  return otr_comm_all_to_all(comm, parts, (const size_t *)part_bytes, received, (const size_t *)received_bytes);
}
%}

// ---- Messages ----
%typemap(in) (const char *const *names, const otr_tensor *tensors, int64_t count) (otr_python_named named) {
  if (otr_python_named_of($input, &named) != 0) SWIG_fail;
  $1 = (char **)named.names;
  $2 = (otr_tensor *)named.tensors.items;
  $3 = (int64_t)named.tensors.count;
}
%typemap(freearg) (const char *const *names, const otr_tensor *tensors, int64_t count) { if ($1) otr_python_named_free(&named$argnum); }
// None asks for the size, which is the result either way.
%typemap(in) (void *buffer, size_t *inout_size) (Py_buffer view, size_t size = 0) {
  view.obj = NULL;
  $1 = NULL;
  $2 = &size;
  if ($input != Py_None) {
    if (PyObject_GetBuffer($input, &view, PyBUF_CONTIG) != 0) SWIG_fail;
    $1 = view.buf;
    size = (size_t)view.len;
  }
}
%typemap(argout) (void *buffer, size_t *inout_size) { %append_output(PyLong_FromSize_t(*$2)); }
%typemap(freearg) (void *buffer, size_t *inout_size) { if ($2 && view$argnum.obj) PyBuffer_Release(&view$argnum); }
%typemap(in, numinputs=0) otr_message **out_message (otr_message *handle = NULL) "$1 = &handle;"
%typemap(argout) otr_message **out_message {
  PyObject *message = SWIG_NewPointerObj(*$1, $*1_descriptor, SWIG_POINTER_OWN);
  if (!message || otr_python_keep(message, swig_obj[0]) != 0) {
    Py_XDECREF(message);
    SWIG_fail;
  }
  %append_output(message);
}
%apply const char **out_name { const char **out_text };
%typemap(freearg) const char **out_text "";
%typemap(in, numinputs=0) otr_tensor *out_part (otr_tensor shown) "$1 = &shown;"
%typemap(argout) otr_tensor *out_part {
  PyObject *view = otr_python_show_part($1, swig_obj[0]);
  if (!view) SWIG_fail;
  %append_output(view);
}
OTR_SEQUENCE((const int64_t *source_rows, int32_t source_ranks), otr_python_item_id)
OTR_SEQUENCE((const int64_t *target_rows, int32_t target_ranks), otr_python_item_id)
%typemap(in, numinputs=0) (otr_message_route *routes, int64_t *inout_count) (int64_t count) "$1 = NULL; $2 = &count;"
%typemap(check) (otr_message_route *routes, int64_t *inout_count) {  /* arg2 and arg4: the ranks */
  count$argnum = (int64_t)arg2 + arg4 + 1;
  $1 = (otr_message_route *)calloc((size_t)count$argnum, sizeof *$1);
}
%typemap(argout) (otr_message_route *routes, int64_t *inout_count) {
  PyObject *list = PyList_New((Py_ssize_t)*$2);
  for (int64_t i = 0; list && i < *$2; i++) {
    const otr_message_route *r = &$1[i];
    PyObject *item = Py_BuildValue("(iiLLL)", (int)r->source, (int)r->target, (long long)r->source_row, (long long)r->target_row, (long long)r->rows);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
  }
  if (!list) SWIG_fail;
  %append_output(list);
}
%typemap(freearg) (otr_message_route *routes, int64_t *inout_count) { free($1); }

%typemap(in, numinputs=0) void *all (Py_ssize_t size = 0) "$1 = NULL;"
%typemap(check) void *all {  /* otr_comm_all_gather: arg1 is the communicator, arg3 the bytes of one rank */
  int32_t ranks = 0;
  if (otr_comm_size(arg1, &ranks) == OTR_OK) size$argnum = (Py_ssize_t)arg3 * ranks;
  $1 = malloc((size_t)size$argnum + 1);
}
%typemap(argout) void *all { %append_output(PyBytes_FromStringAndSize((const char *)$1, size$argnum)); }
%typemap(freearg) void *all { free($1); }

// ---- A communicator of Python's own: python_comm.h says what the object has to have ----
%define OTR_CALLBACKS
%rename(comm_all_to_all) otr_python_comm_all_to_all;
int32_t otr_python_comm_all_to_all(otr_comm *comm, const void *parts, size_t parts_size, const int64_t *part_bytes, int64_t part_count,
                              void *received, size_t received_size, const int64_t *received_bytes, int64_t received_count);
%rename(comm_create_custom) otr_python_comm_create;
int32_t otr_python_comm_create(otr_context *context, PyObject *channel, otr_comm **out_comm);
%rename(device_set_allocator) otr_python_set_allocator;
int32_t otr_python_set_allocator(otr_context *context, int32_t device_type, int32_t device_id,
                                 uint64_t allocate, uint64_t release);
%enddef

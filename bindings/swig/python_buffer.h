/* SPDX-License-Identifier: Apache-2.0
 * Tensors of Python: from any object with the buffer protocol or DLPack, and back, without a copy.
 *
 * bfloat16 has no buffer format. Arrays of ml_dtypes.bfloat16 are taken through their uint16 view,
 * a plain uint16 array is taken as bfloat16, and bfloat16 memory is shown with the format "H". */
#ifndef OTR_PYTHON_BUFFER_H
#define OTR_PYTHON_BUFFER_H

#include "python_dlpack.h"
#include "refusal.h"

#define OTR_PYTHON_MAX_DIMENSIONS 16

/* ---- An argument: a tensor over an object's memory, held until otr_python_release ---- */
typedef struct {
  Py_buffer view;
  int held;
  PyObject* capsule; /* instead of the view */
  otr_tensor tensor;
  int64_t shape[OTR_PYTHON_MAX_DIMENSIONS];
  int64_t strides[OTR_PYTHON_MAX_DIMENSIONS];
} otr_python_tensor;

static void otr_python_release(otr_python_tensor* t) {
  if (t->held) PyBuffer_Release(&t->view);
  t->held = 0;
  Py_CLEAR(t->capsule);
}

/* An array of ml_dtypes.bfloat16, which has no buffer → its uint16 view; anything else → NULL. A
 * new reference; no exception is set. The name is a slow property of NumPy's dtype. */
static PyObject* otr_python_uint16_of(PyObject* object) {
  PyObject *dtype = PyObject_GetAttrString(object, "dtype"), *name = NULL, *plain = NULL;
  if (dtype) name = PyObject_GetAttrString(dtype, "name");
  if (name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0) {
    plain = PyObject_CallMethod(object, "view", "s", "uint16");
  }
  PyErr_Clear();
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  return plain;
}

/* 1: as bfloat16, 0: as its own dtype; -1 with an exception set. */
static int otr_python_get_buffer(PyObject* object, int writable, Py_buffer* view) {
  const int flags = writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
  if (PyObject_CheckBuffer(object) && PyObject_GetBuffer(object, view, flags) == 0) return 0;
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* plain = otr_python_uint16_of(object);
  if (plain && PyObject_CheckBuffer(plain)) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    const int failed = PyObject_GetBuffer(plain, view, flags);
    Py_DECREF(plain); /* the view holds it */
    return failed ? -1 : 1;
  }
  Py_XDECREF(plain);
  PyErr_Restore(type, value, traceback);
  if (!type) {
    PyErr_Format(PyExc_TypeError, "%S is no array; give an array, such as numpy.asarray(value)",
                 (PyObject*)Py_TYPE(object));
  }
  return -1;
}

/* Of a buffer's format; 0: of none. `any`: also bool and integers, and "H" is uint16. */
static int otr_python_dtype(const char* format, Py_ssize_t itemsize, int any, otr_dtype* dtype) {
  const char code =
      format[0] == '<' || format[0] == '=' || format[0] == '@' ? format[1] : format[0];
  dtype->bits = (uint8_t)(8 * itemsize);
  dtype->lanes = 1;
  if (code == '\0') return 0;
  if (code == 'H' && !any) {
    dtype->code = OTR_DTYPE_BFLOAT;
  } else if (strchr("fde", code)) {
    dtype->code = OTR_DTYPE_FLOAT;
  } else if (any && code == '?') {
    dtype->code = OTR_DTYPE_BOOL;
  } else if (any && strchr("bhilq", code)) {
    dtype->code = OTR_DTYPE_INT;
  } else if (any && strchr("BHILQ", code)) {
    dtype->code = OTR_DTYPE_UINT;
  } else {
    return 0;
  }
  return 1;
}

/* Returns 0, or -1 with a Python exception set. `any`: of any dtype that a message carries. */
static int otr_python_acquire_any(PyObject* object, int writable, int any, otr_python_tensor* t) {
  t->held = 0;
  t->capsule = NULL;
  if (!PyObject_CheckBuffer(object)) {
    t->capsule = otr_python_capsule(object);
    if (!t->capsule && PyErr_Occurred()) return -1;
    if (t->capsule) {
      t->tensor = *otr_python_tensor_of(t->capsule);
      return 0;
    }
  }
  const int is_bfloat16 = otr_python_get_buffer(object, writable, &t->view);
  if (is_bfloat16 < 0) return -1;
  t->held = 1;
  memset(&t->tensor, 0, sizeof t->tensor);
  if (!otr_python_dtype(t->view.format ? t->view.format : "B", t->view.itemsize,
                        any && !is_bfloat16, &t->tensor.dtype)) {
    PyErr_Format(
        PyExc_TypeError, "a tensor's elements have the buffer format \"%s\"; give %s",
        t->view.format ? t->view.format : "B",
        any ? "bool, an integer of 8 to 64 bits, float16, float32, float64 or ml_dtypes.bfloat16"
            : "float32, float64, float16, ml_dtypes.bfloat16, or uint16 for bfloat16");
    otr_python_release(t);
    return -1;
  }
  if (t->view.ndim > OTR_PYTHON_MAX_DIMENSIONS) {
    PyErr_Format(PyExc_ValueError, "a tensor has %d dimensions; at most %d are taken", t->view.ndim,
                 OTR_PYTHON_MAX_DIMENSIONS);
    otr_python_release(t);
    return -1;
  }
  for (int d = 0; d < t->view.ndim; d++) {
    t->shape[d] = t->view.shape[d];
    if (!t->view.strides) continue; /* row-major, says ctypes */
    if (t->view.strides[d] % t->view.itemsize != 0) {
      PyErr_Format(PyExc_ValueError,
                   "dimension %d has a stride of %zd bytes, which is no multiple of the element's "
                   "%zd; copy the "
                   "array first",
                   d, t->view.strides[d], t->view.itemsize);
      otr_python_release(t);
      return -1;
    }
    t->strides[d] = t->view.strides[d] / t->view.itemsize;
  }
  t->tensor.data = t->view.buf;
  t->tensor.device.device_type = OTR_DEVICE_CPU;
  t->tensor.ndim = t->view.ndim;
  t->tensor.shape = t->shape;
  t->tensor.strides = t->view.strides ? t->strides : NULL;
  return 0;
}

static int otr_python_acquire(PyObject* object, int writable, otr_python_tensor* t) {
  return otr_python_acquire_any(object, writable, 0, t);
}

/* ---- A sequence argument: ids, tensors or handles ---- */
typedef struct otr_python_list {
  PyObject* sequence;
  Py_ssize_t count;
  void* items;             /* int64_t, otr_tensor or pointers; one more than count, so never NULL */
  otr_python_tensor* held; /* of tensors */
} otr_python_list;

typedef int (*otr_python_item)(PyObject* item, otr_python_list* list, Py_ssize_t index);

static void otr_python_list_free(otr_python_list* list) {
  for (Py_ssize_t i = 0; list->held && i < list->count; i++) otr_python_release(&list->held[i]);
  free(list->held);
  free(list->items);
  Py_XDECREF(list->sequence);
}

static int otr_python_item_id(PyObject* item, otr_python_list* list, Py_ssize_t index) {
  const long long id = PyLong_AsLongLong(item);
  ((int64_t*)list->items)[index] = id;
  return id == -1 && PyErr_Occurred() ? -1 : 0;
}

static int otr_python_item_tensor(PyObject* item, otr_python_list* list, Py_ssize_t index) {
  if (otr_python_acquire(item, 0, &list->held[index]) != 0) return -1;
  ((otr_tensor*)list->items)[index] = list->held[index].tensor;
  return 0;
}

static int otr_python_list_of(PyObject* object, otr_python_list* list, otr_python_item convert) {
  memset(list, 0, sizeof *list);
  list->sequence = PySequence_Fast(object, "expected a sequence");
  if (!list->sequence) return -1;
  list->count = PySequence_Size(list->sequence);
  list->items = calloc((size_t)list->count + 1, sizeof(otr_tensor));
  list->held = (otr_python_tensor*)calloc((size_t)list->count + 1, sizeof *list->held);
  int failed = !list->items || !list->held;
  if (failed) PyErr_NoMemory();
  for (Py_ssize_t i = 0; !failed && i < list->count; i++) {
    PyObject* item = PySequence_GetItem(list->sequence, i); /* the sequence keeps it alive, too */
    failed = !item || convert(item, list, i) != 0;
    Py_XDECREF(item);
  }
  if (failed) otr_python_list_free(list);
  return failed ? -1 : 0;
}

/* ---- A result: an object with the buffer protocol and DLPack that shows a tensor and keeps its
 * owner alive ---- */
typedef struct {
  PyObject_HEAD PyObject* owner;
  void* data;
  otr_device device;
  otr_dtype dtype;
  const char* format;
  Py_ssize_t itemsize, length;
  int readonly, ndim;
  Py_ssize_t shape[OTR_PYTHON_MAX_DIMENSIONS];
  Py_ssize_t strides[OTR_PYTHON_MAX_DIMENSIONS];
} otr_python_view;

static int otr_python_view_getbuffer(PyObject* object, Py_buffer* buffer, int flags) {
  otr_python_view* self = (otr_python_view*)object;
  buffer->obj = NULL;
  if ((flags & PyBUF_WRITABLE) && self->readonly) {
    PyErr_SetString(PyExc_BufferError, "this tensor is read-only");
    return -1;
  }
  if (self->device.device_type != OTR_DEVICE_CPU) {
    PyErr_SetString(PyExc_BufferError, "this tensor is on a device; take it through DLPack");
    return -1;
  }
  buffer->buf = self->data;
  buffer->itemsize = self->itemsize;
  buffer->len = self->length;
  buffer->readonly = self->readonly;
  buffer->ndim = self->ndim;
  buffer->format = flags & PyBUF_FORMAT ? (char*)self->format : NULL;
  buffer->shape = flags & PyBUF_ND ? self->shape : NULL;
  buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
  buffer->suboffsets = NULL;
  buffer->internal = NULL;
  Py_INCREF(object);
  buffer->obj = object;
  return 0;
}

static void otr_python_view_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(((otr_python_view*)object)->owner);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* Read-only tensors too: DLPack has no word for it that its consumers know. */
static PyObject* otr_python_view_dlpack(PyObject* object, PyObject* arguments, PyObject* options) {
  (void)arguments; /* stream, version, device, copy: the oldest form, in place, suits every consumer
                    */
  (void)options;
  const otr_python_view* self = (const otr_python_view*)object;
  int64_t shape[OTR_PYTHON_MAX_DIMENSIONS], strides[OTR_PYTHON_MAX_DIMENSIONS];
  for (int d = 0; d < self->ndim; d++) {
    shape[d] = self->shape[d];
    strides[d] = self->strides[d] / self->itemsize;
  }
  const otr_tensor tensor = {self->data, self->device, self->ndim, self->dtype, shape, strides, 0};
  return otr_python_give_dlpack(&tensor, object);
}

static PyObject* otr_python_view_device(PyObject* object, PyObject* arguments) {
  (void)arguments;
  const otr_python_view* self = (const otr_python_view*)object;
  return Py_BuildValue("(ii)", (int)self->device.device_type, (int)self->device.device_id);
}

/* By its widths of 8, 16, 32 and 64 bits. */
static const char* otr_python_format(otr_dtype dtype) {
  const int width = dtype.bits == 64 ? 3 : dtype.bits == 32 ? 2 : dtype.bits == 16 ? 1 : 0;
  static const char* const formats[][4] = {
      {"b", "h", "i", "q"}, {"B", "H", "I", "Q"}, {"e", "e", "f", "d"}};
  return dtype.code == OTR_DTYPE_BFLOAT ? "H"
         : dtype.code == OTR_DTYPE_BOOL ? "?"
         : dtype.code == OTR_DTYPE_INT  ? formats[0][width]
         : dtype.code == OTR_DTYPE_UINT ? formats[1][width]
                                        : formats[2][width];
}

static PyObject* otr_python_view_dtype(PyObject* object, void* closure) {
  (void)closure;
  const otr_dtype dtype = ((const otr_python_view*)object)->dtype;
  if (dtype.code == OTR_DTYPE_BOOL) return PyUnicode_FromString("bool");
  return PyUnicode_FromFormat("%s%d",
                              dtype.code == OTR_DTYPE_BFLOAT ? "bfloat"
                              : dtype.code == OTR_DTYPE_INT  ? "int"
                              : dtype.code == OTR_DTYPE_UINT ? "uint"
                                                             : "float",
                              (int)dtype.bits);
}

static PyTypeObject* otr_python_view_type(void) {
  static PyTypeObject* type; /* guarded by the GIL */
  static PyMethodDef methods[] = {
      {"__dlpack__", (PyCFunction)(void (*)(void))otr_python_view_dlpack,
       METH_VARARGS | METH_KEYWORDS, NULL},
      {"__dlpack_device__", otr_python_view_device, METH_NOARGS, NULL},
      {NULL, NULL, 0, NULL}};
  static PyGetSetDef fields[] = {
      {"dtype", otr_python_view_dtype, NULL, "\"float32\", \"bfloat16\", \"int64\" …", NULL},
      {NULL, NULL, NULL, NULL, NULL}};
  static PyType_Slot slots[] = {
      {Py_bf_getbuffer, (void*)otr_python_view_getbuffer},
      {Py_tp_dealloc, (void*)otr_python_view_dealloc},
      {Py_tp_methods, (void*)methods},
      {Py_tp_getset, (void*)fields},
      {Py_tp_doc, (void*)"Memory of Outrigger, for memoryview, numpy.asarray or any from_dlpack."},
      {0, NULL}};
  static PyType_Spec spec = {"outrigger.lowlevel.TensorView", (int)sizeof(otr_python_view), 0,
                             Py_TPFLAGS_DEFAULT, slots};
  if (!type) type = (PyTypeObject*)PyType_FromSpec(&spec);
  return type;
}

/* A new reference, or NULL with an exception set. The tensor is row-major where it has no strides.
 */
static PyObject* otr_python_show(const otr_tensor* tensor, PyObject* owner, int readonly) {
  if (tensor->ndim > OTR_PYTHON_MAX_DIMENSIONS) {
    return PyErr_Format(PyExc_ValueError, "a tensor has %d dimensions; at most %d can be shown",
                        (int)tensor->ndim, OTR_PYTHON_MAX_DIMENSIONS);
  }
  PyTypeObject* type = otr_python_view_type();
  otr_python_view* view = type ? PyObject_New(otr_python_view, type) : NULL;
  if (!view) return NULL;
  view->owner = owner;
  Py_XINCREF(owner);
  view->data = (char*)tensor->data + tensor->byte_offset;
  view->device = tensor->device;
  view->dtype = tensor->dtype;
  view->format = otr_python_format(tensor->dtype);
  view->itemsize = tensor->dtype.bits / 8;
  view->readonly = readonly;
  view->ndim = tensor->ndim;
  Py_ssize_t row_major = view->itemsize;
  for (int d = tensor->ndim; d-- > 0;) {
    view->shape[d] = (Py_ssize_t)tensor->shape[d];
    view->strides[d] =
        tensor->strides ? (Py_ssize_t)tensor->strides[d] * view->itemsize : row_major;
    row_major *= view->shape[d];
  }
  view->length = row_major;
  return (PyObject*)view;
}

/* ---- OutriggerError(code, text), which lowlevel.py defines ---- */
static void otr_python_raise(int32_t code) {
  /* What the signal's handler raised, or a communicator's method. */
  if ((code == OTR_E_INTERRUPTED || code == OTR_E_HOST) && PyErr_Occurred()) return;
  const char* text = otr_swig_error_text(); /* of the thread that called, which is this one */
  PyObject* module = PyImport_ImportModule("outrigger.lowlevel");
  PyObject* error = module ? PyObject_GetAttrString(module, "OutriggerError") : NULL;
  PyObject* string = error ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : NULL;
  PyObject* value = string ? PyObject_CallFunction(error, "iO", (int)code, string) : NULL;
  if (value) PyErr_SetObject(error, value);
  Py_XDECREF(value);
  Py_XDECREF(string);
  Py_XDECREF(error);
  Py_XDECREF(module);
}

#endif /* OTR_PYTHON_BUFFER_H */

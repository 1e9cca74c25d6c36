/* SPDX-License-Identifier: Apache-2.0
 * Messages of Python: named tensors of any dtype in, and memory that a message is read from. */
#ifndef OTR_PYTHON_MESSAGE_H
#define OTR_PYTHON_MESSAGE_H

#include "python_buffer.h"

/* ---- An argument: a sequence of pairs (name, tensor) ---- */
typedef struct {
  otr_python_list tensors;
  PyObject* pairs; /* hold the names */
  const char** names;
} otr_python_named;

static void otr_python_named_free(otr_python_named* named) {
  otr_python_list_free(&named->tensors);
  free((void*)named->names);
  Py_XDECREF(named->pairs);
}

/* The item is a pair; its tensor may be of any dtype that a message carries. */
static int otr_python_item_named(PyObject* item, otr_python_list* list, Py_ssize_t index) {
  if (!PyTuple_Check(item) || PyTuple_Size(item) != 2) {
    PyErr_Format(PyExc_TypeError, "item %zd is no pair of a name and an array", index);
    return -1;
  }
  if (otr_python_acquire_any(PyTuple_GetItem(item, 1), 0, 1, &list->held[index]) != 0) return -1;
  ((otr_tensor*)list->items)[index] = list->held[index].tensor;
  return 0;
}

static int otr_python_named_of(PyObject* object, otr_python_named* named) {
  memset(named, 0, sizeof *named);
  named->pairs = PySequence_Tuple(object);
  if (!named->pairs ||
      otr_python_list_of(named->pairs, &named->tensors, otr_python_item_named) != 0) {
    Py_CLEAR(named->pairs);
    return -1;
  }
  named->names = (const char**)calloc((size_t)named->tensors.count + 1, sizeof *named->names);
  for (Py_ssize_t i = 0; named->names && i < named->tensors.count; i++) {
    PyObject* name = PyTuple_GetItem(PyTuple_GetItem(named->pairs, i), 0);
    named->names[i] = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!named->names[i]) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "the name of item %zd is no str", i);
      otr_python_named_free(named);
      return -1;
    }
  }
  if (!named->names) {
    PyErr_NoMemory();
    otr_python_named_free(named);
    return -1;
  }
  return 0;
}

/* ---- A message keeps the object whose memory it is in, as a memoryview ---- */
#define OTR_PYTHON_MESSAGE_MEMORY "_memory"

static int otr_python_keep(PyObject* message, PyObject* buffer) {
  PyObject* memory = PyMemoryView_FromObject(buffer);
  const int failed =
      !memory || PyObject_SetAttrString(message, OTR_PYTHON_MESSAGE_MEMORY, memory) != 0;
  Py_XDECREF(memory);
  return failed ? -1 : 0;
}

/* A tensor of it: read-only where the memory is. A new reference, or NULL with an exception set. */
static PyObject* otr_python_show_part(const otr_tensor* tensor, PyObject* message) {
  PyObject* memory = PyObject_GetAttrString(message, OTR_PYTHON_MESSAGE_MEMORY);
  PyObject* readonly = memory ? PyObject_GetAttrString(memory, "readonly") : NULL;
  PyObject* view =
      readonly ? otr_python_show(tensor, message, PyObject_IsTrue(readonly) != 0) : NULL;
  Py_XDECREF(readonly);
  Py_XDECREF(memory);
  return view;
}

#endif /* OTR_PYTHON_MESSAGE_H */

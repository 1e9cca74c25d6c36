/* SPDX-License-Identifier: Apache-2.0
 * Tensors of Python by DLPack, for arrays without the buffer protocol (PyTorch, JAX, devices): in
 * as a capsule or an object with __dlpack__, out through TensorView.__dlpack__. */
#ifndef OTR_PYTHON_DLPACK_H
#define OTR_PYTHON_DLPACK_H

/* DLPack's DLManagedTensor; its tensor has the layout of otr_tensor. */
typedef struct otr_python_managed {
  otr_tensor tensor;
  void* owner;
  void (*deleter)(struct otr_python_managed* self);
} otr_python_managed;

/* A new reference to a capsule over the object's memory, which keeps that memory; NULL without an
 * exception: the object speaks no DLPack. */
static PyObject* otr_python_capsule(PyObject* object) {
  if (PyCapsule_IsValid(object, "dltensor")) {
    Py_INCREF(object);
    return object;
  }
  PyObject* method = PyObject_GetAttrString(object, "__dlpack__");
  if (!method) {
    PyErr_Clear();
    return NULL;
  }
  PyObject* capsule = PyObject_CallObject(method, NULL);
  Py_DECREF(method);
  if (capsule && !PyCapsule_IsValid(capsule, "dltensor")) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__ returned no capsule \"dltensor\"");
    Py_CLEAR(capsule);
  }
  return capsule;
}

static const otr_tensor* otr_python_tensor_of(PyObject* capsule) {
  return &((otr_python_managed*)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
}

/* Whoever took the tensor calls this from any thread, with the interpreter's lock or without. */
static void otr_python_managed_free(otr_python_managed* managed) {
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_XDECREF((PyObject*)managed->owner);
  PyGILState_Release(state);
  free(managed);
}

/* A capsule that nobody took. */
static void otr_python_capsule_free(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  otr_python_managed* managed = (otr_python_managed*)PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

/* A capsule over `tensor`, whose shape and strides are copied; it keeps `owner`. */
static PyObject* otr_python_give_dlpack(const otr_tensor* tensor, PyObject* owner) {
  const size_t extents = (size_t)tensor->ndim * sizeof(int64_t);
  otr_python_managed* managed = (otr_python_managed*)calloc(1, sizeof *managed + 2 * extents + 1);
  if (!managed) return PyErr_NoMemory();
  managed->tensor = *tensor;
  managed->tensor.shape = (int64_t*)(managed + 1);
  managed->tensor.strides = managed->tensor.shape + tensor->ndim;
  if (tensor->ndim > 0) {
    memcpy(managed->tensor.shape, tensor->shape, extents);
    memcpy(managed->tensor.strides, tensor->strides, extents);
  }
  managed->owner = owner;
  managed->deleter = otr_python_managed_free;
  PyObject* capsule = PyCapsule_New(managed, "dltensor", otr_python_capsule_free);
  if (!capsule) {
    free(managed);
    return NULL;
  }
  Py_INCREF(owner);
  return capsule;
}

#endif /* OTR_PYTHON_DLPACK_H */

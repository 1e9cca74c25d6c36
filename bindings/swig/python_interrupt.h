/* SPDX-License-Identifier: Apache-2.0
 * Ctrl-C while a call waits for other ranks.
 *
 * Python notes a signal and runs its handler on the main thread, between two instructions, which do
 * not come while that thread waits in the library. So the wait asks, and an exception of the
 * handler (KeyboardInterrupt) becomes that of the call. */
#ifndef OTR_PYTHON_INTERRUPT_H
#define OTR_PYTHON_INTERRUPT_H

/* The main thread's number; a forked child may have another one. 0: it could not be found, and a
 * wait is as uninterruptible as any in C. */
static unsigned long otr_python_main_number;
static unsigned long otr_python_main_thread(void) { return otr_python_main_number; }

static void otr_python_find_main_thread(void) {
  PyObject* threading = PyImport_ImportModule("threading");
  PyObject* thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
  PyObject* ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
  const unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
  if (!PyErr_Occurred()) otr_python_main_number = number;
  PyErr_Clear();
  Py_XDECREF(ident);
  Py_XDECREF(thread);
  Py_XDECREF(threading);
}

/* Only calls of the main thread can be interrupted; the others do not take the interpreter's lock
 * for nothing, nor at all while it shuts down. */
static int32_t otr_python_interrupted(void* user_data) {
  (void)user_data;
  if (PyThread_get_thread_ident() != otr_python_main_thread()) return 0;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int raised = PyErr_CheckSignals() != 0; /* the exception stays this thread's */
  PyGILState_Release(state);
  return raised;
}

#endif /* OTR_PYTHON_INTERRUPT_H */

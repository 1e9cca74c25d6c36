/* SPDX-License-Identifier: Apache-2.0
 * Ctrl-C while a call waits for other ranks.
 *
 * Python notes a signal and runs its handler on the main thread, between two instructions, which do
 * not come while that thread waits in the library. So the wait asks, and an exception of the
 * handler (KeyboardInterrupt) becomes that of the call. */
#ifndef OTR_PYTHON_INTERRUPT_H
#define OTR_PYTHON_INTERRUPT_H

/* user_data: the main thread's number. Only its calls can be interrupted; the others do not take
 * the interpreter's lock for nothing, nor at all while it shuts down. */
static int32_t otr_python_interrupted(void* user_data) {
  if (PyThread_get_thread_ident() != (unsigned long)(uintptr_t)user_data) return 0;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int raised = PyErr_CheckSignals() != 0; /* the exception stays this thread's */
  PyGILState_Release(state);
  return raised;
}

static void otr_python_interruptible(otr_context_options* options) {
  PyObject* threading = PyImport_ImportModule("threading");
  PyObject* thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
  PyObject* ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
  const unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
  if (ident && !PyErr_Occurred()) {
    options->interrupt_callback = otr_python_interrupted;
    options->interrupt_user_data = (void*)(uintptr_t)number;
  }
  PyErr_Clear(); /* without it a wait is as uninterruptible as any in C */
  Py_XDECREF(ident);
  Py_XDECREF(thread);
  Py_XDECREF(threading);
}

#endif /* OTR_PYTHON_INTERRUPT_H */

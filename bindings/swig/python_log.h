/* SPDX-License-Identifier: Apache-2.0
 * Log lines of the library, to logging.getLogger("outrigger").
 *
 * The library calls with a lock held, from threads that Python does not know, perhaps while the
 * interpreter shuts down or in a child that was forked. So a line is only kept here. It is handed
 * over between two instructions of the main thread, as a signal's handler is run, or, written in a
 * call of another thread of Python, at the end of that call. */
#ifndef OTR_PYTHON_LOG_H
#define OTR_PYTHON_LOG_H

#include <pthread.h>

#define OTR_PYTHON_LOG_LINES 10000 /* kept at a time; later ones are counted and dropped */

typedef struct otr_python_line {
  struct otr_python_line* next;
  int32_t level;
  char text[];
} otr_python_line;

/* Under the mutex. Nobody waits for the interpreter's lock while he holds it. */
static struct {
  pthread_mutex_t mutex;
  otr_python_line *first, **end;
  size_t count, dropped;
  int asked;      /* the main thread will look */
  int delivering; /* some thread hands lines over */
  int closed;     /* the interpreter shuts down */
} otr_python_lines = {PTHREAD_MUTEX_INITIALIZER, NULL, &otr_python_lines.first, 0, 0, 0, 0, 0};

static int otr_python_log_deliver(void);

static int otr_python_log_pending(void* unused) {
  (void)unused;
  pthread_mutex_lock(&otr_python_lines.mutex);
  otr_python_lines.asked = 0;
  pthread_mutex_unlock(&otr_python_lines.mutex);
  return otr_python_log_deliver();
}

/* Any thread, with the interpreter's lock or without. */
static void otr_python_log(int32_t level, const char* text, void* user_data) {
  (void)user_data;
  const size_t size = strlen(text) + 1;
  otr_python_line* line = (otr_python_line*)malloc(sizeof *line + size);
  if (line) {
    line->next = NULL;
    line->level = level;
    memcpy(line->text, text, size);
  }
  pthread_mutex_lock(&otr_python_lines.mutex);
  if (!line || otr_python_lines.count >= OTR_PYTHON_LOG_LINES) {
    otr_python_lines.dropped++;
  } else if (!otr_python_lines.closed) {
    *otr_python_lines.end = line;
    otr_python_lines.end = &line->next;
    otr_python_lines.count++;
    line = NULL;
    if (!otr_python_lines.asked) {
      otr_python_lines.asked = Py_AddPendingCall(otr_python_log_pending, NULL) == 0;
    }
  }
  pthread_mutex_unlock(&otr_python_lines.mutex);
  free(line);
}

/* The first line, for the caller; NULL: there is none, or another thread hands lines over. */
static otr_python_line* otr_python_log_take(int begins) {
  pthread_mutex_lock(&otr_python_lines.mutex);
  otr_python_line* line = NULL;
  if (!begins || !otr_python_lines.delivering) {
    line = otr_python_lines.first;
    otr_python_lines.delivering = line != NULL;
  }
  if (line) {
    otr_python_lines.first = line->next;
    if (!line->next) otr_python_lines.end = &otr_python_lines.first;
    otr_python_lines.count--;
  }
  pthread_mutex_unlock(&otr_python_lines.mutex);
  return line;
}

static int otr_python_log_say(PyObject* logger, int32_t level, const char* text) {
  const int of_python = level == OTR_LOG_ERROR     ? 40
                        : level == OTR_LOG_WARNING ? 30
                        : level == OTR_LOG_INFO    ? 20
                                                   : 10;
  PyObject* decoded = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  PyObject* result =
      decoded ? PyObject_CallMethod(logger, "log", "isO", of_python, "%s", decoded) : NULL;
  Py_XDECREF(decoded);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

/* With the interpreter's lock, without an exception. -1: a handler raised, or Ctrl-C came in it;
 * the other lines stay for the next time. */
static int otr_python_log_deliver(void) {
  otr_python_line* line = otr_python_log_take(1);
  if (!line) return 0;
  PyObject* logging = PyImport_ImportModule("logging");
  PyObject* logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "outrigger") : NULL;
  int failed = logger == NULL;
  while (line) {
    if (!failed) failed = otr_python_log_say(logger, line->level, line->text) != 0;
    free(line);
    line = failed ? NULL : otr_python_log_take(0);
  }
  pthread_mutex_lock(&otr_python_lines.mutex);
  const size_t dropped = failed ? 0 : otr_python_lines.dropped;
  otr_python_lines.dropped -= dropped;
  otr_python_lines.delivering = 0;
  pthread_mutex_unlock(&otr_python_lines.mutex);
  if (dropped > 0) {
    char text[80];
    snprintf(text, sizeof text, "%zu log lines were dropped: they came too fast", dropped);
    failed = otr_python_log_say(logger, OTR_LOG_WARNING, text) != 0;
  }
  Py_XDECREF(logger);
  Py_XDECREF(logging);
  return failed ? -1 : 0;
}

/* After each call, with the interpreter's lock. The main thread has its pending call. */
static void otr_python_log_called(void) {
  if (PyThread_get_thread_ident() == otr_python_main_thread()) return;
  pthread_mutex_lock(&otr_python_lines.mutex);
  const int waiting = otr_python_lines.first != NULL;
  pthread_mutex_unlock(&otr_python_lines.mutex);
  if (!waiting) return;
  PyObject *type, *value, *traceback; /* of the call */
  PyErr_Fetch(&type, &value, &traceback);
  if (otr_python_log_deliver() != 0) PyErr_WriteUnraisable(NULL);
  PyErr_Restore(type, value, traceback);
}

/* At exit, before the interpreter goes: the lines so far; then none is taken any more. */
static PyObject* otr_python_log_close(PyObject* self, PyObject* arguments) {
  (void)self;
  (void)arguments;
  const int failed = otr_python_log_deliver() != 0;
  pthread_mutex_lock(&otr_python_lines.mutex);
  otr_python_lines.closed = 1;
  pthread_mutex_unlock(&otr_python_lines.mutex);
  return failed ? NULL : Py_NewRef(Py_None);
}

/* A forked child begins without lines: its parent hands them over. */
static void otr_python_log_fork(void) { pthread_mutex_lock(&otr_python_lines.mutex); }
static void otr_python_log_forked(void) { pthread_mutex_unlock(&otr_python_lines.mutex); }
static void otr_python_log_child(void) {
  otr_python_lines.first = NULL;
  otr_python_lines.end = &otr_python_lines.first;
  otr_python_lines.count = otr_python_lines.dropped = 0;
  otr_python_lines.asked = otr_python_lines.delivering = 0;
  pthread_mutex_unlock(&otr_python_lines.mutex);
}

/* Once, when the module is loaded. -1 with an exception. */
static int otr_python_log_open(void) {
  static PyMethodDef close = {"log_close", otr_python_log_close, METH_NOARGS, NULL};
  PyObject* atexit = PyImport_ImportModule("atexit");
  PyObject* function = atexit ? PyCFunction_New(&close, NULL) : NULL;
  PyObject* result = function ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
  Py_XDECREF(function);
  Py_XDECREF(atexit);
  Py_XDECREF(result);
  pthread_atfork(otr_python_log_fork, otr_python_log_forked, otr_python_log_child);
  return result ? 0 : -1;
}

#endif /* OTR_PYTHON_LOG_H */

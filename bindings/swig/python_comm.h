/* SPDX-License-Identifier: Apache-2.0
 * A communicator whose functions are methods of a Python object:
 *   rank, world_size (attributes); all_gather(mine, all); broadcast(data, root); all_to_all(parts,
 * received); duplicate() -> another object; split(groups, places) -> another object or None, which
 * may be missing; abort(reason); close(). Memory comes as memoryviews
 * that hold during the call. Methods run on the library's threads, too. */
#ifndef OTR_PYTHON_COMM_H
#define OTR_PYTHON_COMM_H

/* One call into Python, from any thread. What is raised on a thread of Python becomes the exception
 * of the call that was made there; on the library's own threads it goes to sys.unraisablehook. */
typedef struct {
  PyGILState_STATE state;
  PyObject *type, *value, *traceback; /* of an earlier call on this thread */
  int is_pythons;
} otr_python_entry;

static otr_python_entry otr_python_enter(void) {
  otr_python_entry entry;
  entry.is_pythons = PyGILState_GetThisThreadState() != NULL;
  entry.state = PyGILState_Ensure();
  PyErr_Fetch(&entry.type, &entry.value, &entry.traceback);
  return entry;
}

/* result: of the method, stolen; NULL: it raised. */
static int32_t otr_python_leave(otr_python_entry entry, PyObject* channel, PyObject* result) {
  const int32_t status = result ? 0 : 1;
  Py_XDECREF(result);
  if (!result && !entry.is_pythons) PyErr_WriteUnraisable(channel);
  if (entry.type) PyErr_Restore(entry.type, entry.value, entry.traceback);
  PyGILState_Release(entry.state);
  return status;
}

static PyObject* otr_python_memory(const void* data, size_t bytes) {
  return PyMemoryView_FromMemory((char*)data, (Py_ssize_t)bytes, PyBUF_WRITE);
}

/* Calls channel.name(first, second), of which one may be NULL; takes the references. */
static int32_t otr_python_exchange(void* user_data, const char* name, PyObject* (*make)(void*),
                                   void* arguments) {
  PyObject* channel = (PyObject*)user_data;
  const otr_python_entry entry = otr_python_enter();
  PyObject *given = make(arguments), *method = NULL, *result = NULL;
  if (given) method = PyObject_GetAttrString(channel, name);
  if (method) result = PyObject_CallObject(method, given);
  Py_XDECREF(method);
  Py_XDECREF(given);
  return otr_python_leave(entry, channel, result);
}

typedef struct {
  const void *mine, *all;
  size_t mine_bytes, all_bytes;
} otr_python_two;

static PyObject* otr_python_two_views(void* arguments) {
  const otr_python_two* two = (const otr_python_two*)arguments;
  PyObject* mine = otr_python_memory(two->mine, two->mine_bytes);
  PyObject* all = otr_python_memory(two->all, two->all_bytes);
  PyObject* tuple = mine && all ? PyTuple_Pack(2, mine, all) : NULL;
  Py_XDECREF(mine);
  Py_XDECREF(all);
  return tuple;
}

static int32_t otr_python_world(PyObject* channel, const char* name) {
  PyObject* number = PyObject_GetAttrString(channel, name);
  const long value = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  return value > INT32_MAX ? -1 : (int32_t)value;
}

static size_t otr_python_ranks(void* user_data) {
  const otr_python_entry entry = otr_python_enter();
  const int32_t ranks = otr_python_world((PyObject*)user_data, "world_size");
  otr_python_leave(entry, (PyObject*)user_data, Py_NewRef(Py_None));
  return ranks > 0 ? (size_t)ranks : 0;
}

static int32_t otr_python_all_gather(void* user_data, const void* mine, size_t bytes, void* all) {
  otr_python_two two = {mine, all, bytes, bytes * otr_python_ranks(user_data)};
  return otr_python_exchange(user_data, "all_gather", otr_python_two_views, &two);
}

static int32_t otr_python_all_to_all(void* user_data, const void* parts, size_t bytes,
                                     void* received) {
  const size_t all = bytes * otr_python_ranks(user_data);
  otr_python_two two = {parts, received, all, all};
  return otr_python_exchange(user_data, "all_to_all", otr_python_two_views, &two);
}

typedef struct {
  void* data;
  size_t bytes;
  int32_t root;
} otr_python_one;

static PyObject* otr_python_view_and_root(void* arguments) {
  const otr_python_one* one = (const otr_python_one*)arguments;
  PyObject* view = otr_python_memory(one->data, one->bytes);
  return view ? Py_BuildValue("(Ni)", view, (int)one->root) : NULL;
}

static int32_t otr_python_broadcast(void* user_data, void* data, size_t bytes, int32_t root) {
  otr_python_one one = {data, bytes, root};
  return otr_python_exchange(user_data, "broadcast", otr_python_view_and_root, &one);
}

static int32_t otr_python_duplicate(void* user_data, void** out_user_data) {
  const otr_python_entry entry = otr_python_enter();
  PyObject* made = PyObject_CallMethod((PyObject*)user_data, "duplicate", NULL);
  *out_user_data = made; /* the reference goes to the library, which gives it to destroy */
  return otr_python_leave(entry, (PyObject*)user_data, made ? Py_NewRef(Py_None) : NULL);
}

static PyObject* otr_python_numbers(const int32_t* numbers, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* number = PyLong_FromLong(numbers[i]);
    if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) != 0) Py_CLEAR(list);
  }
  return list;
}

static int32_t otr_python_split(void* user_data, const int32_t* groups, const int32_t* places,
                                void** out_user_data) {
  const size_t ranks = otr_python_ranks(user_data);
  const otr_python_entry entry = otr_python_enter();
  PyObject* group_list = otr_python_numbers(groups, ranks);
  PyObject* place_list = otr_python_numbers(places, ranks);
  PyObject* made = group_list && place_list ? PyObject_CallMethod((PyObject*)user_data, "split",
                                                                  "OO", group_list, place_list)
                                            : NULL;
  Py_XDECREF(group_list);
  Py_XDECREF(place_list);
  PyObject* result = made ? Py_NewRef(Py_None) : NULL;
  if (made && made != Py_None) {
    *out_user_data = made; /* the reference goes to the library, which gives it to destroy */
  } else {
    Py_XDECREF(made);
  }
  return otr_python_leave(entry, (PyObject*)user_data, result);
}

static void otr_python_abort(void* user_data, const char* reason) {
  const otr_python_entry entry = otr_python_enter();
  PyObject* result = PyObject_CallMethod((PyObject*)user_data, "abort", "z", reason);
  if (!result) PyErr_WriteUnraisable((PyObject*)user_data);
  otr_python_leave(entry, (PyObject*)user_data, result ? result : Py_NewRef(Py_None));
}

static void otr_python_close(void* user_data) {
  const otr_python_entry entry = otr_python_enter();
  PyObject* result = PyObject_CallMethod((PyObject*)user_data, "close", NULL);
  if (!result) PyErr_WriteUnraisable((PyObject*)user_data);
  otr_python_leave(entry, (PyObject*)user_data, result ? result : Py_NewRef(Py_None));
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject*)user_data);
  PyGILState_Release(state);
}

/* Fills the table; it then owns a reference to channel. -1 with an exception: it has not the
 * numbers. */
static int otr_python_comm_table(PyObject* channel, otr_comm_table* table) {
  otr_comm_table_init(table, sizeof *table);
  table->rank = otr_python_world(channel, "rank");
  if (!PyErr_Occurred()) table->world_size = otr_python_world(channel, "world_size");
  if (PyErr_Occurred()) return -1;
  table->user_data = Py_NewRef(channel);
  table->all_gather = otr_python_all_gather;
  table->broadcast = otr_python_broadcast;
  table->all_to_all = otr_python_all_to_all;
  table->duplicate = otr_python_duplicate;
  if (PyObject_HasAttrString(channel, "split")) table->split = otr_python_split;
  table->abort = otr_python_abort;
  table->destroy = otr_python_close;
  return 0;
}

/* A communicator over the object; without the interpreter's lock, as every call is made. */
static int32_t otr_python_comm_create(otr_context* context, PyObject* channel,
                                      otr_comm** out_comm) {
  otr_comm_table table;
  PyGILState_STATE state = PyGILState_Ensure();
  int32_t status = otr_python_comm_table(channel, &table) == 0 ? OTR_OK : OTR_E_HOST;
  PyGILState_Release(state);
  if (status != OTR_OK) return status;
  status = otr_comm_create_custom(context, &table, out_comm);
  if (status != OTR_OK) {
    state = PyGILState_Ensure();
    Py_DECREF(channel);
    PyGILState_Release(state);
  }
  return status;
}

/* A host's allocator: the addresses of two C functions, as ctypes has them; 0: none. */
static int32_t otr_python_set_allocator(otr_context* context, int32_t device_type,
                                        int32_t device_id, uint64_t allocate, uint64_t release) {
  otr_device_allocator allocator;
  otr_device_allocator_init(&allocator, sizeof allocator);
  allocator.allocate = (otr_device_allocate_callback)(uintptr_t)allocate;
  allocator.release = (otr_device_release_callback)(uintptr_t)release;
  return otr_device_set_allocator(context, device_type, device_id,
                                  allocate == 0 ? NULL : &allocator);
}

#endif /* OTR_PYTHON_COMM_H */

// SPDX-License-Identifier: Apache-2.0
// SWIG interface of outrigger.h, and of nothing else. What depends on the target language stands in <language>.i. A language
// that has no arrays of its own includes plain.i, which says what is left to do; one whose arrays and results have typemaps
// (Python) defines instead:
//   OTR_UNLOCK, OTR_LOCK         around a call, so that other threads of the interpreter run meanwhile
//   OTR_RAISE(code)              throws OutriggerError(code, text), reading the text on the thread that failed
//   OTR_SUCCEEDED                after a call that succeeded: log lines that it wrote are handed over
//   OTR_CALLBACKS                declares what takes functions of the language
//   OTR_CONTEXT(options)         sets the callbacks of new context options: interrupts (the interpreter's Ctrl-C), log lines
//   OTR_OUT_HANDLE(type, name)   makes the parameter `type **name` a result that owns its handle
//   OTR_ASKED_IN_ONE_CALL(name)  shows otr_swig_<name>, which has text or bytes for a result, as <name>
// and typemaps for tensors, arrays, texts and every out_ parameter.
%module(package="outrigger") lowlevel

%{
#include <stdlib.h>
#include <string.h>

#include "outrigger.h"
#include "refusal.h"
%}
%include <stdint.i>

#if defined(SWIGPYTHON)
%include "python.i"
#elif defined(SWIGJAVA)
%include "java.i"
#elif defined(SWIGLUA)
%include "lua.i"
#elif defined(SWIGCSHARP)
%include "csharp.i"
#else
#error "outrigger.i: this language has no file yet; plain.i says what is needed"
#endif

%include "docs.i"

// ---- Names: otr_engine_create is engine_create, OTR_OK is OK, otr_engine is Engine ----
%rename("%(strip:[otr_])s", %$isfunction) "";
%rename("%(strip:[OTR_])s", %$isenumitem) "";
%rename("%(strip:[OTR_])s", regextarget=1, %$isconstant) "^OTR_";

// ---- Errors: every function returns a status, but for the ones listed ----
%exception {
  OTR_UNLOCK
  $action
  OTR_LOCK
  if (result != OTR_OK) {
    OTR_RAISE(result);
  }
  OTR_SUCCEEDED
}
%define OTR_NO_STATUS(function)
%exception function "$action"
%enddef
OTR_NO_STATUS(otr_status_name)
OTR_NO_STATUS(otr_version)
OTR_NO_STATUS(otr_abi_version)
OTR_NO_STATUS(otr_build_info)
%ignore otr_last_error_message;  // the exception carries it

// ---- Handles: classes whose destructor is otr_<name>_destroy; the out_ typemaps pass ownership ----
%define OTR_HANDLE_CLASS(name, Class)
%rename(Class) otr_##name;
%nodefaultctor otr_##name;
%ignore otr_##name##_destroy;
%exception otr_##name::~otr_##name {
  OTR_UNLOCK
  $action
  OTR_LOCK
}
struct otr_##name {};
%extend otr_##name {
  ~otr_##name() { otr_##name##_destroy($self); }
}
%enddef
%define OTR_HANDLE(name, Class)
OTR_HANDLE_CLASS(name, Class)
OTR_OUT_HANDLE(otr_##name, out_##name)
%enddef
OTR_HANDLE(context, Context)
OTR_HANDLE(comm, Comm)
OTR_HANDLE(engine, Engine)
OTR_HANDLE(pass, Pass)
OTR_HANDLE(shard, Shard)
OTR_HANDLE(optimizer, Optimizer)
OTR_HANDLE(checkpoint, Checkpoint)
OTR_HANDLE(snapshot, Snapshot)
OTR_HANDLE_CLASS(message, Message)  // <language>.i: out_message keeps the memory
OTR_HANDLE(checkpoint_writer, CheckpointWriter)
OTR_OUT_HANDLE(otr_checkpoint_writer, out_writer)

// ---- Option structs: classes that begin with the defaults and own their texts ----
%ignore struct_size;
%ignore reserved;
%ignore reserved0;
%typemap(memberin) const char * {
  free((char *)$1);
  $1 = $input ? strdup($input) : NULL;
}
%define OTR_OPTIONS(name, Class, OWN, FREE)
%rename(Class) otr_##name;
%ignore otr_##name##_init;
%exception otr_##name::otr_##name "$action"
%exception otr_##name::~otr_##name "$action"
%extend otr_##name {
  otr_##name() {
    otr_##name *self = (otr_##name *)calloc(1, sizeof *self);
    if (self) {
      otr_##name##_init(self, sizeof *self);
      OWN
    }
    return self;
  }
  ~otr_##name() {
    FREE
    free($self);
  }
}
%enddef
#define OTR_OWN_TEXT(field) self->field = self->field ? strdup(self->field) : NULL;
#define OTR_FREE_TEXT(field) free((char *)self->field);
OTR_OPTIONS(context_options, ContextOptions, OTR_CONTEXT(self), )
OTR_OPTIONS(comm_options, CommOptions, OTR_OWN_TEXT(job), OTR_FREE_TEXT(job))
OTR_OPTIONS(param_options, ParamOptions, OTR_OWN_TEXT(group), OTR_FREE_TEXT(group))
OTR_OPTIONS(shard_options, ShardOptions, OTR_OWN_TEXT(name),
            OTR_FREE_TEXT(name) free((otr_tensor *)self->published); free((otr_tensor *)self->remainder);)
OTR_OPTIONS(call_info, CallInfo, , )
OTR_OPTIONS(estimate_options, EstimateOptions, , )
OTR_OPTIONS(offload_options, OffloadOptions, , )
OTR_OPTIONS(watch_options, WatchOptions, , OTR_FREE_TEXT(name) OTR_FREE_TEXT(records) OTR_FREE_TEXT(trace))
%ignore otr_watch_options::callback;  // a language asks for the record after its step
%ignore otr_watch_options::user_data;
%ignore otr_record_callback;
%define OTR_FREE_TEXTS(field)
for (int64_t i = 0; i < self->field##_count; ++i) free((char *)self->field[i]);
free((char **)self->field);
%enddef
OTR_OPTIONS(load_options, LoadOptions, , OTR_FREE_TEXTS(include) OTR_FREE_TEXTS(exclude) OTR_FREE_TEXTS(resized)
for (int64_t i = 0; i < self->renamed_count; ++i) {
  free((char *)self->renamed[i].here);
  free((char *)self->renamed[i].there);
}
free((otr_rename *)self->renamed);)
OTR_OPTIONS(import_options, ImportOptions, , )
OTR_OPTIONS(writer_options, WriterOptions, OTR_OWN_TEXT(master), OTR_FREE_TEXT(master) OTR_FREE_TEXT(exp_avg) OTR_FREE_TEXT(exp_avg_sq))
OTR_OPTIONS(writer_param_options, WriterParamOptions, , OTR_FREE_TEXT(alias_of) OTR_FREE_TEXT(group))
OTR_OPTIONS(export_options, ExportOptions, OTR_OWN_TEXT(dtype), OTR_FREE_TEXT(dtype))
%ignore otr_part;
%define OTR_OPTIONS_WITH_PARTS(options, Options)
OTR_OPTIONS(options, Options, , for (int64_t i = 0; i < self->part_count; ++i) {
  free((char *)self->parts[i].name);
  free((void *)self->parts[i].data);
} free((otr_part *)self->parts);)
%ignore otr_##options::parts;
%ignore otr_##options::part_count;
// Copies of the name and the bytes.
OTR_NO_STATUS(otr_##options::add_part)
%extend otr_##options {
  void add_part(const char *name, const void *mine, size_t bytes, int32_t *status) {
    if (!otr_swig_given(name, "the part's name", status)) return;
    const int64_t count = $self->part_count;
    otr_part *parts = (otr_part *)realloc((otr_part *)$self->parts, (size_t)(count + 1) * sizeof *parts);
    if (parts) $self->parts = parts;
    char *own_name = strdup(name);
    void *own = malloc(bytes ? bytes : 1);
    if (!parts || !own_name || !own) {
      free(own_name);
      free(own);
      otr_swig_no_memory(status);
      return;
    }
    memcpy(own, mine, bytes);
    parts[count].name = own_name;
    parts[count].data = own;
    parts[count].bytes = bytes;
    $self->part_count = count + 1;
  }
}
%enddef
OTR_OPTIONS_WITH_PARTS(save_options, SaveOptions)
OTR_OPTIONS_WITH_PARTS(snapshot_options, SnapshotOptions)
// Lists of texts, one at a time; copies.
%define OTR_ADD_TEXT(field)
%ignore otr_load_options::field;
%ignore otr_load_options::field##_count;
OTR_NO_STATUS(otr_load_options::add_##field)
%extend otr_load_options {
  void add_##field(const char *pattern, int32_t *status) {
    if (!otr_swig_given(pattern, "the pattern", status)) return;
    const int64_t count = $self->field##_count;
    const char **texts = (const char **)realloc((char **)$self->field, (size_t)(count + 1) * sizeof *texts);
    if (texts) {
      $self->field = texts;
      texts[count] = strdup(pattern);
    }
    if (texts && texts[count]) $self->field##_count = count + 1;
    else otr_swig_no_memory(status);
  }
}
%enddef
OTR_ADD_TEXT(include)
OTR_ADD_TEXT(exclude)
OTR_ADD_TEXT(resized)
%ignore otr_rename;
%ignore otr_load_options::renamed;
%ignore otr_load_options::renamed_count;
OTR_NO_STATUS(otr_load_options::add_renamed)
%extend otr_load_options {
  void add_renamed(const char *here, const char *there, int32_t *status) {
    if (!otr_swig_given(here, "the name here", status) || !otr_swig_given(there, "the name there", status)) return;
    const int64_t count = $self->renamed_count;
    otr_rename *entries = (otr_rename *)realloc((otr_rename *)$self->renamed, (size_t)(count + 1) * sizeof *entries);
    if (entries) $self->renamed = entries;
    char *own_here = strdup(here), *own_there = strdup(there);
    if (!entries || !own_here || !own_there) {
      free(own_here);
      free(own_there);
      otr_swig_no_memory(status);
      return;
    }
    entries[count].here = own_here;
    entries[count].there = own_there;
    $self->renamed_count = count + 1;
  }
}
%ignore otr_message_attribute;
%ignore otr_message_options::tag;  // set_tag copies it
%ignore otr_message_options::attributes;
%ignore otr_message_options::attribute_count;
OTR_OPTIONS(message_options, MessageOptions, , free((otr_call_info *)self->tag);
for (int64_t i = 0; i < self->attribute_count; ++i) {
  free((char *)self->attributes[i].name);
  free((char *)self->attributes[i].text);
}
free((otr_message_attribute *)self->attributes);)
OTR_NO_STATUS(otr_message_options::set_tag)
OTR_NO_STATUS(otr_message_options::add_attribute)
%extend otr_message_options {
  void set_tag(const otr_call_info *info, int32_t *status) {
    otr_call_info *own = info ? (otr_call_info *)malloc(sizeof *own) : NULL;
    if (info && !own) {
      otr_swig_no_memory(status);
      return;
    }
    if (own) *own = *info;
    free((otr_call_info *)$self->tag);
    $self->tag = own;
  }
  void add_attribute(const char *name, const char *text, int32_t *status) {
    if (!otr_swig_given(name, "the attribute's name", status) || !otr_swig_given(text, "the attribute's text", status)) return;
    const int64_t count = $self->attribute_count;
    otr_message_attribute *all = (otr_message_attribute *)realloc(
        (otr_message_attribute *)$self->attributes, (size_t)(count + 1) * sizeof *all);
    if (all) $self->attributes = all;
    char *own_name = strdup(name), *own_text = strdup(text);
    if (!all || !own_name || !own_text) {
      free(own_name);
      free(own_text);
      otr_swig_no_memory(status);
      return;
    }
    all[count].name = own_name;
    all[count].text = own_text;
    $self->attribute_count = count + 1;
  }
}
%ignore otr_context_options::log_callback;  // set by OTR_CONTEXT
%ignore otr_context_options::log_user_data;
%ignore otr_context_options::interrupt_callback;
%ignore otr_context_options::interrupt_user_data;

// A shard's further tensors: shape and strides are kept behind the struct, the memory is the caller's to keep, and is
// written. 16 bits of no number come as bfloat16 where the language has no better name for them.
%define OTR_KEEPS_TENSOR(field, take)
%ignore otr_shard_options::field;
%exception otr_shard_options::set_##field "$action"
%extend otr_shard_options {
  void set_##field(const otr_tensor *kept) {
    const size_t dims = kept ? (size_t)kept->ndim : 0, extents = dims * sizeof(int64_t);
    otr_tensor *copy = kept ? (otr_tensor *)calloc(1, sizeof *copy + 2 * extents) : NULL;
    free((otr_tensor *)$self->field);
    $self->field = copy;
    if (copy) {
      *copy = *kept;
      copy->shape = (int64_t *)(copy + 1);
      if (dims) memcpy(copy->shape, kept->shape, extents);
      if (kept->strides) {
        copy->strides = copy->shape + dims;
        memcpy(copy->strides, kept->strides, extents);
      }
      take
    }
  }
}
%enddef
OTR_KEEPS_TENSOR(published, )
OTR_KEEPS_TENSOR(remainder, if (copy->dtype.code == OTR_DTYPE_BFLOAT) copy->dtype.code = OTR_DTYPE_UINT;)

// ---- Results ----
%rename(StepReport) otr_step_report;
%nodefaultctor otr_step_report;
%exception otr_step_report::~otr_step_report "$action"
%rename(SaveStatus) otr_save_status;
%nodefaultctor otr_save_status;
%exception otr_save_status::~otr_save_status "$action"
%rename(SnapshotInfo) otr_snapshot_info;
%nodefaultctor otr_snapshot_info;
%exception otr_snapshot_info::~otr_snapshot_info "$action"
%rename(MessageInfo) otr_message_info;
%nodefaultctor otr_message_info;
%exception otr_message_info::~otr_message_info "$action"
%ignore otr_message_route;  // a tuple (source, target, source_row, target_row, rows)
%ignore otr_memory_entry;  // a tuple (purpose, resident bytes, peak bytes)

// ---- Callbacks of the target language need its lock. A backward is two lines over the pass ----
OTR_CALLBACKS
%ignore otr_engine_backward;
%ignore otr_vjp_callback;
%ignore otr_comm_create_custom;
%ignore otr_comm_all_to_all;  // OTR_CALLBACKS: with the sizes of the memory
%ignore otr_comm_table;
%ignore otr_comm_table_init;
%ignore otr_device_allocator;
%ignore otr_device_allocator_init;
%ignore otr_device_set_allocator;

// ---- Asked in two calls in C, in one here ----
%ignore otr_machine_info;
%ignore otr_engine_config;
%ignore otr_engine_get_progress;
%ignore otr_engine_get_record;
%ignore otr_checkpoint_describe;
%ignore otr_checkpoint_list;
%ignore otr_checkpoint_part;
%ignore otr_snapshot_part;
%ignore otr_config_check;
%ignore otr_engine_memory;
%ignore otr_engine_host_memory;
%ignore otr_engine_estimate;
OTR_ASKED_IN_ONE_CALL(engine_estimate)
OTR_ASKED_IN_ONE_CALL(engine_declare_parameter)
OTR_ASKED_IN_ONE_CALL(machine_info)
OTR_ASKED_IN_ONE_CALL(engine_config)
OTR_ASKED_IN_ONE_CALL(engine_host_memory)
OTR_ASKED_IN_ONE_CALL(engine_get_progress)
OTR_ASKED_IN_ONE_CALL(engine_get_record)
OTR_ASKED_IN_ONE_CALL(checkpoint_list)
OTR_ASKED_IN_ONE_CALL(checkpoint_describe)
OTR_ASKED_IN_ONE_CALL(checkpoint_part)
OTR_ASKED_IN_ONE_CALL(snapshot_part)
OTR_ASKED_IN_ONE_CALL(config_check)
OTR_ASKED_IN_ONE_CALL(engine_memory)
%inline %{
static int32_t otr_swig_machine_info(char **out_text) {
  size_t size = 0;
  int32_t status = otr_machine_info(NULL, &size);
  if (status != OTR_OK) return status;
  *out_text = (char *)calloc(1, size + 1);
  return *out_text ? otr_machine_info(*out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_engine_config(const otr_engine *engine, char **out_text) {
  size_t size = 0;
  int32_t status = otr_engine_config(engine, NULL, &size);
  if (status != OTR_OK && status != OTR_E_BUFFER_SIZE) return status;
  *out_text = (char *)calloc(1, size + 1);
  return *out_text ? otr_engine_config(engine, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

// The text may be longer at the second call: figures change.
static int32_t otr_swig_engine_host_memory(const otr_engine *engine, char **out_text) {
  size_t size = 0;
  int32_t status = otr_engine_host_memory(engine, NULL, &size);
  if (status != OTR_OK) return status;
  size += 1024;
  *out_text = (char *)calloc(1, size);
  return *out_text ? otr_engine_host_memory(engine, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_engine_get_progress(const otr_engine *engine, char **out_text) {
  size_t size = 0;
  int32_t status = otr_engine_get_progress(engine, NULL, &size);
  if (status != OTR_OK) return status;
  *out_text = (char *)calloc(1, size);
  return *out_text ? otr_engine_get_progress(engine, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

// A step of another thread may make a longer one meanwhile.
static int32_t otr_swig_engine_get_record(const otr_engine *engine, char **out_text) {
  size_t size = 0;
  int32_t status = otr_engine_get_record(engine, NULL, &size);
  if (status != OTR_OK) return status;
  size += 4096;
  *out_text = (char *)calloc(1, size);
  return *out_text ? otr_engine_get_record(engine, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_checkpoint_describe(otr_checkpoint *checkpoint, char **out_text) {
  size_t size = 0;
  int32_t status = otr_checkpoint_describe(checkpoint, NULL, &size);
  if (status != OTR_OK) return status;
  *out_text = (char *)calloc(1, size);
  return *out_text ? otr_checkpoint_describe(checkpoint, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_checkpoint_list(const char *directory, char **out_text) {
  size_t size = 0;
  int32_t status = otr_checkpoint_list(directory, NULL, &size);
  if (status != OTR_OK) return status;
  *out_text = (char *)calloc(1, size);
  return *out_text ? otr_checkpoint_list(directory, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_checkpoint_part(otr_checkpoint *checkpoint, int32_t rank, const char *name, void **out_bytes,
                                        size_t *out_size) {
  int32_t status = otr_checkpoint_part(checkpoint, rank, name, NULL, out_size);
  if (status != OTR_OK) return status;
  *out_bytes = calloc(1, *out_size ? *out_size : 1);
  return *out_bytes ? otr_checkpoint_part(checkpoint, rank, name, *out_bytes, out_size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_snapshot_part(const otr_snapshot *snapshot, const char *name, void **out_bytes,
                                        size_t *out_size) {
  int32_t status = otr_snapshot_part(snapshot, name, NULL, out_size);
  if (status != OTR_OK) return status;
  *out_bytes = calloc(1, *out_size ? *out_size : 1);
  return *out_bytes ? otr_snapshot_part(snapshot, name, *out_bytes, out_size) : OTR_E_OUT_OF_MEMORY;
}

static int32_t otr_swig_config_check(const char *config_json, int32_t world_size, char **out_text) {
  size_t size = 0;
  int32_t status = otr_config_check(config_json, world_size, NULL, &size);
  if (status != OTR_OK && status != OTR_E_BUFFER_SIZE) return status;
  *out_text = (char *)calloc(1, size + 1);
  return *out_text ? otr_config_check(config_json, world_size, *out_text, &size) : OTR_E_OUT_OF_MEMORY;
}

/* A parameter without a value: a language's arrays always have data. */
static int32_t otr_swig_engine_declare_parameter(otr_engine *engine, const char *name, const int64_t *shape,
                                                 int64_t ndim, const otr_param_options *options,
                                                 int64_t *out_id) {
  otr_tensor nothing;
  int32_t status = otr_tensor_init(NULL, "float32", ndim > 64 ? 65 : (int32_t)ndim, (int64_t *)shape, &nothing);
  return status == OTR_OK ? otr_engine_add_parameter(engine, name, &nothing, options, out_id) : status;
}

static int32_t otr_swig_engine_estimate(const otr_engine *engine, const otr_estimate_options *options,
                                        otr_memory_entry **out_entries, size_t *out_entry_count) {
  int32_t status = otr_engine_estimate(engine, options, NULL, out_entry_count);
  if (status != OTR_OK && status != OTR_E_BUFFER_SIZE) return status;
  *out_entries = (otr_memory_entry *)calloc(*out_entry_count + 1, sizeof **out_entries);
  if (!*out_entries) return OTR_E_OUT_OF_MEMORY;
  (*out_entries)->struct_size = (uint32_t)sizeof **out_entries;
  return otr_engine_estimate(engine, options, *out_entries, out_entry_count);
}

static int32_t otr_swig_engine_memory(const otr_engine *engine, otr_memory_entry **out_entries,
                                      size_t *out_entry_count) {
  int32_t status = otr_engine_memory(engine, NULL, out_entry_count);
  if (status != OTR_OK && status != OTR_E_BUFFER_SIZE) return status;
  *out_entries = (otr_memory_entry *)calloc(*out_entry_count + 1, sizeof **out_entries);
  if (!*out_entries) return OTR_E_OUT_OF_MEMORY;
  (*out_entries)->struct_size = (uint32_t)sizeof **out_entries;
  return otr_engine_memory(engine, *out_entries, out_entry_count);
}
%}

%ignore otr_device;
%ignore otr_dtype;
%ignore otr_tensor_init;
%ignore OTR_API;
%ignore OTR_NOEXCEPT;
%ignore OTR_STEP_REPORT_INIT;

#if defined(OTR_PLAIN)
%exception {
  OTR_UNLOCK
  $action
  OTR_LOCK
}
%include "calls.i"
#endif
%include "outrigger.h"

// SPDX-License-Identifier: Apache-2.0
// Messages, and log lines that a language asks for: part of plain.i.
%{
#include "plain_log.h"
#include "plain_message.h"
%}

// ---- What a message is made of ----
OTR_LIST(named, NamedTensors)
%extend otr_swig_named {
  otr_swig_named() { return (otr_swig_named *)calloc(1, sizeof(otr_swig_named)); }
  ~otr_swig_named() { otr_swig_named_free($self); }
  // Refers to the tensor: keep it as long as the list.
  void add(const char *name, const otr_tensor *tensor, int32_t *status) { otr_swig_append_named($self, name, tensor, status); }
}
%rename(message_pack) otr_plain_message_pack;
%newobject otr_plain_message_pack;
%rename(message_routes) otr_plain_message_routes;
%newobject otr_plain_message_routes;
%inline %{
/* The bytes of a message: uint8. */
static otr_tensor *otr_plain_message_pack(const otr_swig_named *tensors, const otr_message_options *options, int32_t *status) {
  return otr_swig_pack(tensors, options, status);
}

/* ids, shape: the rows of each rank of the two groups. A row of the result: source, target, source_row, target_row, rows. */
static otr_tensor *otr_plain_message_routes(const int64_t *ids, int64_t count, const int64_t *shape, int64_t ndim, int32_t *status) {
  return otr_swig_routes(ids, count, shape, ndim, status);
}
%}

// ---- Log lines ----
%rename(LogLine) otr_swig_line;
%nodefaultctor otr_swig_line;
typedef struct otr_swig_line {} otr_swig_line;
%extend otr_swig_line {
  ~otr_swig_line() { free($self); }
  int32_t level() { return $self->level; }
  const char *text() { return $self->text; }
}
%extend otr_context_options {
  // Lines of the context up to this level (LOG_…) wait for log_take.
  void keep_log(int32_t level) {
    $self->log_level = level;
    $self->log_callback = otr_swig_log;
  }
}
%rename(log_take) otr_plain_log_take;
%newobject otr_plain_log_take;
%inline %{
/* The first line that waits, of any context of the process; nothing: there is none. Any thread. */
static otr_swig_line *otr_plain_log_take(void) { return otr_swig_log_take(); }
%}

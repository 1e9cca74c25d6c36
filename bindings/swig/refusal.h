/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors that the binding finds before the library is called, and their texts. */
#ifndef OUTRIGGER_SWIG_REFUSAL_H
#define OUTRIGGER_SWIG_REFUSAL_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "outrigger.h"

static _Thread_local char otr_swig_reason[256];

/* Sets *status, with a text of printf's form for otr_swig_error_text. Returns 0. */
static int otr_swig_refuse(int32_t* status, int32_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(otr_swig_reason, sizeof otr_swig_reason, format, arguments);
  va_end(arguments);
  *status = code;
  return 0;
}

/* The text of the call that has just failed on this thread; asked once. */
static const char* otr_swig_error_text(void) {
  static _Thread_local char shown[sizeof otr_swig_reason];
  if (!otr_swig_reason[0]) return otr_last_error_message();
  memcpy(shown, otr_swig_reason, sizeof shown);
  otr_swig_reason[0] = 0;
  return shown;
}

static int otr_swig_no_memory(int32_t* status) {
  return otr_swig_refuse(status, OTR_E_OUT_OF_MEMORY, "the binding has no memory left");
}

/* A text that has to be there; what: its name. */
static int otr_swig_given(const char* text, const char* what, int32_t* status) {
  return text || otr_swig_refuse(status, OTR_E_ARGUMENT, "%s is nothing; give a text", what);
}

#endif /* OUTRIGGER_SWIG_REFUSAL_H */

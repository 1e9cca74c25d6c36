// SPDX-License-Identifier: Apache-2.0
// Java's side of plain.i: exceptions, texts as UTF-8, long[], direct buffers. Package io.outrigger.lowlevel, class Lowlevel.
%{
#include "java.h"
%}
%define OTR_RAISE(code)
otr_java_raise(jenv, code)
%enddef
%define OTR_CONTEXT(options)
options->interrupt_callback = otr_java_interrupted;
%enddef
// Nothing here has a finalizer: the classes of io.outrigger give back what they hold.
%typemap(javafinalize) SWIGTYPE ""

// ---- Texts: UTF-8 with a NUL at the end, which JNI's own strings are not ----
%typemap(jni) const char *, char * "jbyteArray"
%typemap(jtype) const char *, char * "byte[]"
%typemap(jstype) const char *, char * "String"
%typemap(javain) const char *, char * "Text.bytes($javainput)"
%typemap(javaout) const char *, char * { return Text.of($jnicall); }
%typemap(in) const char *, char * "$1 = $input ? (char *)(*jenv)->GetByteArrayElements(jenv, $input, 0) : NULL;"
%typemap(freearg) const char *, char * "if ($1) (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte *)$1, JNI_ABORT);"
%typemap(out) const char *, char * "$result = otr_java_text(jenv, $1);"
%typemap(newfree) char * "free($1);"

%ignore OTR_VERSION_STRING;  // version() tells it of the library that is there

// ---- Numbers of 64 bits: Java has no unsigned ones, and SWIG takes C's long for an int ----
%apply long long { int64_t, uint64_t };

// ---- long[] ----
%define OTR_LONGS(items, count)
%typemap(jni) (const int64_t *items, int64_t count) "jlongArray"
%typemap(jtype) (const int64_t *items, int64_t count) "long[]"
%typemap(jstype) (const int64_t *items, int64_t count) "long[]"
%typemap(javain) (const int64_t *items, int64_t count) "$javainput"
%typemap(in) (const int64_t *items, int64_t count) {
  $1 = $input ? (int64_t *)(*jenv)->GetLongArrayElements(jenv, $input, 0) : NULL;
  $2 = $input ? (int64_t)(*jenv)->GetArrayLength(jenv, $input) : 0;
}
%typemap(freearg) (const int64_t *items, int64_t count)
  "if ($1) (*jenv)->ReleaseLongArrayElements(jenv, $input, (jlong *)$1, JNI_ABORT);"
%enddef
OTR_LONGS(ids, count)
OTR_LONGS(shape, ndim)

// ---- Memory: direct buffers ----
%typemap(jni) void *memory "jobject"
%typemap(jtype) void *memory "java.nio.Buffer"
%typemap(jstype) void *memory "java.nio.Buffer"
%typemap(javain) void *memory "$javainput"
%typemap(in) void *memory "$1 = $input ? (*jenv)->GetDirectBufferAddress(jenv, $input) : NULL;"
%typemap(jni) otr_java_memory "jobject"
%typemap(jtype) otr_java_memory "java.nio.ByteBuffer"
%typemap(jstype) otr_java_memory "java.nio.ByteBuffer"
%typemap(javaout) otr_java_memory { return $jnicall; }
%typemap(out) otr_java_memory "$result = $1.data ? (*jenv)->NewDirectByteBuffer(jenv, $1.data, $1.bytes) : NULL;"
%include "plain.i"
%ignore otr_java_memory;
%rename(tensor_over) otr_java_tensor_over;
%newobject otr_java_tensor_over;
%rename(memory_of) otr_java_memory_of;
%inline %{
/* memory: a direct buffer of `bytes` bytes, which lives as long as the tensor is used. */
static otr_tensor *otr_java_tensor_over(void *memory, int64_t bytes, const char *dtype, const int64_t *shape,
                                        int64_t ndim, int32_t writable, int32_t *status) {
  if (!memory) otr_swig_refuse(status, OTR_E_ARGUMENT, "the memory is no direct buffer");
  return memory ? otr_swig_tensor_over(memory, (size_t)bytes, dtype, shape, ndim, writable ? OTR_SWIG_WRITABLE : 0, status) : NULL;
}

/* The tensor's memory, without a copy. */
static otr_java_memory otr_java_memory_of(const otr_tensor *tensor, int32_t *status) {
  otr_java_memory memory = {NULL, 0};
  if (!otr_swig_readable(tensor, "the tensor", status)) return memory;
  memory.data = otr_swig_data(tensor);
  memory.bytes = (jlong)otr_swig_bytes(tensor);
  return memory;
}
%}

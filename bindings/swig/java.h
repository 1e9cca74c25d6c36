/* SPDX-License-Identifier: Apache-2.0
 * Exceptions, texts and interrupts of Java. */
#ifndef OUTRIGGER_SWIG_JAVA_H
#define OUTRIGGER_SWIG_JAVA_H

#include <jni.h>
#include <string.h>

#include "plain.h"

static JavaVM* otr_java_machine;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void* reserved) {
  (void)reserved;
  otr_java_machine = machine;
  return JNI_VERSION_1_8;
}

/* Bytes of UTF-8 without the NUL; NULL stands for null. */
static jbyteArray otr_java_text(JNIEnv* env, const char* text) {
  const jsize length = text ? (jsize)strlen(text) : 0;
  if (!text || (*env)->ExceptionCheck(env)) return NULL;
  jbyteArray bytes = (*env)->NewByteArray(env, length);
  if (bytes) (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte*)text);
  return bytes;
}

/* Makes OutriggerException(status, text) pending; the wrapper still frees what it holds and
 * returns. */
static void otr_java_raise(JNIEnv* env, int32_t status) {
  const char* text = otr_swig_error_text();
  if ((*env)->ExceptionCheck(env)) return;
  jclass kind = (*env)->FindClass(env, "io/outrigger/OutriggerException");
  if (!kind) return;
  jmethodID made =
      (*env)->GetStaticMethodID(env, kind, "of", "(I[B)Lio/outrigger/OutriggerException;");
  jbyteArray bytes = made ? otr_java_text(env, text) : NULL;
  jobject thrown =
      bytes ? (*env)->CallStaticObjectMethod(env, kind, made, (jint)status, bytes) : NULL;
  if (thrown && !(*env)->ExceptionCheck(env)) (*env)->Throw(env, (jthrowable)thrown);
}

/* Whether Thread.interrupt was called on the thread that waits; takes the interrupt away. */
static int32_t otr_java_interrupted(void* user_data) {
  JNIEnv* env = NULL;
  (void)user_data;
  if ((*otr_java_machine)->GetEnv(otr_java_machine, (void**)&env, JNI_VERSION_1_8) != JNI_OK)
    return 0;
  if ((*env)->PushLocalFrame(env, 4) != 0) return 0;
  jclass thread = (*env)->FindClass(env, "java/lang/Thread");
  jmethodID asked = thread ? (*env)->GetStaticMethodID(env, thread, "interrupted", "()Z") : NULL;
  const int32_t answer = asked ? (*env)->CallStaticBooleanMethod(env, thread, asked) : 0;
  (*env)->PopLocalFrame(env, NULL);
  return answer;
}

/* What becomes a direct ByteBuffer. */
typedef struct otr_java_memory {
  void* data;
  jlong bytes;
} otr_java_memory;

#endif /* OUTRIGGER_SWIG_JAVA_H */

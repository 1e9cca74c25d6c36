// SPDX-License-Identifier: Apache-2.0
// C#'s side of plain.i: exceptions, long[]. Namespace Outrigger.Lowlevel, class Native; texts are UTF-8, as P/Invoke has them here.
%{
#include "plain.h"
%}
%insert(runtime) %{
typedef void (SWIGSTDCALL *otr_csharp_callback)(int32_t code, const char *text);
static otr_csharp_callback otr_csharp_raise;
typedef int32_t (SWIGSTDCALL *otr_csharp_question)(void);
static otr_csharp_question otr_csharp_asked;
SWIGEXPORT void SWIGSTDCALL otr_csharp_set_raise(otr_csharp_callback raise, otr_csharp_question asked) {
  otr_csharp_raise = raise;
  otr_csharp_asked = asked;
}
%}
%pragma(csharp) imclasscode=%{
  internal delegate void Raise(int code, string text);
  internal delegate int Asked();

  // Made pending: the method that called throws it.
  static readonly Raise raise = (code, text) => SWIGPendingException.Set(new Outrigger.OutriggerException(code, text));

  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="otr_csharp_set_raise")]
  static extern void SetRaise(Raise raise, Asked asked);

  // Whether Thread.Interrupt was called on the thread that waits; takes the interrupt away.
  static readonly Asked asked = () => {
    try {
      global::System.Threading.Thread.Sleep(0);
      return 0;
    } catch (global::System.Threading.ThreadInterruptedException) {
      return 1;
    }
  };

  internal class Raising {
    internal Raising() {
      SetRaise(raise, asked);
    }
  }

  internal static readonly Raising raising = new Raising();
%}
#define OTR_RAISE(code) otr_csharp_raise(code, otr_swig_error_text())
%{
static int32_t otr_csharp_interrupted(void *user_data) {
  (void)user_data;
  return otr_csharp_asked();
}
%}
%define OTR_CONTEXT(options)
options->interrupt_callback = otr_csharp_interrupted;
%enddef

// ---- Numbers of 64 bits: SWIG takes C's long for an int ----
%apply long long { int64_t, uint64_t, size_t };

// ---- long[] with its length before it ----
%define OTR_LONGS(items, count)
%typemap(ctype) (const int64_t *items, int64_t count) "const int64_t *"
%typemap(imtype) (const int64_t *items, int64_t count) "long[]"
%typemap(cstype) (const int64_t *items, int64_t count) "long[]"
%typemap(csin) (const int64_t *items, int64_t count) "Outrigger.Lists.Counted($csinput)"
%typemap(in) (const int64_t *items, int64_t count) {
  $1 = (int64_t *)($input ? $input + 1 : NULL);
  $2 = $input ? $input[0] : 0;
}
%enddef
OTR_LONGS(ids, count)
OTR_LONGS(shape, ndim)

// What a method is called on may have been given back.
%typemap(check, canthrow=1) SWIGTYPE *self {
  if (!$1) {
    otr_csharp_raise(OTR_E_STATE, "the object was given back");
    return $null;
  }
}
%include "plain.i"

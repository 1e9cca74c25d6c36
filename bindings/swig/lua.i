// SPDX-License-Identifier: Apache-2.0
// Lua's side of plain.i: errors are tables, whole numbers stay whole, lists are tables. Module outrigger.lowlevel.
%{
#include "lua.h"
#include "lauxlib.h"
#include "plain.h"

static void otr_lua_raise(lua_State *L, int32_t status);
static int otr_lua_is_integer(lua_State *L, int index);
static int64_t *otr_lua_integers(lua_State *L, int index, int64_t *count);

// Ctrl-C in lua is a hook of the main thread, which runs at its next instruction: a wait that sees a new one ends.
static _Thread_local lua_State *otr_lua_main;
static _Thread_local lua_Hook otr_lua_hook;

static void otr_lua_begin(lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  otr_lua_main = lua_tothread(L, -1);
  lua_pop(L, 1);
  otr_lua_hook = lua_gethook(otr_lua_main);
}

static int32_t otr_lua_interrupted(void *user_data) {
  (void)user_data;
  return otr_lua_main && lua_gethook(otr_lua_main) != otr_lua_hook;
}
%}
#define OTR_UNLOCK otr_lua_begin(L);
%define OTR_RAISE(code)
otr_lua_raise(L, code);
SWIG_fail;
%enddef
%define OTR_CONTEXT(options)
options->interrupt_callback = otr_lua_interrupted;
%enddef

// ---- Whole numbers of 64 bits ----
%typemap(in, checkfn="otr_lua_is_integer") int32_t, int64_t, uint32_t, uint64_t, size_t "$1 = ($1_ltype)lua_tointeger(L, $input);"
%typemap(out) int32_t, int64_t, uint32_t, uint64_t, size_t "lua_pushinteger(L, (lua_Integer)$1); SWIG_arg++;"

// ---- Lists of whole numbers: memory of Lua's own, which an error does not leave behind ----
%define OTR_LUA_INTEGERS(items, count)
%typemap(in, checkfn="lua_istable") (const int64_t *items, int64_t count) {
  $1 = otr_lua_integers(L, $input, &$2);
  if (!$1) SWIG_fail;
}
%enddef
OTR_LUA_INTEGERS(ids, count)
OTR_LUA_INTEGERS(shape, ndim)

// nil is no object: what a method is called on has to be one.
%typemap(check) SWIGTYPE *self {
  if (!$1) {
    lua_pushstring(L, "the object is nil, or was given back");
    SWIG_fail;
  }
}
%include "plain.i"

%wrapper %{
#include "lua_tensor.h"
%}
%native(tensor_table) int otr_lua_tensor_table(lua_State *L);
%native(tensor_put) int otr_lua_tensor_put(lua_State *L);
%native(tensor_bytes) int otr_lua_tensor_bytes(lua_State *L);
%native(tensor_put_bytes) int otr_lua_tensor_put_bytes(lua_State *L);
%native(give_back) int otr_lua_give_back(lua_State *L);

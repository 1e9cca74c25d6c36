/* SPDX-License-Identifier: Apache-2.0
 * What Lua has beyond plain.i: errors, lists, and whole tensors as tables and strings. Part of
 * SWIG's wrapper. */

/* Pushes {code, name, text}; the module `outrigger` gives it the metatable that it registers. */
static void otr_lua_raise(lua_State* L, int32_t status) {
  const char* text = otr_swig_error_text();
  lua_createtable(L, 0, 3);
  lua_pushinteger(L, status);
  lua_setfield(L, -2, "code");
  lua_pushstring(L, otr_status_name(status));
  lua_setfield(L, -2, "name");
  lua_pushstring(L, text);
  lua_setfield(L, -2, "text");
  luaL_setmetatable(L, "outrigger.Error");
}

static int otr_lua_is_integer(lua_State* L, int index) {
  int is = 0;
  if (lua_type(L, index) != LUA_TNUMBER) return 0;
  lua_tointegerx(L, index, &is);
  return is;
}

/* A table's numbers in memory that is Lua's; NULL with an error on the stack. */
static int64_t* otr_lua_integers(lua_State* L, int index, int64_t* count) {
  const lua_Integer length = luaL_len(L, index);
  int64_t* items = (int64_t*)lua_newuserdatauv(L, (size_t)(length + 1) * sizeof *items, 0);
  for (lua_Integer i = 0; i < length; i++) {
    lua_geti(L, index, i + 1);
    if (!otr_lua_is_integer(L, -1)) {
      lua_pushfstring(L, "item %I of the list is no whole number", i + 1);
      return NULL;
    }
    items[i] = lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  *count = length;
  return items;
}

/* The first argument as a tensor whose elements can be reached; else an error of Lua. */
static otr_tensor* otr_lua_tensor(lua_State* L, int32_t wanted) {
  otr_tensor* tensor = NULL;
  int32_t status = OTR_OK;
  if (!SWIG_IsOK(SWIG_ConvertPtr(L, 1, (void**)&tensor, SWIGTYPE_p_otr_tensor, 0)) || !tensor) {
    luaL_error(L, "the first argument is no tensor");
  }
  const int reached =
      otr_swig_elements(tensor) == 0
          ? (wanted & OTR_SWIG_WRITABLE ? otr_swig_writable(tensor, "the tensor", &status)
                                        : otr_swig_readable(tensor, "the tensor", &status))
          : otr_swig_at(tensor, 0, wanted, &status) != NULL;
  if (!reached) {
    otr_lua_raise(L, status);
    lua_error(L);
  }
  return tensor;
}

/* tensor_table(tensor): all elements as numbers, in row-major order. */
static int otr_lua_tensor_table(lua_State* L) {
  const otr_tensor* tensor = otr_lua_tensor(L, OTR_SWIG_OPEN);
  const int64_t count = otr_swig_elements(tensor);
  const char* at = (const char*)otr_swig_data(tensor);
  lua_createtable(L, count < INT32_MAX ? (int)count : 0, 0);
  for (int64_t i = 0; i < count; i++, at += tensor->dtype.bits / 8u) {
    lua_pushnumber(L, otr_swig_number(otr_swig_load(at, tensor->dtype.bits), tensor->dtype));
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* tensor_put(tensor, numbers): sets all elements. */
static int otr_lua_tensor_put(lua_State* L) {
  const otr_tensor* tensor = otr_lua_tensor(L, OTR_SWIG_WRITABLE);
  const int64_t count = otr_swig_elements(tensor);
  char* at = (char*)otr_swig_data(tensor);
  luaL_checktype(L, 2, LUA_TTABLE);
  if (luaL_len(L, 2) != count)
    return luaL_error(L, "%I numbers for %I elements", luaL_len(L, 2), (lua_Integer)count);
  for (int64_t i = 0; i < count; i++, at += tensor->dtype.bits / 8u) {
    lua_geti(L, 2, i + 1);
    if (lua_type(L, -1) != LUA_TNUMBER)
      return luaL_error(L, "item %I of the list is no number", (lua_Integer)i + 1);
    otr_swig_store(at, tensor->dtype.bits, otr_swig_bits_of(lua_tonumber(L, -1), tensor->dtype));
    lua_pop(L, 1);
  }
  return 0;
}

/* tensor_bytes(tensor): its memory as a string. */
static int otr_lua_tensor_bytes(lua_State* L) {
  const otr_tensor* tensor = otr_lua_tensor(L, OTR_SWIG_OPEN);
  lua_pushlstring(L, (const char*)otr_swig_data(tensor), otr_swig_bytes(tensor));
  return 1;
}

/* tensor_put_bytes(tensor, string). */
static int otr_lua_tensor_put_bytes(lua_State* L) {
  const otr_tensor* tensor = otr_lua_tensor(L, OTR_SWIG_WRITABLE);
  size_t size = 0;
  const char* bytes = luaL_checklstring(L, 2, &size);
  if (size != otr_swig_bytes(tensor))
    return luaL_error(L, "%I bytes for a tensor of %I", (lua_Integer)size,
                      (lua_Integer)otr_swig_bytes(tensor));
  memcpy(otr_swig_data(tensor), bytes, size);
  return 0;
}

/* give_back(handle): its destructor, now. Later calls get a NULL, which the library refuses. */
static int otr_lua_give_back(lua_State* L) {
  swig_lua_userdata* given = (swig_lua_userdata*)lua_touserdata(L, 1);
  size_t known = 0; /* another module's object says nothing of its kind: its first word has to be
                       one of ours */
  if (given && lua_rawlen(L, 1) >= sizeof *given) {
    while (known < swig_module.size && swig_module.types[known] != given->type) known++;
  } else {
    known = swig_module.size;
  }
  if (known == swig_module.size || !given->type->clientdata)
    return luaL_error(L, "this is no handle");
  const swig_lua_class* class_of = (const swig_lua_class*)given->type->clientdata;
  if (given->own && class_of->destructor) class_of->destructor(given->ptr);
  given->own = 0;
  given->ptr = NULL;
  return 0;
}

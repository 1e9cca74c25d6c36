/* SPDX-License-Identifier: Apache-2.0
 * Loads the library, uses it through its table and unloads it, 100 times; then leaves with an
 * engine alive.   load_often LIBRARY SYMBOLS */
#include <dlfcn.h>
#include <outrigger_api.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                            \
  do {                                               \
    if (!(condition)) {                              \
      fprintf(stderr, "expected: %s\n", #condition); \
      return 0;                                      \
    }                                                \
  } while (0)

/* The members in their order are the symbols in theirs. */
static int table_is(void *library, const otr_api *otr, FILE *symbols) {
  const char *members = (const char *)otr + offsetof(otr_api, status_name);
  const char *const end = (const char *)otr + otr->struct_size;
  char name[128];
  rewind(symbols);
  for (; fscanf(symbols, "%127s", name) == 1; members += sizeof(void *)) {
    void *member;
    EXPECT(members < end);
    memcpy(&member, members, sizeof member);
    if (member == NULL || member != dlsym(library, name)) {
      fprintf(stderr, "the table has another function in the place of %s\n", name);
      return 0;
    }
  }
  EXPECT(members == end);
  return 1;
}

static int refuses(otr_get_api_function get_api, const char *(*error)(void)) {
  const otr_api *otr = NULL;
  const size_t size = sizeof *otr, first = offsetof(otr_api, status_name);
  EXPECT(get_api(OTR_ABI_VERSION, size, NULL) == OTR_E_ARGUMENT);
  EXPECT(get_api(OTR_ABI_VERSION, size, &otr) == OTR_OK && otr != NULL);
  EXPECT(get_api(OTR_ABI_VERSION + 1, size, &otr) == OTR_E_ABI && otr == NULL);
  EXPECT(strstr(error(), "interface 1") != NULL && strstr(error(), OTR_VERSION_STRING) != NULL);
  EXPECT(get_api(OTR_ABI_VERSION, size + sizeof(void *), &otr) == OTR_E_ABI && otr == NULL);
  EXPECT(strstr(error(), "at least as new") != NULL);
  EXPECT(get_api(OTR_ABI_VERSION, first - 1, &otr) == OTR_E_ABI && otr == NULL);
  EXPECT(get_api(OTR_ABI_VERSION, first + sizeof(void *), &otr) == OTR_OK && otr != NULL);
  return 1;
}

/* One step of an engine; finishes it, or leaves it alive. */
static int use(const otr_api *otr, int finish) {
  float start[3] = {1, 2, 3}, slope[3] = {0.5f, -0.5f, 0.25f}, now[3];
  int64_t shape[1] = {3}, id;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_pass *pass = NULL;
  otr_tensor weight, gradient, master;
  EXPECT(otr->context_create(NULL, &context) == OTR_OK);
  EXPECT(otr->comm_create_self(context, &comm) == OTR_OK);
  EXPECT(otr->engine_create(comm, "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}",
                            &engine) == OTR_OK);
  EXPECT(otr->tensor_init(start, "float32", 1, shape, &weight) == OTR_OK);
  EXPECT(otr->tensor_init(slope, "float32", 1, shape, &gradient) == OTR_OK);
  EXPECT(otr->tensor_init(now, "float32", 1, shape, &master) == OTR_OK);
  EXPECT(otr->engine_add_parameter(engine, "w", &weight, NULL, &id) == OTR_OK);
  EXPECT(otr->engine_commit(engine) == OTR_OK);
  EXPECT(otr->pass_begin(engine, NULL, 0, NULL, &pass) == OTR_OK);
  EXPECT(otr->pass_add_grad(pass, id, &gradient, NULL) == OTR_OK);
  EXPECT(otr->pass_end(pass) == OTR_OK);
  EXPECT(otr->engine_step(engine, NULL) == OTR_OK);
  EXPECT(otr->engine_parameter_read(engine, id, OTR_VALUE_MASTER, &master) == OTR_OK);
  EXPECT(now[0] == 0.75f && now[1] == 2.25f && now[2] == 2.875f);
  if (finish) {
    EXPECT(otr->engine_finalize(engine) == OTR_OK);
    otr->pass_destroy(pass), otr->engine_destroy(engine);
    otr->comm_destroy(comm), otr->context_destroy(context);
  }
  return 1;
}

int main(int argc, char **argv) {
  FILE *symbols = argc == 3 ? fopen(argv[2], "r") : NULL;
  int turn;
  if (symbols == NULL) return 2;
  for (turn = 0; turn <= 100; ++turn) {
    const otr_api *otr = NULL;
    otr_get_api_function get_api;
    const char *(*error)(void);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    *(void **)&get_api = dlsym(library, "otr_get_api");
    *(void **)&error = dlsym(library, "otr_last_error_message");
    if (get_api == NULL || error == NULL || !refuses(get_api, error)) return 1;
    if (get_api(OTR_ABI_VERSION, sizeof *otr, &otr) != OTR_OK) return 1;
    if (!table_is(library, otr, symbols) || !use(otr, turn < 100)) return 1;
    if (turn < 100 && dlclose(library) != 0) return 1;
  }
  fclose(symbols);
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Every struct that begins with its size, in a program whose header has them shorter or longer than
 * the library's. OTR_LATER: longer ones, of a header that tests/abi/grow.py made. */
#include OTR_FROZEN_HEADER

#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "line %d: expected: %s (%s)\n", __LINE__, #condition, \
              otr_last_error_message());                                    \
      return 1;                                                             \
    }                                                                       \
  } while (0)
#define TRY(call) EXPECT((call) == OTR_OK)

/* A longer struct's last word is nothing that the library knows: it has to be zero. */
#ifdef OTR_LATER
#define EXPECT_UNKNOWN(options, call) \
  do {                                \
    (options).later[1] = 1;           \
    EXPECT((call) == OTR_E_ABI);      \
    (options).later[1] = 0;           \
  } while (0)
#else
#define EXPECT_UNKNOWN(options, call) (void)0
#endif

static int32_t gather(void *user, const void *mine, size_t bytes, void *all) {
  (void)user;
  if (bytes > 0) memmove(all, mine, bytes);
  return 0;
}
static int32_t broadcast(void *user, void *data, size_t bytes, int32_t root) {
  (void)user, (void)data, (void)bytes, (void)root;
  return 0;
}
static int32_t duplicate(void *user, void **out) {
  *out = user;
  return 0;
}
static void abort_none(void *user, const char *reason) { (void)user, (void)reason; }
static void destroy_none(void *user) { (void)user; }

static int init_all(void) {
  otr_call_info info;
  otr_context_options context;
  otr_comm_options comm;
  otr_comm_table table;
  otr_param_options param;
  otr_estimate_options estimate;
  otr_shard_options shard;
#define INIT(name)                            \
  memset(&name, 0xab, sizeof name);           \
  TRY(otr_##name##_init(&name, sizeof name)); \
  EXPECT(name.struct_size == sizeof name);    \
  EXPECT(otr_##name##_init(&name, 8) == OTR_E_ABI)
#define otr_info_init otr_call_info_init
#define otr_context_init otr_context_options_init
#define otr_comm_init otr_comm_options_init
#define otr_table_init otr_comm_table_init
#define otr_param_init otr_param_options_init
#define otr_estimate_init otr_estimate_options_init
#define otr_shard_init otr_shard_options_init
  INIT(info);
  INIT(context);
  INIT(comm);
  INIT(table);
  INIT(param);
  INIT(estimate);
  INIT(shard);
  EXPECT(param.trainable == 1 && estimate.world_size == 1);
  return 0;
}

static const char *const kConfig =
    "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}, \"gradient_clipping\": 0}";

static int engines(otr_context *context) {
  otr_comm_options options;
  otr_comm_table table;
  otr_param_options param;
  otr_estimate_options estimate;
  otr_call_info tag;
  otr_memory_entry entries[64];
  /* One after the other, so that a wrong length shows in the second. */
  otr_step_report reports[2];
  otr_step_report report;
  otr_comm *comms[2];
  otr_engine *engine[2];
  otr_tensor weight, gradient, now;
  float start[3] = {1, 2, 3}, slope[3] = {1, -1, 2}, values[3];
  int64_t shape[1] = {3}, id = -1;
  size_t count;
  int i, k;

  memset(reports, 0xab, sizeof reports);
  report.struct_size = reports[0].struct_size = reports[1].struct_size = sizeof report;
  TRY(otr_comm_options_init(&options, sizeof options));
  options.timeout = 20;
  EXPECT_UNKNOWN(options, otr_comm_create_threads(context, 1, &options, &comms[0]));
  TRY(otr_comm_create_threads(context, 1, &options, &comms[0]));
  TRY(otr_comm_table_init(&table, sizeof table));
  table.world_size = 1;
  table.all_gather = gather;
  table.broadcast = broadcast;
  table.duplicate = duplicate;
  table.abort = abort_none;
  table.destroy = destroy_none;
  EXPECT_UNKNOWN(table, otr_comm_create_custom(context, &table, &comms[1]));
  TRY(otr_comm_create_custom(context, &table, &comms[1]));
  TRY(otr_param_options_init(&param, sizeof param));
  param.contributions = 2;
  TRY(otr_estimate_options_init(&estimate, sizeof estimate));
  estimate.world_size = 4;
  TRY(otr_tensor_init(start, "float32", 1, shape, &weight));
  TRY(otr_tensor_init(slope, "float32", 1, shape, &gradient));
  TRY(otr_tensor_init(values, "float32", 1, shape, &now));
  for (i = 0; i < 2; ++i) {
    otr_pass *pass = NULL;
    TRY(otr_engine_create(comms[i], kConfig, &engine[i]));
    EXPECT_UNKNOWN(param, otr_engine_add_parameter(engine[i], "w", &weight, &param, &id));
    TRY(otr_engine_add_parameter(engine[i], "w", &weight, &param, &id));
    count = 0;
    TRY(otr_engine_estimate(engine[i], &estimate, NULL, &count));
    EXPECT(count > 2 && count < 64);
    memset(entries, 0xab, sizeof entries);
    entries[0].struct_size = sizeof entries[0];
    EXPECT_UNKNOWN(estimate, otr_engine_estimate(engine[i], &estimate, entries, &count));
    TRY(otr_engine_estimate(engine[i], &estimate, entries, &count));
    EXPECT(strcmp(entries[count - 1].purpose, "total") == 0);
    EXPECT(entries[count - 1].struct_size == sizeof entries[0]);
    EXPECT(entries[count - 1].resident_bytes > 0);
    TRY(otr_engine_commit(engine[i]));
    TRY(otr_call_info_init(&tag, sizeof tag));
    EXPECT_UNKNOWN(tag, otr_pass_begin(engine[i], NULL, 0, &tag, &pass));
    TRY(otr_pass_begin(engine[i], NULL, 0, &tag, &pass));
    TRY(otr_pass_get_tag(pass, &tag));
    EXPECT(tag.loss_scale == 1 && tag.struct_size == sizeof tag);
    for (k = 0; k <= i; ++k) TRY(otr_pass_add_grad(pass, id, &gradient, NULL));
    TRY(otr_pass_end(pass));
    otr_pass_destroy(pass);
  }
  TRY(otr_step_many(engine, 2, NULL, reports));
  for (i = 0; i < 2; ++i) {
    EXPECT(reports[i].struct_size == sizeof reports[i]);
    EXPECT(reports[i].outcome == OTR_STEP_APPLIED && reports[i].applied_steps == 1);
    EXPECT(reports[i].updates == 3);
#ifdef OTR_LATER
    EXPECT(reports[i].later[0] == 0 && reports[i].later[1] == 0);
#endif
    TRY(otr_engine_parameter_read(engine[i], id, OTR_VALUE_MASTER, &now));
    for (k = 0; k < 3; ++k) EXPECT(values[k] == start[k] - 0.5f * (float)(i + 1) * slope[k]);
  }
  reports[1].struct_size = 8;
  EXPECT(otr_step_many(engine, 2, NULL, reports) == OTR_E_ABI);
  {
    otr_pass *pass = NULL;
    TRY(otr_pass_begin(engine[0], NULL, 0, NULL, &pass));
    TRY(otr_pass_end(pass));
    TRY(otr_engine_step(engine[0], &report));
    EXPECT(report.struct_size == sizeof report && report.micro_steps == 2);
    otr_pass_destroy(pass);
  }
  for (i = 0; i < 2; ++i) {
    TRY(otr_engine_finalize(engine[i]));
    otr_engine_destroy(engine[i]);
    otr_comm_destroy(comms[i]);
  }
  return 0;
}

static int shards(otr_context *context) {
  otr_shard_options options;
  otr_shard *shard;
  otr_optimizer *optimizer;
  otr_step_report report;
  otr_tensor weights, gradients;
  float w[4] = {1, 2, 3, 4}, g[4] = {1, 1, -1, -1};
  int64_t shape[1] = {4};

  report.struct_size = sizeof report;
  TRY(otr_tensor_init(w, "float32", 1, shape, &weights));
  TRY(otr_tensor_init(g, "float32", 1, shape, &gradients));
  TRY(otr_shard_options_init(&options, sizeof options));
  options.first_element = 256;
  EXPECT_UNKNOWN(options, otr_shard_wrap(context, &weights, &gradients, &options, &shard));
  TRY(otr_shard_wrap(context, &weights, &gradients, &options, &shard));
  TRY(otr_optimizer_create(context, "{\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}", &optimizer));
  TRY(otr_optimizer_step(optimizer, &shard, 1, &report));
  EXPECT(report.updates == 4 && report.struct_size == sizeof report);
  EXPECT(w[0] == 0.5f && w[3] == 4.5f);
  otr_shard_destroy(shard);
  otr_optimizer_destroy(optimizer);
  return 0;
}

int main(void) {
  otr_context_options options;
  otr_context *context = NULL;
  int failed;

  EXPECT(init_all() == 0);
  TRY(otr_context_options_init(&options, sizeof options));
  options.workers = 1;
  EXPECT_UNKNOWN(options, otr_context_create(&options, &context));
  TRY(otr_context_create(&options, &context));
  failed = engines(context) || shards(context);
  otr_context_destroy(context);
  return failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The scenario (README.md) in C.   scenario [--device PLUGIN] CONFIG.json OUTPUT      writes
 * OUTPUT.<rank>. With a plugin, all of it on device number <rank> of that. */
#include <math.h>
#include <stdlib.h>

#include "state.h"

enum { PARAMETERS = 8, WINDOWS = 3, PASSES_PER_WINDOW = 2 };
enum { EMBED, BIAS, EMPTY, FROZEN, HEAD, SCALE, WIDE, UNUSED };

typedef struct {
  const char* name;
  int32_t ndim;
  int64_t shape[2];
} Parameter;

static Parameter parameters[PARAMETERS] = {
    {"embed.weight", 2, {5, 3}},  {"linear.bias", 1, {7, 0}}, {"norm.empty", 2, {0, 4}},
    {"frozen.table", 2, {2, 3}},  {"head.weight", 2, {5, 3}}, {"scale", 0, {0, 0}},
    {"wide.weight", 2, {3, 101}}, {"unused.gain", 1, {4, 0}}};

static char* read_text(const char* path) {
  FILE* file = fopen(path, "rb");
  char* text = calloc(1, 1 << 16);
  if (!file || !text || fread(text, 1, (1 << 16) - 1, file) == 0) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return text;
}

static void collectives(otr_comm* comm) {
  double sums[2] = {rank + 0.5, 2.0};
  TRY(otr_comm_all_reduce_sum(comm, sums, 2));
  fprintf(out, "all_reduce");
  print_double(out, sums[0]);
  print_double(out, sums[1]);

  uint8_t mine = (uint8_t)(10 + rank), all[64];
  TRY(otr_comm_all_gather(comm, &mine, 1, all));
  fprintf(out, "\nall_gather");
  for (int32_t r = 0; r < world; r++) fprintf(out, " %d", all[r]);

  uint32_t token = rank == world - 1 ? 0x3f800000u : 0;
  TRY(otr_comm_broadcast(comm, &token, sizeof token, world - 1));
  TRY(otr_comm_barrier(comm));
  fprintf(out, "\nbroadcast %08" PRIx32 "\n", token);
}

static void add_parameters(otr_engine* engine) {
  for (int64_t d = 0; d < PARAMETERS; d++) {
    Parameter* p = &parameters[d];
    float values[LARGEST];
    for (int64_t i = 0; i < element_count(p->ndim, p->shape); i++) {
      values[i] = (float)((7 * i + 3 * d) % 33 - 16) / 16 + (float)rank;
    }
    otr_tensor initial = tensor_of(values, "float32", p->ndim, p->shape);
    otr_param_options options;
    TRY(otr_param_options_init(&options, sizeof options));
    if (d == BIAS) options.contributions = 2;
    if (d == FROZEN) options.trainable = 0;
    if (d == HEAD) options.alias_of = EMBED;
    int64_t id;
    TRY(otr_engine_add_parameter(engine, p->name, d == HEAD ? NULL : &initial, &options, &id));
    int32_t ndim;
    const int64_t* shape;
    TRY(otr_engine_parameter_shape(engine, id, &ndim, &shape));
    fprintf(out, "parameter %" PRId64 " %s", id, p->name);
    print_shape(out, ndim, shape);
    fprintf(out, "\n");
  }
}

static void print_acquired(otr_engine* engine, uint32_t flags) {
  const int64_t ids[2] = {EMBED, WIDE};
  otr_tensor weights[2];
  otr_call_info info;
  TRY(otr_call_info_init(&info, sizeof info));
  info.flags = flags;
  TRY(otr_engine_prefetch(engine, ids, 2, &info));
  TRY(otr_engine_acquire(engine, ids, 2, &info, weights));
  for (int i = 0; i < 2; i++) {
    fprintf(out, "acquired %" PRId64, ids[i]);
    show(&weights[i]);
  }
  TRY(otr_engine_release(engine, ids, 2, &info));
}

/* The gradient from a place of the pass: slots have the compute dtype, and the values are exact in
 * it. */
static void add_by_slot(otr_pass* pass, int64_t id, const float* gradient) {
  otr_tensor slot;
  float memory[LARGEST];
  TRY(otr_pass_get_slot(pass, id, &slot));
  otr_tensor here = fetch(&slot, memory);
  for (int64_t i = 0; i < element_count(slot.ndim, slot.shape); i++) {
    if (slot.dtype.code == OTR_DTYPE_BFLOAT) {
      uint32_t bits;
      memcpy(&bits, &gradient[i], sizeof bits);
      ((uint16_t*)here.data)[i] = (uint16_t)(bits >> 16);
    } else {
      ((float*)here.data)[i] = gradient[i];
    }
  }
  TRY(otr_tensor_copy(context, &slot, &here)); /* on the CPU: onto itself */
  TRY(otr_pass_add_grad(pass, id, &slot, NULL));
}

static void add_by_tensor(otr_pass* pass, int64_t id, float* gradient) {
  otr_tensor here = tensor_of(gradient, "float32", parameters[id].ndim, parameters[id].shape);
  otr_tensor tensor = there(&here);
  TRY(otr_pass_add_grad(pass, id, &tensor, NULL));
}

/* The toy model's backward: parameter gradients from the scaled gradients of the outputs. */
static void backward(otr_pass* pass, int64_t p, const float* dy0, const float* dy1, float dl) {
  float gradient[LARGEST];
  for (int64_t k = 0; k < 5; k++) {
    for (int64_t j = 0; j < 3; j++) {
      float sum = 0;
      for (int64_t i = 0; i < 4; i++) sum += (float)((i + 2 * k) % 5 - 2) / 2 * dy0[3 * i + j];
      gradient[3 * k + j] = sum;
    }
  }
  add_by_slot(pass, EMBED, gradient);
  for (int64_t k = 0; k < 15; k++) gradient[k] = dl * dy0[3 * (k / 3 % 4) + k % 3];
  add_by_tensor(pass, HEAD, gradient);

  if (rank == 0 || p % 2 == 0) {
    add_by_slot(pass, BIAS, dy1);
    memcpy(gradient, dy1 + 7, 7 * sizeof *gradient);
    add_by_tensor(pass, BIAS, gradient);
  }
  if (p % 2 == 0) add_by_tensor(pass, EMPTY, gradient);

  gradient[0] = dl;
  for (int64_t i = 0; i < 12; i++) gradient[0] += dy0[i];
  add_by_tensor(pass, SCALE, gradient);

  for (int64_t j = 0; j < 3; j++) {
    for (int64_t c = 0; c < 101; c++) gradient[101 * j + c] = dl * dy0[3 * (c % 4) + j];
  }
  if (p == 3 && rank == world - 1) gradient[101 + 7] = INFINITY;
  if (p % 2 == 0) {
    add_by_slot(pass, WIDE, gradient);
  } else {
    add_by_tensor(pass, WIDE, gradient);
  }
}

static void run_pass(otr_engine* engine, int64_t p) {
  int64_t shapes[2][2] = {{4, 3}, {2, 7}};
  float y0[12], loss = 1;
  double y1[14];
  for (int64_t i = 0; i < 12; i++) y0[i] = (float)((i + rank + p) % 8 - 3) / 4;
  for (int64_t i = 0; i < 14; i++) y1[i] = (double)((3 * i + 2 * rank + p) % 8 - 4) / 4;
  otr_tensor outputs[3] = {tensor_of(y0, "float32", 2, shapes[0]),
                           tensor_of(y1, "float64", 2, shapes[1]),
                           tensor_of(&loss, "float32", 0, NULL)};
  for (int i = 0; i < 3; i++) outputs[i] = there(&outputs[i]);

  otr_pass* pass;
  TRY(otr_pass_begin(engine, outputs, 3, NULL, &pass));
  double scale;
  TRY(otr_pass_get_scale(pass, &scale));
  fprintf(out, "pass %" PRId64 " scale", p);
  print_double(out, scale);
  fprintf(out, "\n");
  otr_tensor scaled[3];
  float memory[3][14];
  for (int64_t i = 0; i < 3; i++) {
    TRY(otr_pass_get_output_grad(pass, i, &scaled[i]));
    scaled[i] = fetch(&scaled[i], memory[i]);
    fprintf(out, "pass %" PRId64 " output %" PRId64, p, i);
    print_tensor(out, &scaled[i]);
  }
  backward(pass, p, scaled[0].data, scaled[1].data, *(const float*)scaled[2].data);
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  give_back();

  otr_step_report report = OTR_STEP_REPORT_INIT;
  if (p % 2 == 0) {
    TRY(otr_engine_step(engine, &report));
  } else {
    TRY(otr_engine_step_begin(engine));
    TRY(otr_engine_report(engine, -1, &report));
  }
  fprintf(out, "step %" PRId64, p);
  print_report(out, &report);
  if (report.reason == OTR_SKIP_NONFINITE) {
    const char* name;
    TRY(otr_engine_parameter_name(engine, report.nonfinite_param, &name));
    fprintf(out, "skipped for %s of rank %" PRId32 "\n", name, report.nonfinite_rank);
  }
}

static void print_error(int32_t status) {
  fprintf(out, "error %s %s\n", otr_status_name(status), otr_last_error_message());
}

static void wrong_calls(otr_engine* engine) {
  float value[15] = {0};
  otr_tensor tensor = tensor_of(value, "float32", parameters[EMBED].ndim, parameters[EMBED].shape);
  tensor = there(&tensor);
  int64_t id;
  print_error(otr_engine_parameter_id(engine, "embed.wieght", &id));
  print_error(otr_engine_add_parameter(engine, "late", &tensor, NULL, &id));
  print_error(otr_engine_set_group_value(engine, NULL, "lr", -1.0));
  otr_pass* pass;
  TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
  print_error(otr_pass_add_grad(pass, WIDE, &tensor, NULL));
  otr_pass_destroy(pass); /* nothing was added: no trace */
  give_back();
}

static void print_values(otr_engine* engine) {
  static const char* const names[4] = {"master", "published", "exp_avg", "exp_avg_sq"};
  for (int64_t d = 0; d < PARAMETERS; d++) {
    for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; value++) {
      float data[LARGEST];
      otr_tensor tensor = tensor_of(data, "float32", parameters[d].ndim, parameters[d].shape);
      int32_t status = otr_engine_parameter_read(engine, d, value, &tensor);
      fprintf(out, "value %" PRId64 " %s", d, names[value]);
      if (status == OTR_E_NOT_FOUND) {
        fprintf(out, " none\n");
      } else {
        TRY(status);
        print_tensor(out, &tensor);
      }
    }
  }
}

static void print_memory(otr_engine* engine) {
  otr_memory_entry entries[64] = {{sizeof *entries, 0, NULL, 0, 0}};
  size_t count = 64;
  TRY(otr_engine_memory(engine, entries, &count));
  for (size_t i = 0; i < count; i++) {
    fprintf(out, "memory %" PRId64 " %s\n", entries[i].resident_bytes, entries[i].purpose);
  }
}

static void shard_alone(void) {
  int64_t count = 5;
  float weights[5], grads[5];
  uint16_t published[5];
  for (int i = 0; i < 5; i++) {
    weights[i] = (float)(i - 2) / 4;
    grads[i] = (float)(3 - i) / 8;
  }
  otr_tensor w = tensor_of(weights, "float32", 1, &count),
             g = tensor_of(grads, "float32", 1, &count);
  otr_tensor copy = tensor_of(published, "bfloat16", 1, &count);
  otr_shard_options options;
  TRY(otr_shard_options_init(&options, sizeof options));
  options.published = &copy;
  otr_shard* shard;
  otr_optimizer* optimizer;
  TRY(otr_shard_wrap(context, &w, &g, &options, &shard));
  TRY(otr_optimizer_create(context, "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}",
                           &optimizer));
  TRY(otr_optimizer_set_value(optimizer, "lr", 0.25));
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_optimizer_step(optimizer, &shard, 1, &report));
  fprintf(out, "shard step");
  print_report(out, &report);
  fprintf(out, "shard weights");
  print_tensor(out, &w);
  fprintf(out, "shard published");
  print_tensor(out, &copy);
  for (int32_t value = OTR_VALUE_EXP_AVG; value <= OTR_VALUE_EXP_AVG_SQ; value++) {
    otr_tensor state;
    TRY(otr_shard_state(shard, value, &state));
    fprintf(out, "shard state %" PRId32, value);
    print_tensor(out, &state);
  }
  int64_t bytes;
  TRY(otr_shard_state_bytes(shard, &bytes));
  fprintf(out, "shard state_bytes %" PRId64 "\n", bytes);
  otr_optimizer_destroy(optimizer);
  otr_shard_destroy(shard);
}

int main(int argc, char** argv) {
  const char* plugin = argc > 2 && strcmp(argv[1], "--device") == 0 ? argv[2] : NULL;
  if (plugin) argv += 2, argc -= 2;
  if (argc != 3) {
    return fprintf(stderr, "usage: scenario [--device PLUGIN] CONFIG.json OUTPUT\n"), 2;
  }
  char *config = read_text(argv[1]), path[4096];

  otr_comm* comm;
  otr_engine* engine;
  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &comm));
  TRY(otr_comm_rank(comm, &rank));
  TRY(otr_comm_size(comm, &world));
  snprintf(path, sizeof path, "%s.%d", argv[2], (int)rank);
  out = fopen(path, "wb");
  if (!out) return fprintf(stderr, "cannot write %s\n", path), 1;
  fprintf(out, "rank %d of %d\n", (int)rank, (int)world);
  collectives(comm);

  if (plugin) {
    TRY(otr_context_load_plugin(context, plugin));
    device.device_type = OTR_DEVICE_EXTENSION;
    device.device_id = rank;
  }
  TRY(otr_engine_create(comm, config, &engine));
  TRY(otr_engine_set_device(engine, device.device_type, device.device_id));
  add_parameters(engine);
  TRY(otr_engine_commit(engine));
  print_acquired(engine, 0);

  for (int64_t window = 0; window < WINDOWS; window++) {
    if (window == 2) TRY(otr_engine_set_group_value(engine, NULL, "lr", 0.03125));
    for (int64_t i = 0; i < PASSES_PER_WINDOW; i++)
      run_pass(engine, PASSES_PER_WINDOW * window + i);
  }
  wrong_calls(engine);
  print_values(engine);
  print_acquired(engine, 0);
  print_acquired(engine, OTR_ACQUIRE_FLOAT32);
  print_memory(engine);

  int64_t live;
  TRY(otr_engine_live_children(engine, &live));
  fprintf(out, "live_children %" PRId64 "\n", live);
  TRY(otr_engine_finalize(engine));
  chain(comm);
  snprintf(path, sizeof path, "%s.saved", argv[2]);
  save_and_load(comm, path);
  shard_alone();
  otr_context_destroy(context); /* any order: children hold their parents */
  otr_comm_destroy(comm);
  otr_engine_destroy(engine);
  free(config);
  fprintf(out, "done\n");
  return fclose(out) == 0 ? 0 : 1;
}

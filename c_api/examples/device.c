/* SPDX-License-Identifier: Apache-2.0
 * An engine on a device: y = W x, fitted with tensors in a device's memory. Here that is the
 * simulated device, which any machine has; with "cuda" and OTR_DEVICE_CUDA it would be a GPU, and
 * the arithmetic below, which goes through the host, a kernel. With --offload, master weights and
 * optimizer states stay in host memory.
 */
#include <outrigger.h>
#include <stdio.h>
#include <string.h>
#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1

enum { OUT = 2, IN = 3, SAMPLES = 4 };

typedef struct {
  otr_context *context;
  otr_engine *engine;
  int offload, pending; /* a step was begun, and its report not asked for */
} Trainer;

/* A tensor of host memory. */
static otr_tensor here(float *values, int32_t ndim, int64_t *shape) {
  otr_tensor tensor = {0};
  (void)otr_tensor_init(values, "float32", ndim, shape, &tensor);
  return tensor;
}

/* dW of the mean squared error, and the error itself. */
static float gradient(float w[OUT][IN], float dw[OUT][IN]) {
  static const float truth[OUT][IN] = {{1, -2, 0.5f}, {0, 3, -1}};
  static const float x[SAMPLES][IN] = {{1, 0, 2}, {0, 1, -1}, {2, -1, 0}, {1, 1, 1}};
  float loss = 0;
  memset(dw, 0, sizeof(float[OUT][IN]));
  for (int s = 0; s < SAMPLES; s++) {
    for (int o = 0; o < OUT; o++) {
      float error = 0;
      for (int i = 0; i < IN; i++) error += (w[o][i] - truth[o][i]) * x[s][i];
      for (int i = 0; i < IN; i++) dw[o][i] += 2 * error * x[s][i] / SAMPLES;
      loss += error * error / SAMPLES;
    }
  }
  return loss;
}

/* Of the last step, which may still be under way. */
static int hear(Trainer *t, otr_step_report *report) {
  TRY(otr_engine_report(t->engine, -1, report));
  t->pending = 0;
  return 0;
}

static int step(Trainer *t, float *loss) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  const int64_t id = 0;
  int64_t shape[2] = {OUT, IN};
  float w[OUT][IN], dw[OUT][IN];
  const otr_tensor weight_here = here(w[0], 2, shape), grad_here = here(dw[0], 2, shape);
  otr_tensor weight, slot;
  otr_pass *pass = NULL;
  TRY(otr_engine_acquire(t->engine, &id, 1, NULL, &weight)); /* waits for this parameter alone */
  TRY(otr_tensor_copy(t->context, &weight_here, &weight));
  *loss = gradient(w, dw);
  if (t->pending && hear(t, &report)) return 1; /* the whole step is over */
  TRY(otr_pass_begin(t->engine, NULL, 0, NULL, &pass));
  TRY(otr_pass_get_slot(pass, id, &slot)); /* on the device */
  TRY(otr_tensor_copy(t->context, &slot, &grad_here));
  TRY(otr_pass_add_grad(pass, id, &slot, NULL));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  if (t->offload) {
    TRY(otr_engine_step_begin(t->engine)); /* the host updates beside the next forward */
    t->pending = 1;
  } else {
    TRY(otr_engine_step(t->engine, NULL)); /* the device decides; nobody waits for it */
  }
  return 0;
}

/* A pool of the host's own there. A framework's would keep what comes back. */
static int32_t take(void *context, size_t bytes, uint64_t stream, void **out) {
  (void)stream;
  return otr_device_allocate(context, OTR_DEVICE_EXTENSION, 0, bytes, out) == OTR_OK ? 0 : 1;
}

static void give_back(void *context, void *data, size_t bytes, uint64_t stream) {
  (void)bytes, (void)stream; /* otr_device_free waits, so the stream has ended its work */
  (void)otr_device_free(context, OTR_DEVICE_EXTENSION, 0, data);
}

static int use_pool(const Trainer *t) {
  otr_device_allocator pool;
  TRY(otr_device_allocator_init(&pool, sizeof pool));
  pool.user_data = t->context;
  pool.allocate = take;
  pool.release = give_back;
  TRY(otr_device_set_allocator(t->context, OTR_DEVICE_EXTENSION, 0, &pool));
  return 0;
}

static int create(Trainer *t, const char *config) {
  float zeros[OUT][IN] = {{0}};
  int64_t shape[2] = {OUT, IN}, id = 0;
  const otr_tensor initial = here(zeros[0], 2, shape);
  otr_comm *comm = NULL;
  TRY(otr_context_create(NULL, &t->context));
  TRY(otr_context_load_plugin(t->context, "simulated"));
  if (use_pool(t)) return 1;
  TRY(otr_comm_create_self(t->context, &comm));
  TRY(otr_engine_create(comm, config, &t->engine));
  otr_comm_destroy(comm); /* the engine keeps it */
  TRY(otr_engine_set_device(t->engine, OTR_DEVICE_EXTENSION, 0));
  TRY(otr_engine_add_parameter(t->engine, "W", &initial, NULL, &id));
  TRY(otr_engine_commit(t->engine));
  return 0;
}

static int report(const Trainer *t) {
  otr_memory_entry entries[32];
  size_t count = 32;
  entries[0].struct_size = sizeof entries[0];
  TRY(otr_engine_memory(t->engine, entries, &count));
  for (size_t i = 0; i < count; i++) {
    if (strcmp(entries[i].purpose, "total") != 0) continue;
    printf("%s memory: %lld bytes\n", entries[i].device_type == OTR_DEVICE_CPU ? "host" : "device",
           (long long)entries[i].resident_bytes);
  }
  return 0;
}

/* Another model has the device for a while, as in reinforcement learning: states are on the host.
 */
static int lend_device(const Trainer *t) {
  TRY(otr_engine_offload_states(t->engine, NULL));
  printf("lent, ");
  if (report(t)) return 1;
  TRY(otr_engine_reload_states(t->engine));
  return 0;
}

int main(int argc, char **argv) {
  Trainer t = {NULL, NULL, argc > 1 && strcmp(argv[1], "--offload") == 0, 0};
  otr_step_report last = OTR_STEP_REPORT_INIT;
  float loss = 0;
  if (create(&t, t.offload ? "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.1}},"
                             " \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                             " {\"device\": \"cpu\"}}}"
                           : "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.1}}}")) {
    return 1;
  }
  for (int i = 0; i < 300; i++) {
    if (step(&t, &loss)) return 1;
    if (i % 100 == 99 && hear(&t, &last)) return 1;
    if (i == 99 && lend_device(&t)) return 1;
  }
  printf("loss %.6f, norm %.6f\n", (double)loss, last.grad_norm);
  if (report(&t)) return 1;
  otr_engine_destroy(t.engine);
  otr_context_destroy(t.context);
  return loss < 1e-3f ? 0 : 1;
}

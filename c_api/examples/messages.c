/* SPDX-License-Identifier: Apache-2.0
 * One model over two groups of processes of any widths: the vision ranks compute h = E x and send
 * it, the text ranks compute y = D h and send the gradient of h back, with its tag. Each group has
 * its own engine, ZeRO stage and loss scale; all step together. The first argument is the number of
 * vision ranks: outrigger run -n 5 -- messages 3. The numbers are those of one rank of each.
 */
#include <math.h>
#include <outrigger.h>
#include <stdio.h>
#include <stdlib.h>
#define TRY(call)                                                                      \
  do {                                                                                 \
    if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1; \
  } while (0)

enum { SAMPLES = 12, IN = 2, HIDDEN = 2, MOST_RANKS = 16 };

typedef struct {
  otr_comm *world, *group;
  otr_engine *engine; /* of this rank's group */
  int32_t rank, vision_ranks, text_ranks;
  int64_t rows[MOST_RANKS]; /* samples of each rank, vision ranks first */
} Job;

static float x_of(int64_t sample, int i) { return (float)((sample * (3 + 2 * i) + i) % 7 - 3); }

static float target_of(int64_t sample) { return 3 * x_of(sample, 0) - 2 * x_of(sample, 1); }

static int64_t first_of(const Job *job, int32_t begin, int32_t rank) {
  int64_t first = 0;
  for (int32_t r = begin; r < rank; r++) first += job->rows[r];
  return first;
}

/* The transport: anything that moves bytes. Here a broadcast takes the message to its receiver. */
static int carry(const Job *job, int32_t from, void **buffer, size_t *bytes) {
  TRY(otr_comm_broadcast(job->world, bytes, sizeof *bytes, from));
  if (job->rank != from) *buffer = malloc(*bytes);
  if (*buffer == NULL) return fprintf(stderr, "no memory for a message\n"), 1;
  TRY(otr_comm_broadcast(job->world, *buffer, *bytes, from));
  return 0;
}

/* Rows of a matrix as a message, with the tag of its pass, if it is a gradient. */
static int pack(const char *name, const float *rows, int64_t count, const otr_pass *pass,
                void **buffer, size_t *bytes) {
  int64_t shape[2] = {count, HIDDEN};
  otr_tensor tensor;
  otr_message_options options;
  otr_call_info tag;
  TRY(otr_message_options_init(&options, sizeof options));
  TRY(otr_tensor_init((void *)rows, "float32", 2, shape, &tensor));
  if (pass != NULL) {
    TRY(otr_call_info_init(&tag, sizeof tag));
    TRY(otr_pass_get_tag(pass, &tag));
    options.tag = &tag;
  }
  TRY(otr_message_pack(&name, &tensor, 1, &options, NULL, bytes)); /* how many bytes? */
  *buffer = malloc(*bytes);
  TRY(otr_message_pack(&name, &tensor, 1, &options, *buffer, bytes));
  return 0;
}

static int unpack(void *buffer, size_t bytes, const char *name, float *rows, otr_call_info *tag) {
  otr_message *message = NULL;
  otr_tensor tensor;
  TRY(otr_message_unpack(buffer, bytes, 0, &message));
  TRY(otr_message_get_tensor(message, name, &tensor)); /* lies in the buffer */
  if (tag != NULL) TRY(otr_message_get_tag(message, tag));
  const float *values = tensor.data;
  for (int64_t i = 0; i < tensor.shape[0] * HIDDEN; i++) rows[i] = values[i];
  otr_message_destroy(message);
  return 0;
}

/* Sends the rows that one group has to the ranks of the other that need them. */
static int exchange(const Job *job, const char *name, int vision_sends, float (*mine)[HIDDEN],
                    float (*other)[HIDDEN], const otr_pass *pass, otr_call_info *tag) {
  const int32_t vision = job->vision_ranks, text = job->text_ranks;
  const int32_t from_begin = vision_sends ? 0 : vision, to_begin = vision_sends ? vision : 0;
  otr_message_route routes[MOST_RANKS];
  int64_t count = MOST_RANKS;
  TRY(otr_message_routes(job->rows + from_begin, vision_sends ? vision : text, job->rows + to_begin,
                         vision_sends ? text : vision, routes, &count));
  for (int64_t i = 0; i < count; i++) {
    const otr_message_route *route = &routes[i];
    const int32_t from = from_begin + route->source, to = to_begin + route->target;
    void *buffer = NULL;
    size_t bytes = 0;
    if (job->rank == from &&
        pack(name, mine[route->source_row], route->rows, pass, &buffer, &bytes) != 0) {
      return 1;
    }
    if (carry(job, from, &buffer, &bytes) != 0) return 1;
    if (job->rank == to && unpack(buffer, bytes, name, other[route->target_row], tag) != 0)
      return 1;
    free(buffer);
  }
  return 0;
}

static int add_grad_and_end(otr_pass *pass, float *values, int64_t *shape) {
  otr_tensor grad;
  TRY(otr_tensor_init(values, "float32", 2, shape, &grad));
  TRY(otr_pass_add_grad(pass, 0, &grad, NULL));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return 0;
}

static int vision_step(const Job *job) {
  const int64_t id = 0, rows = job->rows[job->rank], first = first_of(job, 0, job->rank);
  int64_t shape[2] = {HIDDEN, IN}, dh_shape[2] = {rows, HIDDEN};
  float h[SAMPLES][HIDDEN], dh[SAMPLES][HIDDEN], de[HIDDEN * IN] = {0};
  otr_tensor e, grad, scaled;
  otr_call_info tag;
  otr_pass *pass = NULL;
  TRY(otr_engine_acquire(job->engine, &id, 1, NULL, &e));
  const float(*weights)[IN] = e.data;
  for (int64_t s = 0; s < rows; s++) {
    for (int i = 0; i < HIDDEN; i++) {
      h[s][i] = weights[i][0] * x_of(first + s, 0) + weights[i][1] * x_of(first + s, 1);
    }
  }
  TRY(otr_engine_release(job->engine, &id, 1, NULL));
  TRY(otr_call_info_init(&tag, sizeof tag));
  if (exchange(job, "embedding", 1, h, NULL, NULL, NULL) != 0) return 1;
  if (exchange(job, "embedding_grad", 0, NULL, dh, NULL, &tag) != 0) return 1;
  TRY(otr_tensor_init(dh, "float32", 2, dh_shape, &grad));
  TRY(otr_pass_begin(job->engine, &grad, 1, rows > 0 ? &tag : NULL, &pass));
  TRY(otr_pass_get_output_grad(pass, 0, &scaled));
  const float(*seed)[HIDDEN] = scaled.data;
  for (int64_t s = 0; s < rows; s++) {
    for (int i = 0; i < HIDDEN; i++) {
      for (int j = 0; j < IN; j++) de[i * IN + j] += seed[s][i] * x_of(first + s, j);
    }
  }
  return add_grad_and_end(pass, de, shape);
}

/* out: the sum of squared errors of this rank's samples. */
static int text_step(const Job *job, double *squares) {
  const int32_t vision = job->vision_ranks;
  const int64_t id = 0, rows = job->rows[job->rank], first = first_of(job, vision, job->rank);
  int64_t shape[2] = {1, HIDDEN}, dy_shape[2] = {rows, 1};
  float h[SAMPLES][HIDDEN], dh[SAMPLES][HIDDEN], error[SAMPLES], dd[HIDDEN] = {0};
  otr_tensor d, dy, scaled;
  otr_pass *pass = NULL;
  if (exchange(job, "embedding", 1, NULL, h, NULL, NULL) != 0) return 1;
  TRY(otr_engine_acquire(job->engine, &id, 1, NULL, &d));
  const float *row = d.data;
  for (int64_t s = 0; s < rows; s++) {
    error[s] = row[0] * h[s][0] + row[1] * h[s][1] - target_of(first + s);
    *squares += (double)error[s] * error[s];
    error[s] *= (float)job->text_ranks / SAMPLES; /* the mean over ranks is the mean over samples */
  }
  TRY(otr_tensor_init(error, "float32", 2, dy_shape, &dy));
  TRY(otr_pass_begin(job->engine, &dy, 1, NULL, &pass));
  TRY(otr_pass_get_output_grad(pass, 0, &scaled));
  const float *seed = scaled.data;
  for (int64_t s = 0; s < rows; s++) {
    for (int i = 0; i < HIDDEN; i++) {
      dd[i] += seed[s] * h[s][i];
      dh[s][i] = seed[s] * row[i];
    }
  }
  TRY(otr_engine_release(job->engine, &id, 1, NULL));
  if (exchange(job, "embedding_grad", 0, dh, NULL, pass, NULL) != 0) return 1;
  return add_grad_and_end(pass, dd, shape);
}

static int train(const Job *job) {
  for (int step = 0; step < 12; step++) {
    double squares = 0;
    if ((job->rank < job->vision_ranks ? vision_step(job) : text_step(job, &squares)) != 0)
      return 1;
    otr_engine *engine = job->engine;
    TRY(otr_step_many(&engine, 1, job->world, NULL)); /* both groups, or neither */
    TRY(otr_comm_all_reduce_sum(job->world, &squares, 1));
    if (job->rank == 0) printf("root mean square error %.4f\n", sqrt(squares / SAMPLES));
  }
  return 0;
}

static int open_job(Job *job, otr_context *context, int32_t vision_ranks) {
  const char *config[2] = {
      "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": "
      "128}, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.01}},"
      " \"gradient_clipping\": 14.0, \"zero_optimization\": {\"stage\": 1}}",
      "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": "
      "4096}, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.005}},"
      " \"gradient_clipping\": 14.0, \"zero_optimization\": {\"stage\": 2}}"};
  float initial[2][HIDDEN * IN] = {{0.5f, 0.1f, -0.2f, 0.4f}, {0.3f, -0.6f}};
  int64_t shapes[2][2] = {{HIDDEN, IN}, {1, HIDDEN}}, id = 0;
  int32_t world = 0;
  otr_tensor values;
  TRY(otr_comm_from_env(context, NULL, &job->world));
  TRY(otr_comm_rank(job->world, &job->rank));
  TRY(otr_comm_size(job->world, &world));
  job->vision_ranks = vision_ranks;
  job->text_ranks = world - vision_ranks;
  if (world > MOST_RANKS || vision_ranks < 1 || job->text_ranks < 1) {
    return fprintf(stderr, "%d vision ranks of %d\n", (int)vision_ranks, (int)world), 1;
  }
  for (int32_t r = 0; r < world; r++) { /* the first ranks of a group have one more */
    const int32_t width = r < vision_ranks ? vision_ranks : job->text_ranks;
    const int32_t place = r < vision_ranks ? r : r - vision_ranks;
    job->rows[r] = SAMPLES / width + (place < SAMPLES % width);
  }
  const int is_text = job->rank >= vision_ranks;
  TRY(otr_comm_split(job->world, is_text, job->rank, &job->group));
  TRY(otr_engine_create(job->group, config[is_text], &job->engine));
  TRY(otr_tensor_init(initial[is_text], "float32", 2, shapes[is_text], &values));
  TRY(otr_engine_add_parameter(job->engine, is_text ? "D" : "E", &values, NULL, &id));
  TRY(otr_engine_commit(job->engine));
  return 0;
}

int main(int argc, char **argv) {
  Job job = {0};
  otr_context *context = NULL;
  TRY(otr_context_create(NULL, &context));
  if (open_job(&job, context, argc > 1 ? atoi(argv[1]) : 1) != 0) return 1;
  if (train(&job) != 0) return 1;
  TRY(otr_engine_finalize(job.engine));
  otr_engine_destroy(job.engine);
  otr_comm_destroy(job.group), otr_comm_destroy(job.world), otr_context_destroy(context);
  return 0;
}

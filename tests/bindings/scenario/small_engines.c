/* SPDX-License-Identifier: Apache-2.0
 *
 * The scenario's engines of one small parameter. */
#include <math.h>

#include "state.h"

/* ---- Two engines in a chain: h = front(x), y = back(h) ---- */
static const char* const front_config =
    "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": 4},"
    " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.25}}}";
static const char* const back_config =
    "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": 64},"
    " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}},"
    " \"zero_optimization\": {\"stage\": 2}}";

static otr_engine* make_engine(otr_comm* comm, const char* config, const char* name) {
  int64_t shape[2] = {2, 2}, id;
  float values[4] = {0.5f, -1, 1, 0.25f};
  otr_tensor initial = tensor_of(values, "float32", 2, shape), nothing = initial;
  nothing.data = NULL;
  otr_engine* engine;
  TRY(otr_engine_create(comm, config, &engine));
  TRY(otr_engine_set_device(engine, device.device_type, device.device_id));
  TRY(otr_engine_add_parameter(engine, name, &nothing, NULL, &id));
  TRY(otr_engine_commit(engine));
  TRY(otr_engine_set_initial(engine, &id, 1, &initial));
  return engine;
}

static otr_pass* begin_chained(otr_engine* engine, const char* name, float* grad,
                               const otr_call_info* tag, otr_tensor* scaled) {
  int64_t shape[2] = {2, 2};
  otr_tensor output = tensor_of(grad, "float32", 2, shape);
  output = there(&output);
  otr_pass* pass;
  TRY(otr_pass_begin(engine, &output, 1, tag, &pass));
  TRY(otr_pass_get_output_grad(pass, 0, scaled));
  fprintf(out, "chain %s scaled", name);
  show(scaled);
  return pass;
}

/* The gradient of the parameter is the scaled gradient of the output. */
static void end_chained(otr_pass* pass, const otr_tensor* grad) {
  TRY(otr_pass_add_grad(pass, 0, grad, NULL));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
}

static void finish(otr_engine* engine, const char* name) {
  int64_t shape[2] = {2, 2};
  float values[4];
  otr_tensor tensor = tensor_of(values, "float32", 2, shape);
  for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; value++) {
    TRY(otr_engine_parameter_read(engine, 0, value, &tensor));
    fprintf(out, "%s value %" PRId32, name, value);
    print_tensor(out, &tensor);
  }
  TRY(otr_engine_finalize(engine));
  otr_engine_destroy(engine);
}

void chain(otr_comm* comm) {
  otr_engine* engines[2] = {make_engine(comm, front_config, "front"),
                            make_engine(comm, back_config, "back")};
  otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
  for (int window = 0; window < 2; window++) {
    float dy[4] = {1, -0.5f, 0.25f, 2}, dh[4], unscaled[4];
    if (window == 1 && rank == world - 1) dy[2] = INFINITY;
    otr_tensor at_back, at_front;
    otr_pass* back = begin_chained(engines[1], "back", dy, NULL, &at_back);
    /* The gradient of the input, here twice the output's with the rows exchanged. */
    float memory[4];
    otr_tensor here = fetch(&at_back, memory);
    for (int i = 0; i < 4; i++) dh[i] = 2 * ((float*)here.data)[(i + 2) % 4];
    int64_t shape[2] = {2, 2};
    otr_tensor input = tensor_of(dh, "float32", 2, shape);
    otr_tensor plain = tensor_of(unscaled, "float32", 2, shape);
    input = there(&input);
    plain = there(&plain);
    TRY(otr_pass_unscale(back, &input, &plain));
    fprintf(out, "chain input gradient");
    show(&plain);
    otr_call_info tag;
    TRY(otr_call_info_init(&tag, sizeof tag));
    TRY(otr_pass_get_tag(back, &tag));
    fprintf(out, "chain tag");
    print_double(out, tag.loss_scale);
    fprintf(out, " %" PRId32 " %" PRId32 "\n", tag.accumulation, tag.ranks);
    otr_pass* front = begin_chained(engines[0], "front", dh, &tag, &at_front);
    end_chained(front, &at_front);
    end_chained(back, &at_back);
    give_back();
    TRY(otr_step_many(engines, 2, NULL, reports));
    for (int i = 0; i < 2; i++) {
      fprintf(out, "chain %s step", i == 0 ? "front" : "back");
      print_report(out, &reports[i]);
    }
  }
  finish(engines[0], "chain front");
  finish(engines[1], "chain back");
}

/* ---- A training that is saved, and goes on at another stage and without offload ---- */
static const char* const saved_config =
    "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}},"
    " \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.125}}}";
static const char* const loaded_config =
    "{\"zero_optimization\": {\"stage\": 3}, \"gradient_clipping\": 0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.125}}}";

/* A step with a gradient that differs between windows and ranks. */
static void step_alone(otr_engine* engine, int window, const char* name) {
  float grad[4] = {1, -0.5f, 0.25f, 2};
  for (int i = 0; i < 4; i++) grad[i] *= (float)(window + 1) * (float)(2 * rank + 1);
  int64_t shape[2] = {2, 2};
  otr_tensor gradient = tensor_of(grad, "float32", 2, shape);
  gradient = there(&gradient);
  otr_pass* pass;
  TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
  end_chained(pass, &gradient);
  give_back();
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_engine_step(engine, &report));
  fprintf(out, "%s step %d", name, window);
  print_report(out, &report);
}

void save_and_load(otr_comm* comm, const char* directory) {
  otr_engine* engine = make_engine(comm, saved_config, "w");
  for (int window = 0; window < 2; window++) step_alone(engine, window, "saved");
  TRY(otr_engine_save(engine, directory, "two", NULL));
  step_alone(engine, 2, "saved");
  finish(engine, "saved");
  engine = make_engine(comm, loaded_config, "w");
  TRY(otr_engine_load(engine, directory, "two", NULL));
  step_alone(engine, 2, "loaded");
  finish(engine, "loaded");
}

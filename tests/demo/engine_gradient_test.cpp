// SPDX-License-Identifier: Apache-2.0
// The gradients that the engine receives, reduces and keeps are the slopes of the loss that its
// published weights give. With beta1 = 0 Adam's first moment is the gradient itself; with lr = 0
// nothing moves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "model.h"
#include "random.h"
#include "weights.h"
}
#include "outrigger.h"

namespace {

#define OK(call) ASSERT_EQ(call, OTR_OK) << otr_last_error_message()

class GptThroughTheEngine : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string json =
        R"({"optimizer": {"type": "AdamW", "params": {"lr": 0, "betas": [0, 0.999], "weight_decay": 0}},
            "gradient_clipping": 0, "zero_optimization": {"stage": )" +
        std::to_string(GetParam()) + "}}";
    OK(otr_context_create(nullptr, &context_));
    OK(otr_comm_create_self(context_, &comm_));
    OK(otr_engine_create(comm_, json.c_str(), &engine_));
    weights_ = weights_create(engine_);
    const gpt_config config{
        .vocab = 7, .context = 6, .width = 8, .heads = 2, .layers = 2, .batch = 3};
    model_ = gpt_create(&config, weights_, 5);
    OK(otr_engine_commit(engine_));
    weights_ready(weights_);
    OK(otr_engine_parameter_count(engine_, &count_));
    random_stream noise = random_start(7, 0, 0);
    for (int64_t id = 0; id < count_; id++) {
      std::vector<float> values;
      read(id, OTR_VALUE_MASTER, &values);
      for (float& value : values) value += static_cast<float>(0.3 * random_normal(&noise));
      write(id, values);
    }
    for (int i = 0; i < 18; i++) {
      inputs_.push_back(static_cast<int>(7 * random_uniform(&noise)));
      targets_.push_back(static_cast<int>(7 * random_uniform(&noise)));
    }
  }
  void TearDown() override {
    gpt_destroy(model_);
    weights_destroy(weights_);
    otr_engine_destroy(engine_);
    otr_comm_destroy(comm_);
    otr_context_destroy(context_);
  }

  // A tensor of the parameter's shape over `values`, which is resized to fit.
  void describe(int64_t id, std::vector<float>* values, otr_tensor* out) {
    int32_t ndim = 0;
    const int64_t* shape = nullptr;
    OK(otr_engine_parameter_shape(engine_, id, &ndim, &shape));
    shape_.assign(shape, shape + ndim);
    size_t elements = 1;
    for (const int64_t extent : shape_) elements *= static_cast<size_t>(extent);
    values->resize(elements);
    OK(otr_tensor_init(values->data(), "float32", ndim, shape_.data(), out));
  }
  void read(int64_t id, int32_t value, std::vector<float>* values) {
    otr_tensor tensor;
    describe(id, values, &tensor);
    OK(otr_engine_parameter_read(engine_, id, value, &tensor));
  }
  void write(int64_t id, std::vector<float> values) {
    otr_tensor tensor;
    describe(id, &values, &tensor);
    OK(otr_engine_parameter_write(engine_, id, OTR_VALUE_MASTER, &tensor));
  }

  double loss() {
    gpt_forward(model_, inputs_.data(), 3, 6);
    return gpt_loss(model_, targets_.data());
  }

  void backward_and_step(otr_step_report* report) {
    loss();
    int64_t shape[] = {3, 6, 7};
    otr_tensor d_logits, scaled;
    otr_pass* pass = nullptr;
    OK(otr_tensor_init(model_->d_logits, "float32", 3, shape, &d_logits));
    OK(otr_pass_begin(engine_, &d_logits, 1, nullptr, &pass));
    OK(otr_pass_get_output_grad(pass, 0, &scaled));
    gpt_backward(model_, pass, static_cast<const real*>(scaled.data));
    OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    OK(otr_engine_step(engine_, report));
  }

  otr_context* context_ = nullptr;
  otr_comm* comm_ = nullptr;
  otr_engine* engine_ = nullptr;
  weight_store* weights_ = nullptr;
  gpt* model_ = nullptr;
  int64_t count_ = 0;
  std::vector<int64_t> shape_;
  std::vector<int> inputs_, targets_;
};

TEST_P(GptThroughTheEngine, GradientsAreTheSlopesOfTheLoss) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  backward_and_step(&report);
  ASSERT_EQ(report.outcome, OTR_STEP_APPLIED);
  double squares = 0;
  for (int64_t id = 0; id < count_; id++) {
    const char* name = nullptr;
    OK(otr_engine_parameter_name(engine_, id, &name));
    std::vector<float> gradient, values;
    read(id, OTR_VALUE_EXP_AVG, &gradient);
    read(id, OTR_VALUE_MASTER, &values);
    double length = 0;
    for (const float g : gradient) length += static_cast<double>(g) * static_cast<double>(g);
    squares += length;
    length = std::sqrt(length);
    ASSERT_GT(length, 1e-3) << name;

    // Along the gradient the loss must rise by its length, in float32's accuracy.
    const double h = 1e-2;
    const auto loss_at = [&](double distance) {
      std::vector<float> moved = values;
      for (size_t i = 0; i < moved.size(); i++) {
        moved[i] += static_cast<float>(distance * static_cast<double>(gradient[i]) / length);
      }
      write(id, moved);
      return loss();
    };
    const double slope =
        (8 * (loss_at(h) - loss_at(-h)) - loss_at(2 * h) + loss_at(-2 * h)) / (12 * h);
    write(id, values);
    EXPECT_NEAR(slope, length, 2e-3 * length + 2e-5) << name;
  }
  EXPECT_NEAR(report.grad_norm, std::sqrt(squares), 1e-5 * report.grad_norm);
}

INSTANTIATE_TEST_SUITE_P(Stages, GptThroughTheEngine, testing::Values(0, 1, 2, 3));

}  // namespace

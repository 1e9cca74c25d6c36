// SPDX-License-Identifier: Apache-2.0
// The example model's hand-written backward against finite differences, element by element, in
// float64.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "layers.h"
#include "model.h"
#include "random.h"
#include "weights_float64.h"
}

namespace {

static_assert(sizeof(real) == 8, "compile with GPT_FLOAT64");

class GptGradient : public testing::Test {
 protected:
  void SetUp() override {
    weights_ = weights_create(nullptr);
    const gpt_config config{
        .vocab = 7, .context = 6, .width = 8, .heads = 2, .layers = 2, .batch = 3};
    model_ = gpt_create(&config, weights_, 5);
    // Away from the initial state, where zero biases and unit gains would hide mistakes.
    random_stream noise = random_start(7, 0, 0);
    for (int64_t id = 0; id < weights_count(weights_); id++) {
      stored_parameter* p = weights_at(weights_, id);
      for (int64_t i = 0; i < p->elements; i++) p->value[i] += 0.3 * random_normal(&noise);
    }
    for (int i = 0; i < sequences_ * length_; i++) {
      inputs_.push_back(static_cast<int>(7 * random_uniform(&noise)));
      targets_.push_back(static_cast<int>(7 * random_uniform(&noise)));
    }
  }
  void TearDown() override {
    gpt_destroy(model_);
    weights_destroy(weights_);
  }

  double loss() {
    gpt_forward(model_, inputs_.data(), sequences_, length_);
    return gpt_loss(model_, targets_.data());
  }

  // Fourth order: its error is far below the tolerance.
  double finite_difference(real* element) {
    const double h = 1e-3, origin = *element;
    const auto at = [&](double x) {
      *element = x;
      return loss();
    };
    const double slope =
        (8 * (at(origin + h) - at(origin - h)) - at(origin + 2 * h) + at(origin - 2 * h)) /
        (12 * h);
    *element = origin;
    return slope;
  }

  const int sequences_ = 2, length_ = 5;  // smaller than batch and context, on purpose
  weight_store* weights_ = nullptr;
  gpt* model_ = nullptr;
  std::vector<int> inputs_, targets_;
};

TEST_F(GptGradient, EqualsFiniteDifferencesInEveryElement) {
  loss();
  gpt_backward(model_, nullptr, model_->d_logits);
  int64_t checked = 0;
  for (int64_t id = 0; id < weights_count(weights_); id++) {
    stored_parameter* p = weights_at(weights_, id);
    double largest = 0;
    for (int64_t i = 0; i < p->elements; i++) {
      const double expected = finite_difference(&p->value[i]);
      largest = std::fmax(largest, std::fabs(expected));
      ASSERT_NEAR(p->gradient[i], expected, 1e-9 + 1e-7 * std::fabs(expected))
          << p->name << "[" << i << "]";
      checked++;
    }
    EXPECT_GT(largest, 1e-4) << p->name << ": a gradient of zero would prove nothing";
  }
  EXPECT_EQ(checked, weights_total(weights_));
}

TEST_F(GptGradient, IsLinearInTheOutputGradient) {
  loss();
  gpt_backward(model_, nullptr, model_->d_logits);
  std::vector<std::vector<real>> once;
  for (int64_t id = 0; id < weights_count(weights_); id++) {
    const stored_parameter* p = weights_at(weights_, id);
    once.emplace_back(p->gradient, p->gradient + p->elements);
  }
  weights_clear(weights_);
  const int count = sequences_ * length_ * model_->config.vocab;
  std::vector<real> scaled(model_->d_logits, model_->d_logits + count);
  for (real& x : scaled) x *= 1024;  // as a loss scale would
  gpt_backward(model_, nullptr, scaled.data());
  for (int64_t id = 0; id < weights_count(weights_); id++) {
    const stored_parameter* p = weights_at(weights_, id);
    for (int64_t i = 0; i < p->elements; i++) {
      ASSERT_EQ(p->gradient[i], 1024 * once[static_cast<size_t>(id)][static_cast<size_t>(i)])
          << p->name;
    }
  }
}

TEST_F(GptGradient, HandsOverWhatItDeclaredAndReleasesWhatItAcquired) {
  loss();
  gpt_backward(model_, nullptr, model_->d_logits);
  for (int64_t id = 0; id < weights_count(weights_); id++) {
    const stored_parameter* p = weights_at(weights_, id);
    EXPECT_EQ(p->handed_over, p->contributions) << p->name;
    EXPECT_EQ(p->acquired, 0) << p->name;
    EXPECT_EQ(p->places, 0) << p->name;
  }
  EXPECT_EQ(weights_at(weights_, 0)->contributions, 2) << "the embedding is also the output layer";
}

TEST_F(GptGradient, AttentionLooksAtThePastOnly) {
  loss();
  const int vocab = model_->config.vocab, last = length_ - 1;
  const std::vector<real> before(model_->logits, model_->logits + length_ * vocab);
  inputs_[static_cast<size_t>(last)] = (inputs_[static_cast<size_t>(last)] + 1) % vocab;
  loss();
  for (int i = 0; i < last * vocab; i++)
    EXPECT_EQ(model_->logits[i], before[static_cast<size_t>(i)]);
  EXPECT_NE(model_->logits[last * vocab], before[static_cast<size_t>(last * vocab)]);
}

}  // namespace

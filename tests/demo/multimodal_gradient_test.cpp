// SPDX-License-Identifier: Apache-2.0
// The example of two groups: every gradient that its two models compute, compiled with double,
// beside finite differences. The language model's gradient of the embedding goes into the vision
// model's backward, as the message takes it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

extern "C" {
#include "language.h"
#include "vision.h"
}

namespace outrigger::testing {
namespace {

constexpr int kStrips = 3, kLength = 2;
constexpr int kPatches = kLength * PATCHES_OF_DIGIT, kInStrip = kPatches * WIDTH;

class Multimodal : public ::testing::Test {
 protected:
  Multimodal() {
    vision_declare(&vision_weights_, kLength, 4);
    language_declare(&language_weights_, kLength, 5);
    vision_ = vision_create(&pool_, kStrips, kLength);
    language_ = language_create(&pool_, kStrips, kLength);
    digits digits = digits_open(nullptr, 1);
    digits_strips(&digits, 0, 0, kStrips, kLength, vision_.pixels, words_.data());
    language_say(&language_, words_.data());
    for (int s = 0; s < kStrips; s++) {
      places_.push_back(embedding_.data() + static_cast<ptrdiff_t>(s) * kInStrip);
      grads_.push_back(d_embedding_.data() + static_cast<ptrdiff_t>(s) * kInStrip);
      seen_.push_back(places_.back());
      d_seen_.push_back(grads_.back());
    }
  }

  ~Multimodal() override {
    weights_destroy(&vision_weights_);
    weights_destroy(&language_weights_);
    language_destroy(&language_);
    pool_destroy(&pool_);
  }

  double loss() {
    vision_forward(&vision_, &vision_weights_, places_.data());
    language_forward(&language_, &language_weights_, seen_.data());
    return language_loss(&language_, words_.data(), kFactor, d_scores_.data());
  }

  void backward() {
    weights_clear_grads(&vision_weights_);
    weights_clear_grads(&language_weights_);
    std::fill(d_embedding_.begin(), d_embedding_.end(), 0.0);
    language_backward(&language_, &language_weights_, d_scores_.data(), seen_.data(),
                      grads_.data());
    vision_backward(&vision_, &vision_weights_, d_seen_.data());
  }

  // Every `stride`-th element of every weight, the first and the last among them.
  void compare(weights& w, int stride) {
    constexpr double kStep = 1e-5;
    for (int i = 0; i < w.count; i++) {
      const std::vector<double> grad(w.grad[i], w.grad[i] + weights_elements(&w, i));
      double furthest = 0, largest = 0;
      for (size_t k = 0; k < grad.size(); k += static_cast<size_t>(stride)) {
        double& value = w.initial[i][k];
        const double kept = value;
        value = kept + kStep;
        const double up = loss();
        value = kept - kStep;
        const double down = loss();
        value = kept;
        const double expected = kFactor * (up - down) / (2 * kStep);
        furthest = std::max(furthest, std::abs(expected - grad[k]));
        largest = std::max(largest, std::abs(expected));
      }
      EXPECT_LT(furthest, 1e-8) << w.name[i];
      EXPECT_GT(largest, 1e-6) << w.name[i] << " has no gradient, so this compares nothing";
    }
  }

  static constexpr double kFactor = 3;  // of the loss's gradient: that of ranks with more strips
  weights vision_weights_{}, language_weights_{};
  pool pool_{};
  vision vision_{};
  language language_{};
  std::vector<int> words_ = std::vector<int>(kStrips * kLength);
  std::vector<double> embedding_ = std::vector<double>(kStrips * kInStrip);
  std::vector<double> d_embedding_ = embedding_;
  std::vector<double> d_scores_ = std::vector<double>(kStrips * (kLength + 1) * WORDS);
  std::vector<double*> places_, grads_;
  std::vector<const double*> seen_, d_seen_;
};

TEST_F(Multimodal, GradientsAreThoseOfFiniteDifferences) {
  loss();
  backward();
  compare(vision_weights_, 23);
  compare(language_weights_, 23);
}

TEST_F(Multimodal, AMicroBatchAddsToTheOneBefore) {
  loss();
  backward();
  const std::vector<double> once(
      language_weights_.grad[0],
      language_weights_.grad[0] + weights_elements(&language_weights_, 0));
  language_backward(&language_, &language_weights_, d_scores_.data(), seen_.data(), grads_.data());
  for (size_t i = 0; i < once.size(); i++) {
    EXPECT_DOUBLE_EQ(language_weights_.grad[0][i], 2 * once[i]);
  }
}

}  // namespace
}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "core/config/relations.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kTrain = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kSteps = "gradient_accumulation_steps";

// total / (factor x world), if that is a whole number.
int64_t divide(const Values& values, int64_t total, int64_t factor, std::string_view factor_key,
               int32_t world) {
  const int64_t divisor = factor * world;  // both below 2^31
  if (total % divisor == 0) return total / divisor;
  fail(OTR_E_CONFIG, "{} is not a multiple of {} x world size {} = {}; choose a multiple of {}",
       values.lead(kTrain), values.name(factor_key), world, divisor, divisor);
}

}  // namespace

void resolve_batch(Values& values, int32_t world) {
  const auto get = [&](std::string_view path) {
    return values.is_null(path) ? int64_t{0} : values.count(path);
  };
  int64_t train = get(kTrain), micro = get(kMicro), steps = get(kSteps);
  const auto derive = [&](std::string_view path, int64_t value) {
    values.set(path, value, Origin::derived);
    return value;
  };
  if (train == 0 && micro == 0) {  // a framework that does not tell its batch
    if (steps == 0) values.set(kSteps, 1, Origin::fallback);
    return;
  }
  if (train != 0 && micro != 0 && steps == 0) {
    steps = derive(kSteps, divide(values, train, micro, kMicro, world));
  } else if (train != 0 && micro == 0) {
    if (steps == 0) steps = derive(kSteps, 1);
    micro = derive(kMicro, divide(values, train, steps, kSteps, world));
  } else if (train == 0) {
    if (steps == 0) steps = derive(kSteps, 1);
    if (micro * steps > INT32_MAX / world) {
      fail(OTR_E_CONFIG, "{} x {} x world size {} is above {}; choose smaller batches",
           values.lead(kMicro), values.name(kSteps), world, INT32_MAX);
    }
    train = derive(kTrain, micro * steps * world);
  }
  if (micro * steps > INT64_MAX / world || micro * steps * world != train) {
    fail(OTR_E_CONFIG,
         "{} is not {} x {} x world size {} = {}; change one of the three, or leave one out to "
         "have it derived",
         values.lead(kTrain), values.name(kMicro), values.name(kSteps), world,
         static_cast<double>(micro) * static_cast<double>(steps) * world);
  }
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
#include "composition.h"

namespace otr_test {

Setup draw_setup(Random& random, int32_t world, double clip) {
  Setup s;
  s.accumulation = random.from(1, 3);
  s.counted = random.one_in(3);
  s.by_caller = random.one_in(3);
  s.own_group = world > 1 && random.one_in(4);
  s.clip = clip;
  s.twice = random.one_in(2);
  s.alias = s.twice && random.one_in(2);
  s.declared = s.twice && !s.alias && random.one_in(2);
  const int32_t stage = random.from(0, 3);
  s.sum = stage < 3 && random.one_in(5);
  std::string precision;
  const char* const scales[] = {R"("loss_scale": 256)", R"("loss_scale": 65536)",
                                R"("loss_scale": 24)",
                                R"("initial_scale_power": 8, "loss_scale_window": 1)"};
  const double largest_scales[] = {256, 65536, 24, 4096};
  const auto scaled = static_cast<size_t>(random.below(4));
  switch (random.below(4)) {
    case 0:
      break;
    case 1:
      precision = R"("torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {)" +
                  std::string(scales[scaled]) + "}, ";
      s.scale = largest_scales[scaled];
      break;
    case 2:
      precision = R"("fp16": {"enabled": true, )" + std::string(scales[scaled]) +
                  R"(}, "data_types": {"grad_accum_dtype": "fp32"}, )";
      s.scale = largest_scales[scaled];
      s.rounding = 0x1p-10;
      break;
    default:
      precision = R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, )";
      s.rounding = 0x1p-7;
  }
  s.config = R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": )" +
             std::to_string(clip) + R"(, "gradient_accumulation_steps": )" +
             std::to_string(s.accumulation) + R"(, "gradient_allreduce_op": ")" +
             (s.sum ? "sum" : "mean") + R"(", "zero_optimization": {"stage": )" +
             std::to_string(stage) + R"(, "reduce_bucket_size": )" +
             std::to_string(random.one_in(2) ? 256 : 1 << 20) + "}, " + precision +
             R"("outrigger": {"reduction_order": ")" +
             (random.one_in(2) ? "micro_step" : "boundary") + R"(", "accumulation_divisor": ")" +
             (s.counted ? "counted" : "configured") + R"("}})";
  return s;
}

}  // namespace otr_test

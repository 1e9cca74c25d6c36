// SPDX-License-Identifier: Apache-2.0
#include "composition.h"

namespace otr_test {

namespace {

const char* dtype_of(const otr_tensor& tensor) {
  return tensor.dtype.code == OTR_DTYPE_BFLOAT ? "bfloat16"
         : tensor.dtype.bits == 16             ? "float16"
         : tensor.dtype.bits == 64             ? "float64"
                                               : "float32";
}
Shape shape_of(const otr_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

}  // namespace

Values Place::values(const otr_tensor& there) const {
  if (!on_device()) return values_of(there);
  Tensor here = Tensor::filled(shape_of(there), 0, dtype_of(there));
  EXPECT_OK(otr_tensor_copy(context, &here, &there));
  return here.values();
}

void Place::fill(const otr_tensor& there, const Values& values) const {
  const Tensor here(shape_of(there), values, dtype_of(there));
  EXPECT_OK(otr_tensor_copy(context, &there, &here));
}

Moved::Moved(const Place& place, const Tensor& tensor) : place_(place), tensor_(tensor.get()) {
  if (!place.on_device()) return;
  tensor_.device = place.device;
  const auto bytes = static_cast<size_t>(count_of(shape_of(tensor_))) * (tensor_.dtype.bits / 8U);
  EXPECT_OK(otr_device_allocate(place.context, place.device.device_type, place.device.device_id,
                                bytes, &tensor_.data));
  EXPECT_OK(otr_tensor_copy(place.context, &tensor_, &tensor));
}

Moved::~Moved() {
  if (!place_.on_device()) return;
  EXPECT_OK(otr_device_free(place_.context, place_.device.device_type, place_.device.device_id,
                            tensor_.data));
}

Board::Board(otr_comm* comm) {
  otr_comm* made = nullptr;
  EXPECT_OK(otr_comm_duplicate(comm, &made));
  comm_.reset(made);
  EXPECT_OK(otr_comm_size(made, &world_));
}

std::vector<Board::Sums> Board::exchange(const Sums& mine) const {
  Values flat;
  for (const auto& engine : mine) {
    for (const Sum& sum : engine) {
      flat.insert(flat.end(), sum.mean.begin(), sum.mean.end());
      flat.push_back(sum.bound);
    }
  }
  Values all(flat.size() * static_cast<size_t>(world_));
  EXPECT_OK(
      otr_comm_all_gather(comm_.get(), flat.data(), flat.size() * sizeof(double), all.data()));
  std::vector<Sums> ranks(static_cast<size_t>(world_), mine);
  size_t at = 0;
  for (Sums& rank : ranks) {
    for (auto& engine : rank) {
      for (Sum& sum : engine) {
        for (double& x : sum.mean) x = all[at++];
        sum.bound = all[at++];
      }
    }
  }
  return ranks;
}

Setup draw_setup(Random& random, int32_t world, double clip, bool on_device) {
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
  s.offload = on_device && stage > 0 && random.one_in(2);
  s.offload_all = s.offload && stage == 3 && random.one_in(2);
  // Of four ranks: all of them, pairs, or each alone.
  const int32_t drawn = world == 4 ? random.from(0, 2) : 0;
  const int32_t shard = s.own_group || (on_device && !s.offload) ? 0 : drawn;
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
  s.config =
      R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": )" +
      std::to_string(clip) + R"(, "gradient_accumulation_steps": )" +
      std::to_string(s.accumulation) + R"(, "gradient_allreduce_op": ")" +
      (s.sum ? "sum" : "mean") + R"(", "zero_optimization": {"stage": )" + std::to_string(stage) +
      R"(, "reduce_bucket_size": )" + std::to_string(random.one_in(2) ? 256 : 1 << 20) +
      (s.offload ? R"(, "offload_optimizer": {"device": "cpu"})" : "") +
      (s.offload_all ? R"(, "offload_param": {"device": "cpu"})" : "") + "}, " + precision +
      R"("outrigger": {"reduction_order": ")" + (random.one_in(2) ? "micro_step" : "boundary") +
      R"(", "accumulation_divisor": ")" + (s.counted ? "counted" : "configured") +
      R"(", "share_parameters": )" + (world == 4 && random.one_in(2) ? "false" : "true") +
      R"(, "mesh": {"shard": )" + std::to_string(shard) + R"(, "states": ")" +
      (random.one_in(2) ? "all" : "group") + "\"}}}";
  return s;
}

}  // namespace otr_test

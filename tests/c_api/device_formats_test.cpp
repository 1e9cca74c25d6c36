// SPDX-License-Identifier: Apache-2.0
// Formats of states that have two arrays, on a device: what is written there is read from there,
// and both are what a CPU engine has. What an update makes of them is the matrix's business
// (tests/engine/matrix_test.cpp).
#include "device_support.h"

namespace {

using namespace otr_test;

std::string formats(int32_t stage, const char* master) {
  return R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": )" + std::to_string(stage) +
         R"(, "reduce_bucket_size": 300}, "outrigger": {"states": {"master": {"format": ")" +
         master + R"("}, "exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}}})";
}

// Every third one in the middle of two bfloat16, where a split master is rounded another way.
Values halfway(int64_t count) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    const double step = 1.0 / 128;
    values.push_back(1 + static_cast<double>(i % 50) * step + (i % 3 == 0 ? step / 2 : step / 8));
  }
  return values;
}

std::vector<Values> written_and_read(otr_comm* comm, const std::string& config, bool on_device,
                                     int32_t rank) {
  Engine engine(comm, config);
  if (on_device) {
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
  }
  const Shape shapes[] = {{700}, {5, 60}};
  for (size_t id = 0; id < 2; ++id) {
    engine.add(id == 0 ? "a" : "b", shapes[id], dyadic(count_of(shapes[id]), 3));
  }
  engine.commit();
  for (const int64_t id : {0, 1}) {
    const Shape& shape = shapes[static_cast<size_t>(id)];
    Values moments = dyadic(count_of(shape), 5 + id), squares;
    for (size_t i = 0; i < moments.size(); ++i) {
      moments[i] *= i < 256 ? 1 : 1024;  // another scale in each block
      squares.push_back(moments[i] * moments[i]);
    }
    const Tensor master(shape, halfway(count_of(shape))), first(shape, moments),
        second(shape, squares);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), id, OTR_VALUE_MASTER, &master));
    EXPECT_OK(otr_engine_parameter_write(engine.get(), id, OTR_VALUE_EXP_AVG, &first));
    EXPECT_OK(otr_engine_parameter_write(engine.get(), id, OTR_VALUE_EXP_AVG_SQ, &second));
  }
  std::vector<Values> all = engine.everything();
  EXPECT_OK(otr_engine_finalize(engine.get()));
  return all;
}

TEST(DeviceFormats, ValuesAreWrittenThereAsOnTheHost) {
  for (const int32_t world : {1, 2}) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (const char* master : {"split", "float32"}) {
        SCOPED_TRACE(std::string(master) + " at stage " + std::to_string(stage) + " on " +
                     std::to_string(world));
        run_ranks(
            world,
            [&](int32_t rank, otr_comm* comm) {
              const std::string config = formats(stage, master);
              const auto there = written_and_read(comm, config, true, rank);
              EXPECT_EQ(there, written_and_read(comm, config, false, rank));
              EXPECT_EQ(there.at(0), halfway(700)) << "the master is exactly what was written";
            },
            20, "simulated");
      }
    }
  }
}

// A host that acquires a layer in float32 has one launch for all of its parameters.
TEST(DeviceFormats, CopiesOfOneAcquireAreOneLaunch) {
  DeviceSolo solo(formats(1, "split"));
  std::vector<int64_t> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(solo.engine.add(("p" + std::to_string(i)).c_str(), {i, 7}, halfway(7 * i)));
  }
  solo.engine.commit();
  ids.push_back(ids[2]);
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = OTR_ACQUIRE_FLOAT32;
  const auto kernels = [&] {
    double value = 0;
    EXPECT_OK(otr_device_get_value(solo.context.get(), kSimulated, 0, "kernels", &value));
    return value;
  };
  std::vector<otr_tensor> out(ids.size());
  const double before = kernels();
  ASSERT_OK(otr_engine_acquire(solo.engine.get(), ids.data(), 6, &info, out.data()));
  EXPECT_EQ(kernels() - before, 1);
  for (int i = 1; i < 5; ++i) {
    const Values published = solo.engine.read(i, OTR_VALUE_PUBLISHED);
    EXPECT_EQ(values_there(solo.context.get(), out[static_cast<size_t>(i)]), published);
  }
  EXPECT_EQ(out[5].data, out[2].data);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// A device's parameters in host memory while the caller's streams use them: writes, loads and what
// there is no memory for come after what a stream was given, and take nothing from it. The
// simulated device ends with an error where two streams touch the same bytes unordered.
#include <functional>
#include <string>
#include <vector>

#include "checkpoints.h"
#include "device_support.h"
#include "memory.h"
#include "snapshots.h"

namespace {

using namespace otr_test;

constexpr int64_t kElements = 1000;
constexpr const char* kBf16 = R"("bf16": {"enabled": true}, )";

// more: members at the top level; own: of "outrigger".
std::string config_with(const std::string& more = "", const std::string& own = "",
                        int64_t live = 1000000) {
  return "{" + more + R"("optimizer": {"type": "SGD", "params": {"lr": 0.5}},
      "gradient_clipping": 0, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
      "offload_param": {"device": "cpu"}, "stage3_max_live_parameters": )" +
         std::to_string(live) + R"(}, "outrigger": {"reduction_order": "micro_step")" + own + "}}";
}

void set_on_device(otr_context* context, int32_t rank, const char* name, double value) {
  EXPECT_OK(otr_device_set_value(context, kSimulated, rank, name, value));
}

// A stream of the caller's with kernels in it that take their time.
class Kernels {
 public:
  Kernels(otr_context* context, int32_t rank) : context_(context), rank_(rank) {
    EXPECT_EQ(table().open(rank, &device_), OTR_OK);
    EXPECT_EQ(table().stream_create(device_, &stream_), OTR_OK);
    EXPECT_EQ(table().allocate(device_, kBytes, OTR_PLUGIN_NO_STREAM, &sink_), OTR_OK);
    EXPECT_OK(otr_call_info_init(&info_, sizeof info_));
    info_.stream = stream_;
  }
  ~Kernels() {
    EXPECT_EQ(table().synchronize(device_), OTR_OK);
    table().release(device_, sink_, OTR_PLUGIN_NO_STREAM);
    table().stream_destroy(device_, stream_);
    table().close(device_);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Acquires it in the stream, reads it there, releases it.
  void use(const Engine& engine, int64_t id) {
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, &info_, &weight));
    read(weight);
    ASSERT_OK(otr_engine_release(engine.get(), &id, 1, &info_));
  }
  // A kernel that reads the tensor; slow: and ends late.
  void read(const otr_tensor& tensor, bool slow = true) {
    if (slow) set_on_device(context_, rank_, "launch_latency", 0.03);
    const size_t bytes = static_cast<size_t>(kElements) * tensor.dtype.bits / 8;
    EXPECT_EQ(table().copy(device_, sink_, tensor.data, bytes, OTR_PLUGIN_ON_DEVICE, stream_),
              OTR_OK);
    if (slow) set_on_device(context_, rank_, "launch_latency", 0);
  }
  // What the last kernel has read, of float32.
  Values values() {
    EXPECT_EQ(table().synchronize(device_), OTR_OK);
    const Tensor here = Tensor::filled({kElements}, 0);
    otr_tensor there = *&here;
    there.device = simulated(rank_);
    there.data = sink_;
    EXPECT_OK(otr_tensor_copy(context_, &here, &there));
    return here.values();
  }
  [[nodiscard]] const otr_call_info* info() const { return &info_; }

 private:
  static const otr_device_plugin& table() { return simulated_table(); }
  static constexpr size_t kBytes = kElements * 4;
  otr_context* context_;
  int32_t rank_;
  otr_plugin_device* device_ = nullptr;
  uint64_t stream_ = 0;
  void* sink_ = nullptr;
  otr_call_info info_{};
};

void declare_ones(Engine& engine, int32_t rank, int64_t parameters = 5) {
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
  for (int64_t i = 0; i < parameters; ++i) {
    engine.add(("p" + std::to_string(i)).c_str(), {kElements}, Values(kElements, 1));
  }
  engine.commit();
}

struct Single {
  explicit Single(const std::string& config)
      : context(device_context()), comm(make_self(context.get())), engine(comm.get(), config) {
    declare_ones(engine, 0);
  }
  [[nodiscard]] double brought() const {
    double bytes = -1;
    EXPECT_OK(otr_device_get_value(context.get(), kSimulated, 0, "bytes_to_device", &bytes));
    return bytes;
  }
  Owned<otr_context> context;
  Owned<otr_comm> comm;
  Engine engine;
};

TEST(DeviceParameterUse, AFailedAcquireKeepsWhatKernelsRead) {
  const Single single(config_with());
  Kernels kernels(single.context.get(), 0);
  kernels.use(single.engine, 0);
  const double before = single.brought();
  set_on_device(single.context.get(), 0, "fail_allocation", 1);
  const int64_t two[] = {0, 1};
  otr_tensor weights[2];
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY,
               otr_engine_acquire(single.engine.get(), two, 2, kernels.info(), weights), "bytes");
  kernels.use(single.engine, 0);
  EXPECT_EQ(single.brought(), before) << "it is there still";
  EXPECT_EQ(kernels.values(), Values(kElements, 1));
}

// Held or lingering, as it is or in float32, while a kernel reads it.
TEST(DeviceParameterUse, AWriteComesAfterWhatStreamsRead) {
  for (const char* precision : {"", kBf16}) {
    for (const bool holds : {false, true}) {
      for (const bool is_local : {false, true}) {
        SCOPED_TRACE(std::string(precision) + (holds ? " held" : "") + (is_local ? " local" : ""));
        const Single single(config_with(precision));
        otr_engine* const engine = single.engine.get();
        Kernels kernels(single.context.get(), 0);
        otr_call_info as_float32 = *kernels.info();
        as_float32.flags = OTR_ACQUIRE_FLOAT32;
        const int64_t id = 0;
        otr_tensor weight;
        ASSERT_OK(otr_engine_acquire(engine, &id, 1, &as_float32, &weight));
        kernels.read(weight);
        if (!holds) {
          ASSERT_OK(otr_engine_release(engine, &id, 1, &as_float32));
        }
        const Tensor four = Tensor::filled({kElements}, 4);
        ASSERT_OK(is_local ? otr_engine_local_write(engine, id, OTR_VALUE_MASTER, &four)
                           : otr_engine_parameter_write(engine, id, OTR_VALUE_MASTER, &four));
        EXPECT_EQ(kernels.values(), Values(kElements, 1));
        otr_tensor again;
        as_float32.stream = 0;  // in which values_there reads
        ASSERT_OK(otr_engine_acquire(engine, &id, 1, &as_float32, &again));
        EXPECT_EQ(values_there(single.context.get(), again), Values(kElements, 4));
        if (holds) {
          EXPECT_EQ(again.data, weight.data) << "which follows";
        }
      }
    }
  }
}

// The other rank's device has not copied the old values yet when this one comes to its part.
void expect_old(bool share,
                const std::function<void(const Engine&, const Place&, Snapshot&)>& write) {
  const Place place;
  const auto context = device_context();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_with("", share ? "" : R"(, "share_parameters": false)"));
    declare_ones(engine, rank);
    Snapshot snapshot;
    EXPECT_OK(otr_engine_save(engine.get(), place.text(), "one", nullptr));
    EXPECT_OK(otr_engine_snapshot(engine.get(), snapshot.get(), nullptr));
    const Tensor two = Tensor::filled({kElements}, 2);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &two));
    EXPECT_OK(otr_comm_barrier(comm));
    Kernels kernels(context.get(), rank);
    if (rank == 1) set_on_device(context.get(), rank, "copy_latency", 0.1);
    if (rank == 1 || !share) kernels.use(engine, 0);
    write(engine, place, snapshot);
    set_on_device(context.get(), rank, "copy_latency", 0);
    if (rank == 1) {
      EXPECT_EQ(kernels.values(), Values(kElements, 2));
    }
    EXPECT_EQ(engine.read(0, OTR_VALUE_PUBLISHED), Values(kElements, 1));
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

TEST(DeviceParameterUse, ALoadComesAfterWhatOtherRanksCopy) {
  for (const bool share : {true, false}) {
    SCOPED_TRACE(share);
    expect_old(share, [](const Engine& engine, const Place& place, Snapshot&) {
      EXPECT_OK(otr_engine_load(engine.get(), place.text(), "one", nullptr));
    });
    expect_old(share, [](const Engine& engine, const Place&, Snapshot& snapshot) {
      otr_snapshot* one = snapshot.get();
      EXPECT_OK(otr_engine_restore(engine.get(), &one, 1));
    });
    expect_old(share, [](const Engine& engine, const Place&, Snapshot&) {
      const Tensor one = Tensor::filled({kElements}, 1);
      EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &one));
    });
    expect_old(share, [](const Engine& engine, const Place&, Snapshot&) {
      const Tensor one = Tensor::filled({kElements}, 1);
      const int64_t id = 0;
      EXPECT_OK(otr_engine_set_initial(engine.get(), &id, 1, &one));
    });
  }
}

// A prefetch is an optimization only: without memory it does nothing, and keeps what is needed
// sooner.
TEST(DeviceParameterUse, APrefetchWithoutMemoryDoesNothing) {
  const Single single(config_with());
  const int64_t ids[] = {0, 1, 2, 3};
  EXPECT_OK(otr_engine_prefetch(single.engine.get(), ids, 2, nullptr));
  const double before = single.brought();
  set_on_device(single.context.get(), 0, "fail_allocation", 1);
  EXPECT_OK(otr_engine_prefetch(single.engine.get(), &ids[2], 2, nullptr));
  EXPECT_EQ(single.brought() - before, 4 * kElements) << "there is memory for 3 again";
  Kernels kernels(single.context.get(), 0);
  for (const int64_t id : {0, 1, 3}) kernels.use(single.engine, id);
  EXPECT_EQ(single.brought() - before, 4 * kElements);
  kernels.use(single.engine, 2);
  EXPECT_EQ(single.brought() - before, 8 * kElements);
  EXPECT_EQ(resident_bytes(single.engine, kSimulated, "acquired copies"), 4 * 4 * kElements);
}

TEST(DeviceParameterUse, AFloat32CopyTakesTheRoomOfWhatLingers) {
  const Single single(config_with(kBf16));
  Kernels kernels(single.context.get(), 0);
  for (int64_t id = 0; id < 4; ++id) kernels.use(single.engine, id);
  set_on_device(single.context.get(), 0, "fail_allocation", 2);
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = OTR_ACQUIRE_FLOAT32;
  const int64_t id = 4;
  otr_tensor weight;
  ASSERT_OK(otr_engine_acquire(single.engine.get(), &id, 1, &info, &weight));
  EXPECT_EQ(values_there(single.context.get(), weight), Values(kElements, 1));
  EXPECT_EQ(resident_bytes(single.engine, kSimulated, "acquired copies"),
            (3 + 1) * 2 * kElements + 4 * kElements);
}

// In slices frozen parameters are whole on each rank, and so are copied, and stay.
TEST(DeviceParameterUse, TheEstimateCountsFrozenParametersThatStay) {
  const auto context = device_context();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_with("", R"(, "share_parameters": false)", 3 * kElements));
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
    for (int64_t i = 0; i < 6; ++i) {
      otr_param_options options = param_options();
      options.trainable = i < 2 ? 1 : 0;
      engine.add(("p" + std::to_string(i)).c_str(), {kElements}, Values(kElements, 1), &options);
    }
    engine.commit();
    otr_estimate_options options = options_for(2, rank);
    options.acquired_elements = kElements;
    options.separate_memory = 1;
    const auto peak = [&](const std::vector<otr_memory_entry>& entries) {
      int64_t bytes = -1;
      for (const otr_memory_entry& e : entries) {
        const bool is_it = std::string_view(e.purpose) == "acquired copies";
        if (is_it && e.device_type == kSimulated) bytes = e.peak_bytes;
      }
      return bytes;
    };
    const int64_t expected = peak(estimate(engine.get(), options));
    EXPECT_EQ(expected, (1 + 3) * 4 * kElements);
    Kernels kernels(context.get(), rank);
    for (int64_t id = 5; id >= 0; --id) kernels.use(engine, id);
    EXPECT_EQ(peak(ledger(engine.get())), expected);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

}  // namespace

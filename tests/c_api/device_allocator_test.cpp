// SPDX-License-Identifier: Apache-2.0
// A device's memory from an allocator of the host's: all of it, in the order of the streams, with
// the same values; what it refuses, and what is refused of it.
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "device_support.h"

namespace {

using namespace otr_test;

// The host's: over the plugin, as a framework's is over a driver.
class Pool {
 public:
  Pool() { EXPECT_EQ(simulated_table().open(0, &device_), OTR_OK); }
  ~Pool() { simulated_table().close(device_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  otr_device_allocator table() {
    otr_device_allocator table;
    EXPECT_OK(otr_device_allocator_init(&table, sizeof table));
    table.user_data = this;
    table.allocate = [](void* pool, size_t bytes, uint64_t stream, void** out) {
      *out = static_cast<Pool*>(pool)->take(bytes, stream);
      return *out == nullptr ? 1 : 0;
    };
    table.release = [](void* pool, void* data, size_t bytes, uint64_t stream) {
      static_cast<Pool*>(pool)->give(data, bytes, stream);
    };
    return table;
  }

  int64_t calls = 0, live = 0;
  int64_t refuse = 0;  // the n-th call from now on; 0: none
  int64_t shift = 0;   // of every address

 private:
  void* take(size_t bytes, uint64_t stream) {
    const std::lock_guard lock(mutex_);
    ++calls;
    EXPECT_NE(stream, OTR_PLUGIN_NO_STREAM);
    EXPECT_GT(bytes, 0U);
    if (refuse > 0 && --refuse == 0) return nullptr;
    void* data = nullptr;
    if (simulated_table().allocate(device_, bytes + 256, stream, &data) != OTR_OK) return nullptr;
    live += static_cast<int64_t>(bytes);
    void* const shown = static_cast<char*>(data) + shift;
    blocks_[shown] = {data, bytes};
    return shown;
  }
  void give(void* shown, size_t bytes, uint64_t stream) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(shown);
    ASSERT_NE(found, blocks_.end());
    EXPECT_EQ(found->second.bytes, bytes);
    live -= static_cast<int64_t>(bytes);
    EXPECT_EQ(simulated_table().release(device_, found->second.data, stream), OTR_OK);
    blocks_.erase(found);
  }

  struct Block {
    void* data;
    size_t bytes;
  };
  std::mutex mutex_;
  otr_plugin_device* device_ = nullptr;
  std::map<void*, Block> blocks_;
};

std::string configured(int32_t stage, bool offload) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "bf16": {"enabled": true},
      "gradient_clipping": 0.5, "zero_optimization": {"stage": )" +
         std::to_string(stage) + (offload ? R"(, "offload_optimizer": {"device": "cpu"}}})" : "}}");
}

// Three steps of two parameters; the values at the end.
Values trained(otr_context* context, const std::string& config, Pool* pool) {
  const auto comm = make_self(context);
  Engine engine(comm.get(), config);
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
  std::vector<int64_t> ids;
  for (const int64_t count : {3000, 700}) {
    ids.push_back(engine.add(("w" + std::to_string(count)).c_str(), {count}, dyadic(count, 3)));
  }
  engine.commit();
  if (pool != nullptr) {
    EXPECT_EQ(pool->live, resident_bytes(engine, kSimulated, "total"))
        << "all that the engine has there";
    EXPECT_GT(pool->live, 3700 * 2);
  }
  for (int step = 0; step < 3; ++step) {
    const Owned<otr_pass> pass = engine.begin();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t count = i == 0 ? 3000 : 700;
      const DeviceTensor grad(context, simulated(), Tensor({count}, dyadic(count, 5 + step)));
      for (int twice = 0; twice < 2; ++twice) {
        EXPECT_OK(otr_pass_add_grad(pass.get(), ids[i], &grad, nullptr));
      }
    }
    Engine::end(pass);
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    otr_tensor wide;
    otr_call_info info;
    EXPECT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = OTR_ACQUIRE_FLOAT32;
    EXPECT_OK(otr_engine_acquire(engine.get(), ids.data(), 1, &info, &wide));
    EXPECT_OK(otr_engine_release(engine.get(), ids.data(), 1, nullptr));
  }
  return engine.read(ids[0], OTR_VALUE_MASTER);
}

TEST(DeviceAllocator, GivesAllThatAnEngineHasThere) {
  const auto plain = device_context(), pooled = device_context();
  Pool pool;
  const otr_device_allocator table = pool.table();
  EXPECT_OK(otr_device_set_allocator(pooled.get(), kSimulated, 0, &table));
  for (const int32_t stage : {0, 2, 3}) {
    for (const bool offload : {false, true}) {
      if (offload && stage == 0) continue;
      SCOPED_TRACE(std::to_string(stage) + (offload ? " offload" : ""));
      const Values expected = trained(plain.get(), configured(stage, offload), nullptr);
      const int64_t calls = pool.calls;
      EXPECT_EQ(trained(pooled.get(), configured(stage, offload), &pool), expected);
      EXPECT_GT(pool.calls, calls);
      EXPECT_EQ(pool.live, 0);
    }
  }
  // The plugin's memory again.
  EXPECT_OK(otr_device_set_allocator(pooled.get(), kSimulated, 0, nullptr));
  const int64_t calls = pool.calls;
  trained(pooled.get(), configured(2, false), nullptr);
  EXPECT_EQ(pool.calls, calls);
}

// Of every call, the first, the second, …: an error, and nothing stays.
void expect_errors(bool offload, int64_t at_least) {
  int64_t nth = 1;
  for (bool refused = true; refused; ++nth) {
    SCOPED_TRACE(nth);
    ASSERT_LT(nth, 100);
    const auto context = device_context();
    Pool pool;
    const otr_device_allocator table = pool.table();
    EXPECT_OK(otr_device_set_allocator(context.get(), kSimulated, 0, &table));
    pool.refuse = nth;
    {
      const auto comm = make_self(context.get());
      Engine engine(comm.get(), configured(2, offload));
      EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
      const int64_t id = engine.add("w", {3000}, dyadic(3000, 3));
      const DeviceTensor grad(context.get(), simulated(), Tensor({3000}, dyadic(3000, 5)));
      otr_pass* pass = nullptr;
      int32_t status = OTR_OK;
      std::string text;
      const auto call = [&](const std::function<int32_t()>& body) {
        if (status != OTR_OK) return;
        status = body();
        text = otr_last_error_message();
      };
      call([&] { return otr_engine_commit(engine.get()); });
      call([&] { return otr_pass_begin(engine.get(), &grad, 1, nullptr, &pass); });
      const Owned<otr_pass> owned(pass);
      for (int twice = 0; twice < 2; ++twice) {
        call([&] { return otr_pass_add_grad(pass, id, &grad, nullptr); });
      }
      call([&] { return otr_pass_end(pass); });
      call([&] { return otr_engine_step(engine.get(), nullptr); });
      refused = pool.refuse == 0;
      EXPECT_EQ(status, refused ? OTR_E_OUT_OF_MEMORY : OTR_OK);
      if (refused) {
        EXPECT_NE(text.find("the host's allocator has no"), std::string::npos) << text;
      }
    }
    EXPECT_EQ(pool.live, 0);
  }
  EXPECT_GE(nth - 2, at_least);
}

TEST(DeviceAllocator, WhatItRefusesIsAnError) {
  expect_errors(true, 2);
  expect_errors(false, 5);
}

TEST(DeviceAllocator, IsRefused) {
  const auto context = device_context();
  Pool pool;
  otr_device_allocator table = pool.table();
  const auto set = [&] { return otr_device_set_allocator(context.get(), kSimulated, 0, &table); };
  table.struct_size = 8;
  EXPECT_FAILS(OTR_E_ABI, set(), "allocator.struct_size");
  table = pool.table();
  table.release = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, set(), "allocator.release is NULL");
  table = pool.table();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_set_allocator(context.get(), OTR_DEVICE_CPU, 0, &table),
               "OTR_DEVICE_CPU");
  const auto comm = make_self(context.get());
  {
    const Engine engine(comm.get(), configured(2, false));
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
    const_cast<Engine&>(engine).add("w", {300}, dyadic(300, 3));
    EXPECT_OK(otr_engine_commit(engine.get()));
    EXPECT_FAILS(OTR_E_STATE, set(), "are in use");
  }
  EXPECT_OK(set());
  // Memory of otr_device_allocate is the plugin's all the same.
  void* data = nullptr;
  EXPECT_OK(otr_device_allocate(context.get(), kSimulated, 0, 100, &data));
  EXPECT_OK(otr_device_free(context.get(), kSimulated, 0, data));
  EXPECT_EQ(pool.calls, 0);
  pool.shift = 16;
  const Engine engine(comm.get(), configured(2, false));
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
  const_cast<Engine&>(engine).add("w", {300}, dyadic(300, 3));
  EXPECT_FAILS(OTR_E_HOST, otr_engine_commit(engine.get()), "256 must divide it");
  EXPECT_EQ(pool.live, 0);
}

}  // namespace

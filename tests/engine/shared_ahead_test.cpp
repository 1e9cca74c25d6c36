// SPDX-License-Identifier: Apache-2.0
// Ranks that share the published parameters: a forward behind a pending step begins with those that
// all ranks have updated, whatever becomes of the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "c_api/src/guard.h"
#include "c_api/src/handles.h"
#include "core/engine/state_store.h"
#include "tests/engine/ranks.h"

namespace outrigger::test {
namespace {

constexpr int64_t kFirst = 512, kLast = 2048;  // elements; a bucket each

// Holds leases of one parameter's states up.
class Gate {
 public:
  void pass(int64_t parameter) {
    std::unique_lock lock(mutex_);
    waiting_ = parameter;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kMost, [&] { return closed_ != parameter; }));
  }
  void close(int64_t parameter) {  // and no other one; -1: none
    const std::lock_guard lock(mutex_);
    closed_ = parameter;
    waiting_ = -1;
    changed_.notify_all();
  }
  void wait_for(int64_t parameter) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kMost, [&] { return waiting_ == parameter; }));
  }

 private:
  static constexpr std::chrono::seconds kMost{30};
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t closed_ = -1, waiting_ = -1;
};

thread_local Gate* own_gate = nullptr;  // of the rank whose thread it is

// Resident states with room for a rank's piece of the first parameter: that of the last is leased
// when the first is updated.
class Gated final : public engine::StateStore {
 public:
  explicit Gated(const engine::StoreContext& context)
      : StateStore(context.model, context.optimizer),
        inner_(engine::make_resident_store(context)),
        gate_(*own_gate) {}
  int64_t room() const override { return kFirst / 2; }
  bool is_in_memory() const override { return true; }
  void fetch(const layout::Piece&, engine::StateSet) override {}
  Leased lease(const layout::Piece& piece, engine::StateSet read) override {
    if (read.has == engine::kAllStates.has) gate_.pass(piece.parameter);
    return inner_->lease(piece, read);
  }
  void give_back(const layout::Piece&, engine::StateSet) override {}
  void settle() override {}

 private:
  const std::unique_ptr<engine::StateStore> inner_;
  Gate& gate_;
};

std::unique_ptr<engine::StateStore> make_gated(const engine::StoreContext& context) {
  return std::make_unique<Gated>(context);
}

constexpr const char* kConfigs[] = {
    R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "gradient_clipping": 0,
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 512}})",
    R"({"optimizer": {"type": "SGD", "params": {"lr": 0.25}}, "gradient_clipping": 0,
        "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 512}})",
    R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "gradient_clipping": 0,
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 512}})",
};

struct Rank {
  Rank(otr_comm* comm, const char* config, Gate& gate) {
    own_gate = &gate;
    const auto& kept = c_api::get(comm, "comm");
    engine = new otr_engine(
        std::make_shared<engine::Engine>(kept->context, kept->communicator, config, make_gated));
    for (const int64_t count : {kFirst, kLast}) {
      std::vector<float> values(static_cast<size_t>(count), 1);
      const otr_tensor tensor = tensor_of(values);
      int64_t id = -1;
      NEED(otr_engine_add_parameter(engine, count == kFirst ? "first" : "last", &tensor, nullptr,
                                    &id));
    }
    NEED(otr_engine_commit(engine));
  }
  ~Rank() { otr_engine_destroy(engine); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  otr_tensor tensor_of(std::vector<float>& values) {
    otr_tensor tensor;
    shape = static_cast<int64_t>(values.size());
    NEED(otr_tensor_init(values.data(), "float32", 1, &shape, &tensor));
    return tensor;
  }
  void pass(int32_t rank, int step) {
    otr_pass* pass = nullptr;
    NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
    for (int64_t id = 2; id-- > 0;) {
      std::vector<float> values(static_cast<size_t>(id == 0 ? kFirst : kLast),
                                static_cast<float>(1 + rank + 2 * step));
      const otr_tensor grad = tensor_of(values);
      NEED(otr_pass_add_grad(pass, id, &grad, nullptr));
    }
    NEED(otr_pass_end(pass));
    otr_pass_destroy(pass);
  }
  // What an acquire shows.
  [[nodiscard]] Bytes shown(int64_t id) const {
    otr_tensor weight;
    NEED(otr_engine_acquire(engine, &id, 1, nullptr, &weight));
    const auto* const data = static_cast<const unsigned char*>(weight.data);
    const int64_t bytes = weight.shape[0] * weight.dtype.bits / 8;
    Bytes copy(data, data + bytes);
    NEED(otr_engine_release(engine, &id, 1, nullptr));
    return copy;
  }
  [[nodiscard]] int32_t outcome(double seconds) const {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    NEED(otr_engine_report(engine, seconds, &report));
    return report.outcome;
  }
  otr_engine* engine = nullptr;
  int64_t shape = 0;
};

// Three steps of two ranks, each waited for, or begun with the second rank behind: first with the
// first parameter, then with the last. What a rank shows of both, after each.
std::vector<RankResult> train(const char* config, bool begun) {
  Gate gates[2];
  return run_ranks(Provider::threads, 2, [&](int32_t number, otr_context*, otr_comm* comm) {
    Gate& gate = gates[number];
    Rank rank(comm, config, gate);
    Bytes all;
    const auto show = [&](int64_t id) {
      const Bytes shown = rank.shown(id);
      all.insert(all.end(), shown.begin(), shown.end());
    };
    for (int step = 0; step < 3; ++step) {
      rank.pass(number, step);
      if (!begun) {
        otr_step_report report = OTR_STEP_REPORT_INIT;
        NEED(otr_engine_step(rank.engine, &report));
        show(0);
        show(1);
        continue;
      }
      if (number == 1) gate.close(0);
      NEED(otr_engine_step_begin(rank.engine));
      if (number == 1) {
        gate.wait_for(0);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other one waits for it
        gate.close(1);
      }
      show(0);
      EXPECT_EQ(rank.outcome(0), OTR_STEP_PENDING);
      NEED(otr_comm_barrier(comm));  // both have seen it
      gate.close(-1);
      show(1);
      EXPECT_EQ(rank.outcome(-1), OTR_STEP_APPLIED);
    }
    return all;
  });
}

TEST(SharedAhead, ShowsWhatAllRanksHaveUpdated) {
  for (const char* config : kConfigs) {
    SCOPED_TRACE(config);
    const auto wanted = train(config, false), seen = train(config, true);
    for (size_t r = 0; r < 2; ++r) {
      ASSERT_EQ(wanted[r].error, "");
      ASSERT_EQ(seen[r].error, "");
      EXPECT_EQ(wanted[r].bytes, wanted[0].bytes);
      EXPECT_EQ(seen[r].bytes, wanted[0].bytes) << r;
    }
    const size_t step = wanted[0].bytes.size() / 3;
    EXPECT_FALSE(std::equal(wanted[0].bytes.begin(), wanted[0].bytes.begin() + step,
                            wanted[0].bytes.begin() + step));
  }
}

}  // namespace
}  // namespace outrigger::test

// SPDX-License-Identifier: Apache-2.0
// An asynchronous save writes what was there at the call, whatever changes before its first byte is
// read: a file system that does not write holds it back until then.
#include "core/engine/snapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "c_api/src/handles.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"
#include "tests/engine/ranks.h"
#include "tests/sanitizers.h"

namespace outrigger::test {
namespace {

using checkpoint::test::FaultyFiles;
using checkpoint::test::Operation;
using checkpoint::test::TemporaryFolder;

constexpr std::array<int64_t, 2> kShape{300, 1000};  // two blocks of checksums
constexpr int64_t kCount = kShape[0] * kShape[1];
constexpr std::array<int32_t, 3> kStates{OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ};

// Writes of other threads than the engine's wait until it is opened.
class Closed {
 public:
  FaultyFiles::Plan plan() {
    return [this, engine = std::this_thread::get_id()](int64_t, Operation called) {
      std::unique_lock lock(mutex_);
      if (called == Operation::write && std::this_thread::get_id() != engine) {
        opened_.wait(lock, [&] { return open_; });
      }
      return 0;
    };
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class Training {
 public:
  Training(otr_comm* comm, const std::string& config) {
    NEED(otr_engine_create(comm, config.c_str(), &engine_));
    const otr_tensor initial = tensor(numbers(1));
    int64_t id = 0;
    NEED(otr_engine_add_parameter(engine_, "w", &initial, nullptr, &id));
    NEED(otr_engine_commit(engine_));
    for (int i = 2; i < 4; ++i) step(i);
  }
  ~Training() { otr_engine_destroy(engine_); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void pass(int seed) {
    const otr_tensor grad = tensor(numbers(seed));
    otr_pass* pass = nullptr;
    NEED(otr_pass_begin(engine_, nullptr, 0, nullptr, &pass));
    NEED(otr_pass_add_grad(pass, 0, &grad, nullptr));
    NEED(otr_pass_end(pass));
    otr_pass_destroy(pass);
  }
  void step(int seed) {
    pass(seed);
    NEED(otr_engine_step(engine_, nullptr));
  }
  // False: there is none here.
  bool write(int32_t value, bool local) {
    otr_tensor source = tensor(numbers(9));
    int64_t first = 0;
    NEED(otr_engine_local_range(engine_, 0, &first, &local_));
    if (local) NEED(otr_tensor_init(held_.data(), "float32", 1, &local_, &source));
    const int32_t status = local ? otr_engine_local_write(engine_, 0, value, &source)
                                 : otr_engine_parameter_write(engine_, 0, value, &source);
    if (status == OTR_E_NOT_FOUND) return false;
    need(status, "write");
    return true;
  }
  std::vector<float> all() {
    std::vector<float> all;
    for (const int32_t value : kStates) {
      std::vector<float> one(kCount, -1);
      const otr_tensor out = tensor_of(one);
      const int32_t status = otr_engine_parameter_read(engine_, 0, value, &out);
      if (status != OTR_E_NOT_FOUND) need(status, "read");
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  [[nodiscard]] otr_engine* get() const { return engine_; }
  [[nodiscard]] engine::Engine& own() const { return *c_api::get(engine_, "engine"); }

 private:
  static std::vector<float> numbers(int seed) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed) * 31) % 127) / 64;
    }
    return values;
  }
  otr_tensor tensor(std::vector<float> values) {
    held_ = std::move(values);
    return tensor_of(held_);
  }
  otr_tensor tensor_of(std::vector<float>& values) {
    otr_tensor t;
    NEED(otr_tensor_init(values.data(), "float32", 2, shape_.data(), &t));
    return t;
  }
  otr_engine* engine_ = nullptr;
  std::vector<float> held_;
  std::array<int64_t, 2> shape_ = kShape;
  int64_t local_ = 0;
};

struct Kind {
  const char* name;
  int32_t world;
  const char* config;
};
constexpr std::array<Kind, 6> kKinds{{
    {"float32 in place", 1, R"({"zero_optimization": {"stage": 0}})"},
    {"bf16 and a master", 2, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})"},
    {"split, 8-bit moments", 2,
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
         "outrigger": {"states": {"master": {"format": "split"}, "exp_avg": {"format": "block8"},
                                  "exp_avg_sq": {"format": "block8"}}}})"},
    {"slices", 2,
     R"({"zero_optimization": {"stage": 3}, "outrigger": {"share_parameters": false}})"},
    {"bf16 in place", 1, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
         "outrigger": {"states": {"master": {"format": "bfloat16"}}}})"},
    {"Muon", 2, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
         "optimizer": {"type": "Muon", "params": {"lr": 0.01}}})"},
}};

// What a host can do that changes states; false: not here.
struct Change {
  const char* name;
  std::function<bool(Training&)> make;
};
std::vector<Change> changes() {
  std::vector<Change> all{{"a step",
                           [](Training& t) {
                             t.step(5);
                             return true;
                           }},
                          {"a step in the background", [](Training& t) {
                             t.pass(5);
                             NEED(otr_engine_step_begin(t.get()));
                             otr_step_report report = OTR_STEP_REPORT_INIT;
                             NEED(otr_engine_report(t.get(), -1, &report));
                             return true;
                           }}};
  for (const int32_t value : kStates) {
    all.push_back({"a write", [value](Training& t) { return t.write(value, false); }});
    all.push_back({"a local write", [value](Training& t) { return t.write(value, true); }});
  }
  return all;
}

void save_and_change(int32_t rank, otr_comm* comm, const Kind& kind, const Change& change,
                     const TemporaryFolder& folder) {
  SCOPED_TRACE(std::string(kind.name) + ", " + change.name);
  Training t(comm, kind.config);
  const std::vector<float> saved = t.all();
  Closed closed;
  FaultyFiles files(closed.plan());
  engine::SaveOptions options;
  options.asynchronous = options.replace = true;
  t.own().save(folder.path(), "x", options, files);
  const double at_call = t.own().wait_save(0).held_up;
  const bool changed = change.make(t);
  const bool grew = t.own().wait_save(0).held_up > at_call;
  EXPECT_EQ(t.own().wait_save(0).state, engine::Saver::State::under_way) << "it has waited";
  const bool differs = t.all() != saved;
  closed.open();
  EXPECT_EQ(t.own().wait_save(-1).state, engine::Saver::State::done);
  EXPECT_EQ(differs, changed);
  if (std::string(change.name).starts_with("a step")) {
    EXPECT_TRUE(grew) << "what is copied later counts";
  }
  NEED(otr_engine_load(t.get(), folder.path().c_str(), "x", nullptr));
  EXPECT_TRUE(t.all() == saved) << "rank " << rank;
  const double before = t.own().wait_save(0).held_up;
  t.step(6);
  EXPECT_EQ(t.own().wait_save(0).held_up, before) << "nothing is copied after its end";
}

TEST(Snapshot, IsOfTheCallWhateverChangesFirst) {
  const std::vector<Change> all = changes();
  for (size_t k = 0; k < kKinds.size(); ++k) {
    for (size_t c = 0; c < all.size(); ++c) {
      if (!runs(k, c)) continue;
      const Kind& kind = kKinds[k];
      const Change& change = all[c];
      SCOPED_TRACE(std::string(kind.name) + ", " + change.name);
      const TemporaryFolder folder;
      const auto results = run_ranks(
          Provider::threads, kind.world,
          [&](int32_t rank, otr_context*, otr_comm* comm) {
            save_and_change(rank, comm, kind, change, folder);
            return Bytes();
          },
          60, 2);
      for (const RankResult& result : results) ASSERT_EQ(result.error, "");
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace outrigger::test

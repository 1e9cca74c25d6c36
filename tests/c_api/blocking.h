// SPDX-License-Identifier: Apache-2.0
// Every call that waits for other ranks, in one table: each with what it needs before.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "support.h"

namespace otr_test {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
inline void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}
template <typename Flag>
void wait_for(const Flag& flag) {
  while (!flag) pause(1);
}

// One of two ranks.
struct Scene {
  int32_t rank;
  otr_comm* comm;
  Owned<otr_comm> joint;           // the same ranks
  std::unique_ptr<Engine> engine;  // none, declared or committed
  std::string progress;            // after commit
  otr_engine* handle() const { return engine->get(); }
};

struct Call {
  enum Needs { comm, declared, committed, gradients, begun };
  const char* name;
  Needs needs;
  // The second run of an interrupted call finds what the first left here.
  std::function<int32_t(const Scene&)> run;
};
inline void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

// What an acquire of this parameter shows.
inline Values use(const Engine& engine, int64_t id) {
  otr_tensor weight;
  EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
  Values values = values_of(weight);
  EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
  return values;
}

constexpr int64_t kElements = 600;

inline Scene scene_for(const Call& call, const Kind& kind, int32_t rank, otr_comm* comm) {
  Scene scene{rank, comm, nullptr, nullptr, {}};
  otr_comm* joint = nullptr;
  EXPECT_OK(otr_comm_duplicate(comm, &joint));
  scene.joint.reset(joint);
  if (call.needs == Call::comm) return scene;
  scene.engine = std::make_unique<Engine>(comm, config_of(kind));
  scene.engine->add("w", {kElements}, Values(kElements, 1));
  scene.engine->add("v", {kElements}, Values(kElements, 2));
  if (call.needs >= Call::committed) {
    scene.engine->commit();
    size_t size = 0;
    EXPECT_OK(otr_engine_get_progress(scene.handle(), nullptr, &size));
    scene.progress.resize(size);
    EXPECT_OK(otr_engine_get_progress(scene.handle(), scene.progress.data(), &size));
  }
  if (call.needs >= Call::gradients) scene.engine->pass({{0, Values(kElements, 1)}});
  if (call.needs == Call::begun && rank == 0) {
    EXPECT_OK(otr_engine_step_begin(scene.handle()));
  }
  return scene;
}

inline const std::vector<Call>& blocking_calls() {
  static const std::vector<Call> calls{
      {"comm_barrier", Call::comm, [](const Scene& s) { return otr_comm_barrier(s.comm); }},
      {"comm_broadcast", Call::comm,
       [](const Scene& s) {  // more than one part
         std::vector<int32_t> data(300000, s.rank == 0 ? 7 : 0);
         const int32_t status = otr_comm_broadcast(s.comm, data.data(), data.size() * 4, 0);
         if (status == OTR_OK) {
           EXPECT_EQ(data, std::vector<int32_t>(data.size(), 7));
         }
         return status;
       }},
      {"comm_all_gather", Call::comm,
       [](const Scene& s) {
         const std::vector<int32_t> mine(300000, s.rank + 1);
         std::vector<int32_t> all(mine.size() * 2);
         const int32_t status =
             otr_comm_all_gather(s.comm, mine.data(), mine.size() * 4, all.data());
         if (status == OTR_OK) {
           EXPECT_EQ(std::count(all.begin(), all.begin() + 300000, 1), 300000);
           EXPECT_EQ(std::count(all.begin() + 300000, all.end(), 2), 300000);
         }
         return status;
       }},
      {"comm_all_reduce_sum", Call::comm,
       [](const Scene& s) {
         std::array<double, 3> values{1.5, 2, static_cast<double>(s.rank)};
         const int32_t status = otr_comm_all_reduce_sum(s.comm, values.data(), values.size());
         if (status == OTR_OK) {
           EXPECT_EQ(values, (std::array<double, 3>{3, 4, 1}));
         }
         return status;
       }},
      {"comm_duplicate", Call::comm,
       [](const Scene& s) {
         otr_comm* made = nullptr;
         const int32_t status = otr_comm_duplicate(s.comm, &made);
         if (status == OTR_OK) {
           EXPECT_OK(otr_comm_barrier(made));
         }
         otr_comm_destroy(made);
         return status;
       }},
      {"comm_split", Call::comm,
       [](const Scene& s) {
         otr_comm* made = nullptr;
         const int32_t status = otr_comm_split(s.comm, 0, -s.rank, &made);
         if (status == OTR_OK) {
           EXPECT_OK(otr_comm_barrier(made));
         }
         otr_comm_destroy(made);
         return status;
       }},
      {"engine_commit", Call::declared,
       [](const Scene& s) { return otr_engine_commit(s.handle()); }},
      {"engine_parameter_read", Call::committed,
       [](const Scene& s) {
         const Tensor out = Tensor::filled({kElements}, 0);
         const int32_t status = otr_engine_parameter_read(s.handle(), 0, OTR_VALUE_EXP_AVG, &out);
         if (status == OTR_OK) {
           EXPECT_EQ(out.values(), Values(kElements, 0));
         }
         return status;
       }},
      {"engine_set_initial", Call::committed,
       [](const Scene& s) {
         const Tensor value = Tensor::filled({kElements}, 3);
         const int64_t id = 0;
         return otr_engine_set_initial(s.handle(), &id, 1, &value);
       }},
      {"engine_set_progress", Call::committed,
       [](const Scene& s) { return otr_engine_set_progress(s.handle(), s.progress.c_str()); }},
      {"engine_parameter_write", Call::committed,
       [](const Scene& s) {
         const Tensor source = Tensor::filled({kElements}, 3);
         return otr_engine_parameter_write(s.handle(), 0, OTR_VALUE_MASTER, &source);
       }},
      {"engine_finalize", Call::gradients,
       [](const Scene& s) { return otr_engine_finalize(s.handle()); }},
      {"engine_reduce", Call::gradients,
       [](const Scene& s) { return otr_engine_reduce(s.handle(), nullptr); }},
      {"engine_discard", Call::gradients,
       [](const Scene& s) { return otr_engine_discard(s.handle()); }},
      {"engine_step", Call::gradients,
       [](const Scene& s) {
         otr_step_report report = OTR_STEP_REPORT_INIT;
         const int32_t status = otr_engine_step(s.handle(), &report);
         if (status == OTR_OK) {
           EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
         }
         return status;
       }},
      {"step_many", Call::gradients,
       [](const Scene& s) {
         otr_engine* engine = s.handle();
         return otr_step_many(&engine, 1, nullptr, nullptr);
       }},
      {"step_many_joint", Call::gradients,
       [](const Scene& s) {
         otr_engine* engine = s.handle();
         return otr_step_many(&engine, 1, s.joint.get(), nullptr);
       }},
      {"engine_acquire_pending", Call::begun,
       [](const Scene& s) {
         if (s.rank != 0) return otr_engine_step(s.handle(), nullptr);
         const std::array<int64_t, 2> ids{0, 1};
         std::array<otr_tensor, 2> weights{};
         const int32_t status =
             otr_engine_acquire(s.handle(), ids.data(), 2, nullptr, weights.data());
         if (status == OTR_OK) {
           EXPECT_NE(values_of(weights[0]), Values(kElements, 1));
           otr_step_report report = OTR_STEP_REPORT_INIT;
           EXPECT_OK(otr_engine_report(s.handle(), -1, &report));
         }
         return status;
       }},
      {"engine_report", Call::begun,
       [](const Scene& s) {  // the other rank makes the same step in one call
         otr_step_report report = OTR_STEP_REPORT_INIT;
         const int32_t status = s.rank == 0 ? otr_engine_report(s.handle(), -1, &report)
                                            : otr_engine_step(s.handle(), &report);
         if (status == OTR_OK) {
           EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
         }
         return status;
       }},
  };
  return calls;
}

inline std::string call_name(const testing::TestParamInfo<Call>& info) { return info.param.name; }

// The kinds under which a call is worth trying: all orders of reduction for an engine's.
inline std::vector<Kind> kinds_for(const Call& call) {
  if (call.needs == Call::comm) return {kKinds[0]};
  // On stage 0 each rank has it all, and a read waits for nobody.
  if (std::string_view(call.name) == "engine_parameter_read") return {kKinds[2], kKinds[4]};
  return {kKinds[0], kKinds[1], kKinds[2], kKinds[4]};
}

}  // namespace otr_test

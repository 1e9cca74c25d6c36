// SPDX-License-Identifier: Apache-2.0
// A collective call that one rank gives a wrong argument: refused there, it has not begun. The
// others wait until it is made as it should be, and nothing is lost.
#include "blocking.h"

namespace {

using namespace otr_test;

struct Refusal {
  const char* call;  // of blocking_calls()
  const char* what;
  int32_t expected;
  std::function<int32_t(const Scene&)> run;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.call << " with " << refusal.what;
}

otr_step_report short_report() {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  report.struct_size = 4;
  return report;
}

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all{
      {"comm_broadcast", "no data", OTR_E_ARGUMENT,
       [](const Scene& s) { return otr_comm_broadcast(s.comm, nullptr, 8, 0); }},
      {"comm_broadcast", "an unknown root", OTR_E_ARGUMENT,
       [](const Scene& s) {
         int64_t word = 0;
         return otr_comm_broadcast(s.comm, &word, 8, 2);
       }},
      {"comm_all_gather", "no place", OTR_E_ARGUMENT,
       [](const Scene& s) {
         const int64_t word = 0;
         return otr_comm_all_gather(s.comm, &word, 8, nullptr);
       }},
      {"comm_all_reduce_sum", "no values", OTR_E_ARGUMENT,
       [](const Scene& s) { return otr_comm_all_reduce_sum(s.comm, nullptr, 3); }},
      {"comm_duplicate", "no place", OTR_E_ARGUMENT,
       [](const Scene& s) { return otr_comm_duplicate(s.comm, nullptr); }},
      {"comm_split", "a color below -1", OTR_E_ARGUMENT,
       [](const Scene& s) {
         otr_comm* none = nullptr;
         return otr_comm_split(s.comm, -2, 0, &none);
       }},
      {"engine_parameter_read", "an unknown id", OTR_E_NOT_FOUND,
       [](const Scene& s) {
         const Tensor out = Tensor::filled({kElements}, 0);
         return otr_engine_parameter_read(s.handle(), 9, OTR_VALUE_EXP_AVG, &out);
       }},
      {"engine_parameter_read", "another shape", OTR_E_SHAPE,
       [](const Scene& s) {
         const Tensor out = Tensor::filled({kElements - 1}, 0);
         return otr_engine_parameter_read(s.handle(), 0, OTR_VALUE_EXP_AVG, &out);
       }},
      {"engine_parameter_read", "a value that is not there", OTR_E_NOT_FOUND,
       [](const Scene& s) {
         const Tensor out = Tensor::filled({kElements}, 0);
         return otr_engine_parameter_read(s.handle(), 0, OTR_VALUE_GRAD, &out);
       }},
      {"engine_parameter_write", "a value that follows another", OTR_E_ARGUMENT,
       [](const Scene& s) {
         const Tensor source = Tensor::filled({kElements}, 3);
         return otr_engine_parameter_write(s.handle(), 0, OTR_VALUE_PUBLISHED, &source);
       }},
      {"engine_set_initial", "another shape", OTR_E_SHAPE,
       [](const Scene& s) {
         const Tensor value = Tensor::filled({kElements + 1}, 3);
         const int64_t id = 0;
         return otr_engine_set_initial(s.handle(), &id, 1, &value);
       }},
      {"engine_parameter_write", "no tensor", OTR_E_ARGUMENT,
       [](const Scene& s) {
         return otr_engine_parameter_write(s.handle(), 0, OTR_VALUE_MASTER, nullptr);
       }},
      {"engine_reduce", "a report of unknown size", OTR_E_ABI,
       [](const Scene& s) {
         otr_step_report report = short_report();
         return otr_engine_reduce(s.handle(), &report);
       }},
      {"engine_step", "a report of unknown size", OTR_E_ABI,
       [](const Scene& s) {
         otr_step_report report = short_report();
         return otr_engine_step(s.handle(), &report);
       }},
      {"step_many", "a report of unknown size", OTR_E_ABI,
       [](const Scene& s) {
         otr_step_report report = short_report();
         otr_engine* engine = s.handle();
         return otr_step_many(&engine, 1, nullptr, &report);
       }},
      {"step_many", "an engine that is none", OTR_E_ARGUMENT,
       [](const Scene& s) {
         otr_engine* engines[2] = {s.handle(), nullptr};
         return otr_step_many(engines, 2, nullptr, nullptr);
       }},
      {"step_many_joint", "a report of unknown size", OTR_E_ABI,
       [](const Scene& s) {
         otr_step_report report = short_report();
         otr_engine* engine = s.handle();
         return otr_step_many(&engine, 1, s.joint.get(), &report);
       }},
      {"step_many_joint", "a negative count", OTR_E_ARGUMENT,
       [](const Scene& s) {
         otr_engine* engine = s.handle();
         return otr_step_many(&engine, -1, s.joint.get(), nullptr);
       }},
  };
  return all;
}

class Refused : public testing::TestWithParam<Refusal> {
 protected:
  static const Call& call() {
    for (const Call& call : blocking_calls()) {
      if (std::string_view(call.name) == GetParam().call) return call;
    }
    throw std::runtime_error("no such call");
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, Refused, testing::ValuesIn(refusals()), [](const auto& info) {
  std::string name = std::string(info.param.call) + "_" + info.param.what;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
});

TEST_P(Refused, ChangesNothingAndTheRightCallFollows) {
  for (const Kind& kind : kinds_for(call())) {
    SCOPED_TRACE(kind.name);
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      const Scene scene = scene_for(call(), kind, rank, comm);
      EXPECT_OK(otr_comm_barrier(scene.joint.get()));
      if (rank == 1) {
        pause(60);  // rank 0 is waiting
        for (int i = 0; i < 2; ++i) {
          const int32_t status = GetParam().run(scene);
          EXPECT_EQ(status, GetParam().expected) << otr_last_error_message();
        }
        if (scene.engine) {
          EXPECT_OK(otr_engine_check(scene.handle()));
        }
      }
      EXPECT_OK(call().run(scene));
      EXPECT_OK(otr_comm_barrier(comm)) << "in step again";
    });
  }
}

// The other way out: whoever cannot make the call tells the others at once.
TEST_P(Refused, AnAbortTellsTheOthers) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    const Scene scene = scene_for(call(), kinds_for(call()).front(), rank, comm);
    EXPECT_OK(otr_comm_barrier(scene.joint.get()));
    const auto begin = Clock::now();
    if (rank == 1) {
      pause(60);
      EXPECT_EQ(GetParam().run(scene), GetParam().expected);
      EXPECT_OK(scene.engine ? otr_engine_abort(scene.handle(), "it cannot be made")
                             : otr_comm_abort(comm, "it cannot be made"));
      return;
    }
    EXPECT_FAILS(OTR_E_ABORTED, call().run(scene), "rank 1", "it cannot be made");
    EXPECT_LT(seconds_since(begin), 5);
  });
}

}  // namespace

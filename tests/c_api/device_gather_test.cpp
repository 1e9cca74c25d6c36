// SPDX-License-Identifier: Apache-2.0
// Ranks that have copies of the parameters on devices, which the host updates: what a rank has
// updated goes to the others while it updates the next, and the next forward begins with what has
// come.
#include <string>
#include <vector>

#include "device_support.h"
#include "gated.h"

namespace {

using namespace otr_test;

constexpr int64_t kFirst = 512, kLast = 2048;  // elements; a bucket each

struct Form {
  const char* name;
  int32_t stage;
  size_t size;       // bytes of a published element
  const char* more;  // of the configuration
  // Elements of a rank's that come down for the others, and that the device updates.
  int64_t comes_down = 0, stays = 0;
  const char* offload = "";
  const char* rule = R"({"type": "AdamW", "params": {"lr": 0.25}})";
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

// Masters that the host reads as they are, or rounds, and a part that the device updates.
constexpr Form kForms[] = {
    {"float32", 1, 4, ""},
    {"bf16", 2, 2, R"("bf16": {"enabled": true}, )"},
    {"bf16_states", 2, 2,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, )"},
    {"in_part", 2, 2, R"("bf16": {"enabled": true}, )", kFirst / 2, kFirst / 2,
     R"(, "ratio": 0.8)"},
    {"lamb", 1, 4, "", 0, 0, "", R"({"type": "Lamb", "params": {"lr": 0.25}})"},
};

std::string config_of(const Form& form) {
  return R"({"optimizer": )" + std::string(form.rule) + R"(, "gradient_clipping": 0, )" +
         form.more + R"("zero_optimization": {"reduce_bucket_size": 512, "stage": )" +
         std::to_string(form.stage) + R"(, "offload_optimizer": {"device": "cpu")" + form.offload +
         "}}}";
}

struct Ranked {
  Ranked(otr_context* shared, otr_comm* base, Gate& gate, int32_t number, const Form& form)
      : context(shared),
        rank(number),
        comm(gated(shared, base, gate)),
        engine(comm.get(), config_of(form)) {
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
    engine.add("first", {kFirst}, dyadic(kFirst, 1));
    engine.add("last", {kLast}, dyadic(kLast, 2));
    engine.commit();
  }
  void pass(int i) const {
    const Owned<otr_pass> pass = engine.begin();
    for (int64_t id = 2; id-- > 0;) {
      const int64_t count = id == 0 ? kFirst : kLast;
      const DeviceTensor grad(context, simulated(rank),
                              Tensor({count}, dyadic(count, 2 * i + 3 * rank + id)));
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
    }
    Engine::end(pass);
  }
  [[nodiscard]] Values shown(int64_t id) const {
    otr_tensor weight;
    EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
    Values values = values_there(context, weight);
    EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
    return values;
  }
  otr_context* context;
  int32_t rank;
  Owned<otr_comm> comm;
  Engine engine;
};

class DeviceGather : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, DeviceGather, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

// The last bucket is held up: the first parameter is on the device all the same, as the step leaves
// it, and both ranks have the bits of a step that is waited for.
TEST_P(DeviceGather, ShowsAParameterBeforeTheOthersHaveCome) {
  std::vector<Values> seen[2][2];  // waited for or begun, by rank
  for (const bool begun : {false, true}) {
    Gate gates[2];
    const auto context = device_context();
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* base) {
      Gate& gate = gates[rank];
      const Ranked ranked(context.get(), base, gate, rank, GetParam());
      std::vector<Values>& all = seen[begun ? 1 : 0][rank];
      gate.held = static_cast<size_t>(kLast) / 2 * GetParam().size;
      for (int i = 0; i < 3; ++i) {
        ranked.pass(i);
        if (!begun) {
          EXPECT_EQ(ranked.engine.step().outcome, OTR_STEP_APPLIED);
          all.push_back(ranked.shown(0));
          all.push_back(ranked.shown(1));
          continue;
        }
        gate.held_up = 0;
        gate.set(true);
        EXPECT_OK(otr_engine_step_begin(ranked.engine.get()));
        gate.wait_for_held();
        all.push_back(ranked.shown(0));
        otr_step_report report = OTR_STEP_REPORT_INIT;
        EXPECT_OK(otr_engine_report(ranked.engine.get(), 0, &report));
        EXPECT_EQ(report.outcome, OTR_STEP_PENDING);
        gate.set(false);
        all.push_back(ranked.shown(1));
        EXPECT_EQ(ranked.engine.report().outcome, OTR_STEP_APPLIED);
      }
    });
  }
  ASSERT_EQ(seen[0][0].size(), 6U);
  EXPECT_EQ(seen[0][0], seen[0][1]);
  EXPECT_EQ(seen[1][0], seen[0][0]);
  EXPECT_EQ(seen[1][1], seen[0][0]);
  EXPECT_NE(seen[0][0][0], seen[0][0][2]);
}

// What goes to the others comes from the host, and a rank's own slice is there already: nothing
// comes down, but of what only the device has, and each element goes up once.
TEST_P(DeviceGather, MovesEachElementOnce) {
  const Form& form = GetParam();
  const auto context = device_context();
  Gate gates[2];
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* base) {
    const Ranked ranked(context.get(), base, gates[rank], rank, form);
    ranked.pass(0);
    EXPECT_OK(otr_device_set_value(context.get(), kSimulated, rank, "copy_bytes_per_second", 1e6));
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_OK(otr_engine_reduce(ranked.engine.get(), &report));
    const auto moved = [&](const char* name) {
      double bytes = -1;
      EXPECT_OK(otr_device_get_value(context.get(), kSimulated, rank, name, &bytes));
      return static_cast<int64_t>(bytes) / static_cast<int64_t>(form.size);
    };
    const int64_t down = moved("bytes_to_host"), up = moved("bytes_to_device");
    EXPECT_EQ(ranked.engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(moved("bytes_to_host") - down, form.comes_down);
    EXPECT_EQ(moved("bytes_to_device") - up, kFirst + kLast - form.stays);
    const Values read = ranked.engine.read(1, OTR_VALUE_PUBLISHED);  // behind what is on its way
    EXPECT_EQ(read, ranked.shown(1));
  });
}

}  // namespace

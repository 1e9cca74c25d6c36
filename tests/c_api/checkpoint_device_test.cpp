// SPDX-License-Identifier: Apache-2.0
// Checkpoints of engines on a device, with their states there or offloaded, with their parameters
// offloaded, too, and on the host.
#include "../sanitizers.h"
#include "checkpoints.h"
#include "device_support.h"

namespace {

using namespace otr_test;

enum class Where : uint8_t { host, device, offloaded, parameters };
constexpr Where kPlaces[] = {Where::host, Where::device, Where::offloaded, Where::parameters};
constexpr const char* kNames[] = {"the host", "the device", "the device, offloaded",
                                  "the device, offloaded with its parameters"};
constexpr const char* kOffloads[] = {
    "", "", R"(, "offload_optimizer": {"device": "cpu"})",
    R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})"};

// Parameters are offloaded at stage 3 only, a split master with them only.
int32_t stage_at(Where where, int32_t stage) { return where == Where::parameters ? 3 : stage; }
bool is_legal(Where where, bool split) { return !split || where != Where::offloaded; }

// An engine somewhere, whose gradients are there, too.
class Trained {
 public:
  Trained(const Training& training, int32_t stage, Where where, int32_t rank, otr_comm* comm,
          double first)
      : context_(device_context()),
        where_(where),
        device_(simulated(rank)),
        engine_(comm, config(training,
                             {2, stage_at(where, stage), kOffloads[static_cast<size_t>(where)]})) {
    if (where != Where::host) {
      EXPECT_OK(otr_engine_set_device(engine_.get(), device_.device_type, device_.device_id));
    }
    declare(engine_, first);
  }
  [[nodiscard]] const Engine& engine() const { return engine_; }
  void step(int64_t number) {
    if (where_ == Where::host) {
      otr_test::step(engine_, number);
      return;
    }
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(engine_.get(), nullptr, 0, nullptr, &pass));
    const Values values[] = {dyadic(1500, number), dyadic(1200, number + 1), dyadic(7, number)};
    for (size_t id = 0; id < 3; ++id) {
      const DeviceTensor grad(context_.get(), device_, Tensor(kShapes[id], values[id]));
      EXPECT_OK(otr_pass_add_grad(pass, static_cast<int64_t>(id), &grad, nullptr));
    }
    EXPECT_OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    ASSERT_OK(otr_engine_step(engine_.get(), nullptr));
  }
  void finalize() { EXPECT_OK(otr_engine_finalize(engine_.get())); }

 private:
  Owned<otr_context> context_;
  const Where where_;
  const otr_device device_;
  Engine engine_;
};

TEST(CheckpointOnDevice, GoesAnywhere) {
  for (size_t kind = 0; kind < std::size(kTrainings); ++kind) {
    const Training& training = kTrainings[kind];
    const bool split = std::string_view(training.keys).find("split") != std::string_view::npos;
    for (const Where from : kPlaces) {
      if (!is_legal(from, split)) continue;
      const int32_t stage = 1 + static_cast<int32_t>(kind) % 3;
      const Place place;
      Everything saved, ended;
      run_ranks(
          2,
          [&](int32_t rank, otr_comm* comm) {
            Trained trained(training, stage, from, rank, comm, 1);
            for (int64_t i = 0; i < 3; ++i) trained.step(i);
            otr_save_options options;
            ASSERT_OK(otr_save_options_init(&options, sizeof options));
            ASSERT_OK(otr_engine_save(trained.engine().get(), place.text(), "now", &options));
            options.asynchronous = 1;
            ASSERT_OK(otr_engine_save(trained.engine().get(), place.text(), "aside", &options));
            const Everything now = everything(trained.engine());
            for (int64_t i = 3; i < 6; ++i) trained.step(i);
            ASSERT_OK(otr_engine_wait_save(trained.engine().get(), -1, nullptr));
            const Everything later = everything(trained.engine());
            trained.finalize();
            if (rank == 0) saved = now, ended = later;
          },
          20, "simulated");
      ASSERT_NE(saved, ended);
      for (const Where to : kPlaces) {
        if (!is_legal(to, split)) continue;
        if (!outrigger::test::runs(kind, from, to)) continue;
        const char* const tag = (kind + static_cast<size_t>(to)) % 2 == 0 ? "now" : "aside";
        SCOPED_TRACE(std::string(training.name) + ": " + kNames[static_cast<size_t>(from)] +
                     " to " + kNames[static_cast<size_t>(to)] + ", " + tag);
        run_ranks(
            2,
            [&](int32_t rank, otr_comm* comm) {
              Trained trained(training, 3 - stage % 3, to, rank, comm, -0.5);
              trained.step(90);
              ASSERT_OK(load(trained.engine(), place, tag));
              EXPECT_EQ(everything(trained.engine()), saved);
              for (int64_t i = 3; i < 6; ++i) trained.step(i);
              EXPECT_EQ(everything(trained.engine()), ended);
              trained.finalize();
            },
            20, "simulated");
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace

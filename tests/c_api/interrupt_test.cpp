// SPDX-License-Identifier: Apache-2.0
// The host ends calls that wait, and makes them again.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "blocking.h"

namespace {

using namespace otr_test;

thread_local bool makes_calls = false;  // a thread of the host's

// A host that presses its stop button, and what its callback saw.
struct Host {
  std::atomic<bool> stop{false};
  std::atomic<int> asked{0};
  std::atomic<bool> elsewhere{false};  // asked on a thread that made no call

  static int32_t ask(void* user_data) {
    auto& host = *static_cast<Host*>(user_data);
    ++host.asked;
    if (!makes_calls) host.elsewhere = true;
    return host.stop ? 1 : 0;
  }
};

class Interrupt : public testing::TestWithParam<Call> {};
INSTANTIATE_TEST_SUITE_P(Calls, Interrupt, testing::ValuesIn(blocking_calls()), call_name);

TEST_P(Interrupt, EndsTheWaitAndTheCallIsMadeAgain) {
  for (const Kind& kind : kinds_for(GetParam())) {
    SCOPED_TRACE(kind.name);
    Host host;
    std::atomic<bool> goes_on{false};
    const auto context = make_context(1, Host::ask, &host);
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      makes_calls = true;
      const Scene scene = scene_for(GetParam(), kind, rank, comm);
      EXPECT_OK(otr_comm_barrier(scene.joint.get()));
      if (rank == 1) {
        wait_for(goes_on);
        EXPECT_OK(GetParam().run(scene));
      } else {
        for (int i = 0; i < 2; ++i) {
          std::thread button([&] {
            pause(80);
            host.stop = true;
          });
          const auto begin = Clock::now();
          EXPECT_FAILS(OTR_E_INTERRUPTED, GetParam().run(scene), "rank 1", "interrupted");
          EXPECT_LT(seconds_since(begin), 0.58);
          button.join();
          host.stop = false;
          if (scene.engine) {
            EXPECT_OK(otr_engine_check(scene.handle()));
            otr_pass* pass = nullptr;
            const int32_t refused = otr_pass_begin(scene.handle(), nullptr, 0, nullptr, &pass);
            EXPECT_EQ(refused, OTR_E_STATE) << otr_last_error_message();
          }
        }
        goes_on = true;
        EXPECT_OK(GetParam().run(scene));
      }
      EXPECT_OK(otr_comm_barrier(comm)) << "in step again";
      const std::string_view name = GetParam().name;
      if (GetParam().needs < Call::gradients || name == "engine_finalize") return;
      if (name == "engine_reduce") scene.engine->step();
      scene.engine->pass({{1, Values(kElements, 1)}});
      EXPECT_EQ(scene.engine->step().applied_steps, name == "engine_discard" ? 1 : 2);
    });
    EXPECT_GT(host.asked, 0);
    EXPECT_FALSE(host.elsewhere) << "asked on a thread of the library";
  }
}

// Rank 0 makes the interrupted call again with something else: refused, and then with the same.
TEST(Interrupts, OtherArgumentsAreRefusedUntilTheInterruptedCallIsMadeAgain) {
  using Given = std::function<int32_t(otr_engine*, const std::string&, bool other)>;
  const Tensor ones = Tensor::filled({kElements}, 1), twos = Tensor::filled({kElements}, 2);
  const int64_t id = 0;
  const std::vector<Given> calls{[](otr_engine* e, const std::string& text, bool other) {
                                   std::string changed = text;
                                   if (other)
                                     changed.replace(changed.find("\"micro\":0"), 9, "\"micro\":7");
                                   return otr_engine_set_progress(e, changed.c_str());
                                 },
                                 [&](otr_engine* e, const std::string&, bool other) {
                                   const otr_tensor value = other ? twos.get() : ones.get();
                                   return otr_engine_set_initial(e, &id, 1, &value);
                                 },
                                 [&](otr_engine* e, const std::string&, bool other) {
                                   return otr_engine_parameter_write(e, other ? 1 : 0,
                                                                     OTR_VALUE_MASTER, &ones);
                                 }};
  for (const Given& call : calls) {
    Host host;
    std::atomic<bool> goes_on{false};
    const auto context = make_context(1, Host::ask, &host);
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      makes_calls = true;
      const Call needs{"", Call::committed, {}};
      const Scene scene = scene_for(needs, kKinds[2], rank, comm);
      EXPECT_OK(otr_comm_barrier(scene.joint.get()));
      if (rank == 0) {
        host.stop = true;
        EXPECT_FAILS(OTR_E_INTERRUPTED, call(scene.handle(), scene.progress, false));
        host.stop = false;
        EXPECT_FAILS(OTR_E_STATE, call(scene.handle(), scene.progress, true), "other arguments");
        goes_on = true;
      } else {
        wait_for(goes_on);
      }
      EXPECT_OK(call(scene.handle(), scene.progress, false));
      EXPECT_EQ(scene.engine->read(1), Values(kElements, 2));
      scene.engine->pass({{0, Values(kElements, 1)}});
      EXPECT_EQ(scene.engine->step().micro_steps, 1);
    });
  }
}

TEST(Interrupts, AnotherCallIsRefusedUntilTheInterruptedOneIsMadeAgain) {
  Host host;
  host.stop = true;
  std::atomic<bool> goes_on{false};
  const auto context = make_context(1, Host::ask, &host);
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[2]));
    while (rank == 0 && !goes_on) {  // the first wait is as good as any
      int64_t id = 0;
      const Tensor initial({2}, {1, 2});
      EXPECT_OK(otr_engine_add_parameter(engine.get(), "w", &initial, nullptr, &id));
      EXPECT_FAILS(OTR_E_INTERRUPTED, otr_engine_commit(engine.get()), "rank 1", "duplicate");
      EXPECT_FAILS(OTR_E_STATE, otr_engine_add_parameter(engine.get(), "v", &initial, nullptr, &id),
                   "otr_engine_commit", "again");
      EXPECT_FAILS(OTR_E_STATE, otr_engine_set_group_value(engine.get(), nullptr, "lr", 1),
                   "otr_engine_commit");
      EXPECT_FAILS(OTR_E_STATE, otr_comm_barrier(comm), "duplicate", "interrupted");
      EXPECT_OK(otr_engine_check(engine.get()));
      goes_on = true;
      host.stop = false;
    }
    wait_for(goes_on);
    if (rank == 1) engine.add("w", {2}, {1, 2});
    engine.commit();
    EXPECT_EQ(engine.read(0), (Values{1, 2}));
  });
}

// The interrupted read with another parameter is refused and leaves the engine as it is.
TEST(Interrupts, OtherArgumentsAreRefused) {
  Host host;
  std::atomic<bool> goes_on{false};
  const auto context = make_context(1, Host::ask, &host);
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[2]));
    engine.add("w", {2000}, Values(2000, 1));
    engine.add("v", {3}, {1, 2, 3});
    engine.commit();
    if (rank == 0) {
      host.stop = true;
      const Tensor w = Tensor::filled({2000}, 0), v = Tensor::filled({3}, 0);
      EXPECT_FAILS(OTR_E_INTERRUPTED, otr_engine_parameter_read(engine.get(), 0, 0, &w), "rank 1");
      EXPECT_FAILS(OTR_E_STATE, otr_engine_parameter_read(engine.get(), 1, 0, &v), "interrupted");
      host.stop = false;
      goes_on = true;
    }
    wait_for(goes_on);
    EXPECT_EQ(engine.read(0), Values(2000, 1));
    EXPECT_EQ(engine.read(1), (Values{1, 2, 3}));
  });
}

// Ranks 0 and 1 have agreed on their engine and wait for rank 2, which has another one.
TEST(Interrupts, AJointStepGoesOnAfterTheEnginesThatHaveAgreed) {
  Host host;
  std::atomic<bool> goes_on{false};
  std::atomic<int> interrupted{0};
  const auto context = make_context(1, Host::ask, &host);
  run_ranks(context.get(), 3, [&](int32_t rank, otr_comm* comm) {
    otr_comm* part = nullptr;
    ASSERT_OK(otr_comm_split(comm, rank / 2, rank, &part));
    const Owned<otr_comm> owned(part);
    Engine engine(part, config_of(kKinds[0]));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    engine.pass({{0, Values(kElements, 1)}});
    EXPECT_OK(otr_comm_barrier(comm));
    otr_engine* handle = engine.get();
    otr_step_report report = OTR_STEP_REPORT_INIT;
    if (rank < 2) {
      pause(150);  // both have to be in the joint part before one is interrupted
      std::thread button([&] {
        pause(300);
        host.stop = true;
      });
      EXPECT_FAILS(OTR_E_INTERRUPTED, otr_step_many(&handle, 1, comm, &report), "rank 2",
                   "agree on a joint step");
      EXPECT_FAILS(OTR_E_STATE, otr_engine_step(handle, nullptr), "otr_step_many");
      button.join();
      if (++interrupted == 2) {
        host.stop = false;
        goes_on = true;
      }
    }
    wait_for(goes_on);
    EXPECT_OK(otr_step_many(&handle, 1, comm, &report));
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    engine.pass({{0, Values(kElements, 1)}});
    EXPECT_EQ(engine.step().applied_steps, 2);
  });
}

// Memory whose first use takes 0.6 s: a rank that is slow in the middle of an operation.
class SlowMemory {
 public:
  static constexpr size_t kBytes = 2 << 20;
  SlowMemory() {
    data_ = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data_, MAP_FAILED);
    struct sigaction action = {};
    action.sa_handler = [](int) {
      usleep(600000);
      mprotect(data_, kBytes, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~SlowMemory() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(data_, kBytes);
  }
  SlowMemory(const SlowMemory&) = delete;
  SlowMemory& operator=(const SlowMemory&) = delete;
  static void* data() { return data_; }

 private:
  static inline void* data_ = nullptr;
  struct sigaction before_ = {};
};

TEST(Interrupts, InTheMiddleOfMovingDataTheGroupIsLost) {
  Host host;
  const SlowMemory slow;
  const auto context = make_context(1, Host::ask, &host);
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    EXPECT_OK(otr_comm_barrier(comm));
    if (rank == 1) {
      EXPECT_FAILS(OTR_E_ABORTED, otr_comm_broadcast(comm, SlowMemory::data(), 2 << 20, 0),
                   "rank 0", "interrupted", "moving data");
      return;
    }
    std::vector<char> data(SlowMemory::kBytes);
    std::thread button([&] {
      pause(150);
      host.stop = true;
    });
    const auto begin = Clock::now();
    EXPECT_FAILS(OTR_E_INTERRUPTED, otr_comm_broadcast(comm, data.data(), data.size(), 0), "rank 1",
                 "cannot go on");
    EXPECT_LT(seconds_since(begin), 0.5);
    button.join();
    EXPECT_FAILS(OTR_E_ABORTED, otr_comm_broadcast(comm, data.data(), data.size(), 0), "rank 0");
  });
}

TEST(Interrupts, AttachIsOverForAll) {
  Host host;
  host.stop = true;
  const auto context = make_context(1, Host::ask, &host);
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.world_size = 3;
  const std::string job = "c_api_interrupt_" + std::to_string(getpid());
  options.job = job.c_str();
  for (const int32_t rank : {0, 1}) {
    options.rank = rank;
    otr_comm* comm = nullptr;
    const auto begin = Clock::now();
    EXPECT_FAILS(OTR_E_INTERRUPTED, otr_comm_create_shm(context.get(), &options, &comm),
                 rank == 0 ? "ranks 1, 2" : "rank 0", job);
    EXPECT_LT(seconds_since(begin), 0.5);
    EXPECT_EQ(comm, nullptr);
  }
}

std::atomic<int32_t> signalled{0};
static_assert(std::atomic<int32_t>::is_always_lock_free);

TEST(Interrupts, ASignalHandlersFlagIsEnough) {
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { signalled = 1; };
  sigaction(SIGINT, &action, &before);
  signalled = 0;
  const auto context = make_context(1, [](void*) -> int32_t { return signalled; }, nullptr);
  std::atomic<bool> over{false};
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[3]));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    if (rank == 1) return wait_for(over);
    engine.pass({{0, Values(kElements, 1)}});
    Clock::time_point pressed;
    std::thread keyboard([&] {
      pause(100);
      pressed = Clock::now();
      kill(getpid(), SIGINT);
    });
    EXPECT_FAILS(OTR_E_INTERRUPTED, otr_engine_step(engine.get(), nullptr), "begin a step",
                 "rank 1");
    keyboard.join();
    EXPECT_LT(seconds_since(pressed), 0.5);
    over = true;
  });
  sigaction(SIGINT, &before, nullptr);
}

// What the callback may do: end the job for all.
TEST(Interrupts, TheCallbackMayAbort) {
  static std::atomic<otr_engine*> engine{nullptr};
  const auto context = make_context(
      1,
      [](void*) -> int32_t {
        if (engine != nullptr) {
          EXPECT_OK(otr_engine_abort(engine, "the callback's reason"));
        }
        return 0;
      },
      nullptr);
  std::atomic<bool> over{false};
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine made(comm, config_of(kKinds[0]));
    made.commit();
    if (rank == 1) return wait_for(over);
    made.pass({});
    engine = made.get();
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_step(made.get(), nullptr), "the callback's reason");
    engine = nullptr;
    over = true;
  });
}

TEST(Interrupts, NobodyIsAskedWhereNobodyWaits) {
  Host host;
  host.stop = true;
  const auto context = make_context(2, Host::ask, &host);
  const auto comm = make_self(context.get());
  Engine engine(comm.get(), config_of(kKinds[0]));
  engine.add("w", {kElements}, Values(kElements, 1));
  engine.commit();
  for (int i = 0; i < 5; ++i) {
    engine.pass({{0, Values(kElements, 1)}});
    engine.step();
  }
  EXPECT_OK(otr_comm_barrier(comm.get()));
  EXPECT_OK(otr_engine_finalize(engine.get()));
  EXPECT_EQ(host.asked, 0);
}

}  // namespace

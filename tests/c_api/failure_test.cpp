// SPDX-License-Identifier: Apache-2.0
// Ranks that leave, abort or stay silent, and what is left of the others' engines.
#include <atomic>
#include <chrono>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;
using Clock = std::chrono::steady_clock;

void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Where ranks wait for each other without the library.
class Meeting {
 public:
  explicit Meeting(int number) : number_(number) {}
  void come() {
    ++came_;
    wait();
  }
  void wait() const {
    while (came_ < number_) pause(1);
  }

 private:
  int number_;
  std::atomic<int> came_{0};
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Failure : public testing::TestWithParam<Kind> {
 protected:
  Engine committed(otr_comm* comm, int32_t accumulation = 1) {
    Engine engine(comm, config_of(GetParam(), accumulation));
    engine.add("a", {600}, Values(600, 1));
    engine.add("b", {600}, Values(600, 1));
    engine.commit();
    return engine;
  }
  // Poisoned: only queries and destroy are answered.
  void expect_poisoned(const Engine& engine, int32_t cause) {
    otr_engine* e = engine.get();
    const int64_t id = 0;
    otr_tensor t;
    otr_pass* pass = nullptr;
    const Tensor value = Tensor::filled({600}, 1);
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(e, nullptr), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_acquire(e, &id, 1, nullptr, &t), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_release(e, &id, 1, nullptr), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_prefetch(e, &id, 1, nullptr), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_pass_begin(e, nullptr, 0, nullptr, &pass), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_parameter_read(e, 0, 0, &value), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_parameter_write(e, 0, OTR_VALUE_MASTER, &value),
                 "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_reduce(e, nullptr), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_step_many(&e, 1, nullptr, nullptr), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_local_read(e, 0, 0, &value), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_set_trainable(e, 0, 0), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_set_boundary(e, OTR_BOUNDARY_NO), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_finalize(e), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_commit(e), "Destroy");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_set_group_value(e, nullptr, "lr", 1), "Destroy");
    EXPECT_EQ(otr_engine_check(e), cause) << otr_last_error_message();
    int64_t count = 0;
    EXPECT_OK(otr_engine_parameter_count(e, &count));
    EXPECT_EQ(count, 2);
    EXPECT_OK(otr_engine_live_children(e, &count));
    double lr = 0;
    EXPECT_OK(otr_engine_get_group_value(e, nullptr, "lr", &lr));
    EXPECT_EQ(lr, 0.125);
    size_t size = 0;
    EXPECT_OK(otr_engine_config(e, nullptr, &size));
    size = 0;
    EXPECT_OK(otr_engine_memory(e, nullptr, &size));
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Failure, testing::ValuesIn(kKinds), name_of);

TEST_P(Failure, ARankThatDestroysItsEngine) {
  Meeting passes(2);
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    if (rank == 1) {
      passes.wait();
      engine.reset();
      return;
    }
    engine.pass({{0, Values(600, 1)}});
    passes.come();
    const auto begin = Clock::now();
    EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_step(engine.get(), nullptr), "rank 1");
    EXPECT_LT(seconds_since(begin), 1);
    expect_poisoned(engine, OTR_E_PEER_DEAD);
  });
}

// As garbage collectors do: each rank at a time of its own, in the middle of a window.
TEST_P(Failure, ARankThatDropsItsEngineLeavesTheOthersToTheirNextOne) {
  Meeting passes(3);
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine dropped = committed(comm);
    dropped.pass({{0, Values(600, 1)}, {1, Values(600, 1)}});
    passes.come();
    if (rank == 1) dropped.reset();
    // Rank 0 has asked the engine that is gone, rank 2's background has.
    if (rank == 0) {
      EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_step(dropped.get(), nullptr), "rank");
    }
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Engine next = committed(comm);
    next.pass({{0, Values(600, 1)}});
    EXPECT_EQ(next.step().outcome, OTR_STEP_APPLIED);
    EXPECT_OK(otr_engine_finalize(next.get()));
  });
}

TEST_P(Failure, ARankThatLeavesBeforeCommit) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("a", {600}, Values(600, 1));
    engine.add("b", {600}, Values(600, 1));
    if (rank == 1) return;
    EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_commit(engine.get()), "rank 1");
    expect_poisoned(engine, OTR_E_PEER_DEAD);
  });
}

TEST_P(Failure, ARankThatLeavesInsteadOfFinalizing) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    if (rank == 1) return;
    EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_finalize(engine.get()), "rank 1");
    expect_poisoned(engine, OTR_E_PEER_DEAD);
  });
}

TEST_P(Failure, Abort) {
  Meeting passes(3);
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    engine.pass({{0, Values(600, 1)}});
    passes.come();
    if (rank == 2) {
      pause(50);
      EXPECT_OK(otr_engine_abort(engine.get(), "the host's reason"));
    }
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_step(engine.get(), nullptr), "rank 2",
                 "the host's reason");
    expect_poisoned(engine, OTR_E_ABORTED);
    EXPECT_OK(otr_engine_abort(engine.get(), "again")) << "an emergency end is never refused";
  });
}

TEST_P(Failure, AbortBeforeCommit) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("a", {600}, Values(600, 1));
    engine.add("b", {600}, Values(600, 1));
    if (rank == 1) {
      EXPECT_OK(otr_engine_abort(engine.get(), nullptr));
    }
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_commit(engine.get()), "rank 1");
    expect_poisoned(engine, OTR_E_ABORTED);
  });
}

TEST_P(Failure, AbortAfterFinalizeIsHarmless) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine = committed(comm);
    EXPECT_OK(otr_engine_finalize(engine.get()));
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_OK(otr_engine_abort(engine.get(), "late"));
    EXPECT_OK(otr_engine_check(engine.get())) << "there is nothing left that could fail";
  });
}

TEST_P(Failure, AbortFromBesideAStep) {
  std::atomic<bool> ended{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    if (rank == 1) {
      while (!ended) pause(1);
      return;
    }
    engine.pass({});
    std::thread other([&] {
      pause(50);
      EXPECT_OK(otr_engine_abort(engine.get(), "from beside"));
    });
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_step(engine.get(), nullptr), "rank 0", "from beside");
    other.join();
    ended = true;
  });
}

TEST_P(Failure, ASilentRank) {
  std::atomic<int> ended{0};
  run_ranks(
      3,
      [&](int32_t rank, otr_comm* comm) {
        Engine engine = committed(comm);
        if (rank == 1) {
          while (ended < 2) pause(1);
          EXPECT_EQ(otr_engine_check(engine.get()), OTR_E_TIMEOUT) << otr_last_error_message();
          return;
        }
        engine.pass({{0, Values(600, 1)}});
        const auto begin = Clock::now();
        EXPECT_FAILS(OTR_E_TIMEOUT, otr_engine_step(engine.get(), nullptr), "rank 1");
        EXPECT_LT(seconds_since(begin), 3);
        ++ended;
        expect_poisoned(engine, OTR_E_TIMEOUT);
      },
      1.0);
}

// Work in the background fails while the host is inside a pass: the next calls say so, nothing
// hangs.
TEST_P(Failure, InsideAPass) {
  Meeting begun(2);
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    auto pass = engine.begin();
    begun.come();
    if (rank == 1) {
      EXPECT_OK(otr_engine_abort(engine.get(), "stop"));
    } else {
      while (otr_engine_check(engine.get()) == OTR_OK) pause(1);
      EXPECT_FAILS(OTR_E_ABORTED, otr_engine_check(engine.get()), "rank 1", "stop");
    }
    const Tensor grad = Tensor::filled({600}, 1);
    for (const int64_t id : {0, 1}) {  // may be taken or refused
      const int32_t status = otr_pass_add_grad(pass.get(), id, &grad, nullptr);
      EXPECT_TRUE(status == OTR_OK || status == OTR_E_POISONED || status == OTR_E_ABORTED)
          << otr_status_name(status);
    }
    static_cast<void>(otr_pass_end(pass.get()));
    pass.reset();
    const int32_t status = otr_engine_step(engine.get(), nullptr);
    EXPECT_TRUE(status == OTR_E_ABORTED || status == OTR_E_POISONED) << otr_status_name(status);
    expect_poisoned(engine, OTR_E_ABORTED);
  });
}

// Destroying never waits, whatever the others do, even with gradients on their way.
TEST_P(Failure, DestroyDoesNotWait) {
  std::atomic<bool> destroyed{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine = committed(comm);
    if (rank == 0) {
      while (!destroyed) pause(1);
      return;
    }
    auto pass = engine.begin();
    Engine::add(pass, 0, {600}, Values(600, 1));
    Engine::add(pass, 1, {600}, Values(600, 1));
    const auto begin = Clock::now();
    engine.reset();
    pass.reset();
    EXPECT_LT(seconds_since(begin), 2);
    destroyed = true;
  });
}

// One engine's failure inside a step does not end another communicator.
TEST(OneGroup, FailureIsNotAnothers) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    const auto context = make_context();
    const auto other = make_self(context.get());
    Engine engine(other.get(), "");
    engine.add("w", {1}, {1});
    engine.commit();
    EXPECT_OK(otr_comm_abort(comm, "only this group"));
    EXPECT_FAILS(OTR_E_ABORTED, otr_comm_barrier(comm), "only this group");
    engine.pass({{0, {1}}});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  });
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// A save or a load of several ranks in which a call of one of them fails, or the process ends: what
// was saved before or the new one loads, every rank says the same, and training goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "c_api/src/handles.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"
#include "tests/engine/ranks.h"

namespace outrigger::test {
namespace {

using checkpoint::Files;
using checkpoint::test::FaultyFiles;
using checkpoint::test::Operation;
using checkpoint::test::quick_files;
using checkpoint::test::TemporaryFolder;

constexpr int32_t kWorld = 2;
constexpr int64_t kCount = 3000;
constexpr const char* kConfig =
    R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 1024}, "bf16": {"enabled": true},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";

// A rank's engine of one parameter, whose values follow from the steps that it made.
class Trained {
 public:
  explicit Trained(otr_comm* comm) {
    NEED(otr_engine_create(comm, kConfig, &engine_));
    std::vector<float> values(kCount, 0.5F);
    const otr_tensor initial = tensor(values);
    int64_t id = 0;
    NEED(otr_engine_add_parameter(engine_, "w", &initial, nullptr, &id));
    NEED(otr_engine_commit(engine_));
  }
  ~Trained() { otr_engine_destroy(engine_); }
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;

  void step() {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i + steps_ * 7) % 13) - 6;
    }
    const otr_tensor grad = tensor(values);
    otr_pass* pass = nullptr;
    NEED(otr_pass_begin(engine_, nullptr, 0, nullptr, &pass));
    NEED(otr_pass_add_grad(pass, 0, &grad, nullptr));
    NEED(otr_pass_end(pass));
    otr_pass_destroy(pass);
    NEED(otr_engine_step(engine_, nullptr));
    ++steps_;
  }
  std::vector<float> values() {
    std::vector<float> all;
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      std::vector<float> values(kCount);
      const otr_tensor out = tensor(values);
      NEED(otr_engine_parameter_read(engine_, 0, value, &out));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  // "" or why it failed.
  std::string save(const TemporaryFolder& folder, const char* tag, Files& files,
                   const engine::SaveOptions& options = {}) {
    return text_of([&] { own().save(folder.path(), tag, options, files); });
  }
  std::string wait_save() {
    return text_of([&] { static_cast<void>(own().wait_save(-1)); });
  }
  // To its end, with steps meanwhile where it is an asynchronous one.
  std::string whole_save(const TemporaryFolder& folder, const char* tag, Files& files,
                         const engine::SaveOptions& options) {
    std::string text = save(folder, tag, files, options);
    if (!options.asynchronous) return text;
    step();
    const std::string later = wait_save();
    return text.empty() ? later : text;
  }
  engine::Saver::State state() { return own().wait_save(0).state; }
  std::string finalize() {
    return text_of([&] { own().finalize(); });
  }
  void destroy() { otr_engine_destroy(std::exchange(engine_, nullptr)); }
  std::string load(const TemporaryFolder& folder, Files& files, const char* tag = "") {
    return text_of([&] { own().load(folder.path(), tag, {}, files); });
  }
  void check() { own().check(); }
  bool is_sound() {
    return text_of([&] { own().check(); }).empty();
  }

 private:
  engine::Engine& own() { return *c_api::get(engine_, "engine"); }
  static std::string text_of(const std::function<void()>& call) {
    try {
      call();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  otr_tensor tensor(std::vector<float>& values) {
    otr_tensor t;
    NEED(otr_tensor_init(values.data(), "float32", 1, &count_, &t));
    return t;
  }
  otr_engine* engine_ = nullptr;
  int64_t count_ = kCount;
  size_t steps_ = 0;
};

engine::SaveOptions with(bool replace, bool asynchronous) {
  engine::SaveOptions options;
  options.replace = replace;
  options.asynchronous = asynchronous;
  return options;
}

// Every rank's text.
using Body = std::function<std::string(int32_t rank, Trained& trained)>;
std::vector<std::string> on_ranks(const Body& body) {
  std::vector<std::string> texts(kWorld);
  const auto results =
      run_ranks(Provider::threads, kWorld, [&](int32_t rank, otr_context*, otr_comm* comm) {
        Trained trained(comm);
        texts[static_cast<size_t>(rank)] = body(rank, trained);
        return Bytes();
      });
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
  return texts;
}

std::string whole_tag(const TemporaryFolder& folder) {
  engine::OpenCheckpoint opened(folder.path(), "");
  opened.verify();
  const std::string text = opened.describe();
  const size_t from = text.find(':') + 2;
  return text.substr(from, text.find('"', from) - from);
}

// Calls of one rank in a save that replaces nothing, or in a load.
int64_t calls_of(int32_t which, bool saves, bool asynchronous = false) {
  TemporaryFolder folder;
  int64_t calls = 0;
  on_ranks([&](int32_t rank, Trained& t) {
    EXPECT_EQ(t.save(folder, "old", quick_files()), "");
    FaultyFiles files([](int64_t, Operation) { return 0; });
    const std::string text = saves ? t.whole_save(folder, "new", files, with(false, asynchronous))
                                   : t.load(folder, files);
    if (rank == which) calls = files.calls();
    return text;
  });
  EXPECT_GT(calls, 3);
  return calls;
}

class SaveFault : public testing::TestWithParam<bool> {};  // asynchronous

TEST_P(SaveFault, AnyCallOfAnyRank) {
  for (int32_t which = 0; which < kWorld; ++which) {
    const int64_t calls = calls_of(which, true, GetParam());
    for (int64_t n = 0; n < calls; ++n) {
      for (const int reason : {-EIO, -ENOSPC}) {
        SCOPED_TRACE(format_text("rank {} call {} {}", which, n, reason));
        TemporaryFolder folder;
        const auto texts = on_ranks([&](int32_t rank, Trained& t) {
          t.step();
          EXPECT_EQ(t.save(folder, "old", quick_files()), "");
          t.step();
          FaultyFiles files(checkpoint::test::failing_at(rank == which ? n : -1, reason));
          std::string text = t.whole_save(folder, "new", files, with(false, GetParam()));
          t.check();
          t.step();
          EXPECT_EQ(t.save(folder, "next", quick_files()), "") << "the next one is not in its way";
          return text;
        });
        EXPECT_EQ(texts[0], texts[1]) << "all ranks say the same";
        if (!texts[0].empty()) {
          EXPECT_NE(texts[0].find(format_text("on rank {}", which)), std::string::npos) << texts[0];
          EXPECT_NE(texts[0].find(std::strerror(-reason)), std::string::npos) << texts[0];
        }
        EXPECT_EQ(whole_tag(folder), "next");
        for (const std::string& name : folder.open().names()) {
          EXPECT_FALSE(name.starts_with(".tmp")) << name;
        }
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, SaveFault, testing::Bool());

// While everything is checked, a failure changes nothing. Later, when it is read once more and
// taken, it ends the engine.
TEST(CheckpointFault, AnyCallOfAnyRankInALoad) {
  for (int32_t which = 0; which < kWorld; ++which) {
    const int64_t calls = calls_of(which, false);
    int64_t refused = 0, poisoned = 0;
    for (int64_t n = 0; n < calls; ++n) {
      SCOPED_TRACE(format_text("rank {} call {}", which, n));
      TemporaryFolder folder;
      bool goes_on = true;
      const auto texts = on_ranks([&](int32_t rank, Trained& t) {
        EXPECT_EQ(t.save(folder, "old", quick_files()), "");
        t.step();
        const std::vector<float> before = t.values();
        FaultyFiles files(checkpoint::test::failing_at(rank == which ? n : -1, -EIO));
        std::string text = t.load(folder, files);
        const bool sound = t.is_sound();
        if (rank == which) goes_on = sound;
        if (!sound) return text;
        if (!text.empty()) {
          EXPECT_TRUE(before == t.values()) << "nothing has changed";
        }
        EXPECT_EQ(t.load(folder, quick_files()), "");
        EXPECT_TRUE(before != t.values());
        return text;
      });
      if (goes_on) {
        EXPECT_EQ(texts[0], texts[1]);
        refused += texts[0].empty() ? 0 : 1;
      } else {
        ++poisoned;
        for (const std::string& text : texts) EXPECT_NE(text, "");
      }
      if (HasFailure()) return;
    }
    EXPECT_GT(refused, 10);
    EXPECT_LT(poisoned, refused);
  }
}

TEST(CheckpointFault, AnAsynchronousFailureIsToldOnceOnAllRanks) {
  TemporaryFolder folder;
  const auto texts = on_ranks([&](int32_t rank, Trained& t) {
    EXPECT_EQ(t.state(), engine::Saver::State::none);
    FaultyFiles failing(checkpoint::test::failing(Operation::sync, 0, -EIO, true));
    Files& files = rank == 1 ? static_cast<Files&>(failing) : quick_files();
    const auto begin = [&](const char* tag) {
      EXPECT_EQ(t.save(folder, tag, files, with(false, true)), "");
      t.step();
    };
    const auto expect_told = [&](const std::string& text) {
      EXPECT_NE(text.find("the asynchronous save of checkpoint \"x\" failed"), std::string::npos)
          << text;
      EXPECT_NE(text.find("on rank 1"), std::string::npos) << text;
    };
    begin("x");
    std::string text = t.wait_save();
    expect_told(text);
    EXPECT_EQ(t.wait_save(), "") << "told once";
    EXPECT_EQ(t.state(), engine::Saver::State::failed);
    begin("x");
    expect_told(t.save(folder, "good", quick_files()));
    EXPECT_EQ(t.save(folder, "good", quick_files()), "");
    begin("x");
    expect_told(t.load(folder, quick_files()));
    EXPECT_EQ(t.load(folder, quick_files()), "");
    begin("x");
    expect_told(t.finalize());
    EXPECT_EQ(t.finalize(), "");
    return text;
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(whole_tag(folder), "good");
}

// Holds what rank 1 writes until it is opened.
class Gate {
 public:
  // Its n-th call of this kind and those that follow.
  FaultyFiles::Plan plan(Operation held = Operation::sync, int n = 1) {
    return [this, held, n](int64_t, Operation called) {
      std::unique_lock lock(mutex_);
      if (called == held && ++calls_ >= n) opened_.wait(lock, [&] { return open_; });
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
  int calls_ = 0;
  bool open_ = false;
};

TEST(CheckpointFault, ASaveWhileOneIsUnderWayWaitsOrIsRefused) {
  TemporaryFolder folder;
  Gate gate;
  on_ranks([&](int32_t rank, Trained& t) {
    FaultyFiles gated(gate.plan());
    Files& files = rank == 1 ? static_cast<Files&>(gated) : quick_files();
    EXPECT_EQ(t.save(folder, "x", files, with(false, true)), "");
    const std::vector<float> saved = t.values();
    for (int i = 0; i < 3; ++i) t.step();
    EXPECT_EQ(t.state(), engine::Saver::State::under_way);
    engine::SaveOptions refuse = with(false, true);
    refuse.refuse_when_busy = true;
    const std::string refused = t.save(folder, "y", quick_files(), refuse);
    EXPECT_NE(refused.find("save of checkpoint \"x\" is under way"), std::string::npos) << refused;
    EXPECT_FALSE(folder.open().has("x"));
    std::thread opener;
    if (rank == 1) {
      opener = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        gate.open();
      });
    }
    EXPECT_EQ(t.save(folder, "y", quick_files(), with(false, true)), "") << "waited for x";
    EXPECT_TRUE(folder.open().has("x"));
    if (opener.joinable()) opener.join();
    EXPECT_EQ(t.wait_save(), "");
    EXPECT_EQ(whole_tag(folder), "y");
    EXPECT_EQ(t.load(folder, quick_files(), "x"), "");
    EXPECT_TRUE(t.values() == saved);
    return "";
  });
}

// Rank 0 waits for rank 1's file, which never comes: it was not even begun, or not ended.
TEST(CheckpointFault, DestroyGivesASaveUp) {
  constexpr int kOfItself = 3;  // after the two folders'
  for (const auto& [held, n] : {std::pair(Operation::open, kOfItself), {Operation::sync, 1}}) {
    TemporaryFolder folder;
    Gate gate;
    std::atomic<bool> gone{false};
    FaultyFiles gated(gate.plan(held, n));
    on_ranks([&](int32_t rank, Trained& t) {
      EXPECT_EQ(t.save(folder, "old", quick_files()), "");
      Files& files = rank == 1 ? static_cast<Files&>(gated) : quick_files();
      EXPECT_EQ(t.save(folder, "x", files, with(false, true)), "");
      if (rank == 0) {
        t.destroy();
        gone = true;
      } else {
        while (!gone) std::this_thread::yield();
        gate.open();
        const std::string text = t.wait_save();
        EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
      }
      return "";
    });
    EXPECT_EQ(whole_tag(folder), "old");
    EXPECT_EQ(folder.open().names(), (std::vector<std::string>{".lock", "latest", "old"}));
  }
}

// In a process of its own, whose threads are the ranks: one of them ends it at its n-th call.
int ends_at(const TemporaryFolder& folder, int32_t which, int64_t n, bool asynchronous) {
  const pid_t child = fork();
  if (child == 0) {
    on_ranks([&](int32_t rank, Trained& t) {
      FaultyFiles files([&](int64_t number, Operation) {
        if (rank == which && number == n) _exit(7);
        return 0;
      });
      for (int i = 0; i < 2; ++i) t.step();
      return t.whole_save(folder, "a", files, with(true, asynchronous));
    });
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_P(SaveFault, TheProcessEndsAtAnyCall) {
  for (int32_t which = 0; which < kWorld; ++which) {
    int64_t n = 0;
    for (int code = 7; code == 7; ++n) {
      SCOPED_TRACE(format_text("rank {} call {}", which, n));
      TemporaryFolder folder;
      on_ranks([&](int32_t, Trained& t) { return t.save(folder, "a", quick_files()); });
      code = ends_at(folder, which, n, GetParam());
      ASSERT_TRUE(code == 7 || code == 0) << code;
      EXPECT_EQ(whole_tag(folder), "a");
      on_ranks([&](int32_t, Trained& t) {
        EXPECT_EQ(t.load(folder, quick_files()), "");
        EXPECT_EQ(t.save(folder, "b", quick_files()), "");
        return "";
      });
      const std::vector<std::string> names = folder.open().names();
      EXPECT_EQ(names, (std::vector<std::string>{".lock", "a", "b", "latest"}));
      if (HasFailure()) return;
    }
    EXPECT_GT(n, GetParam() ? 7 : 10);
  }
}

// Saves without end, told through a pipe as they begin, and a kill at a random moment of one.
void save_without_end(const TemporaryFolder& folder, int told) {
  on_ranks([&](int32_t rank, Trained& t) {
    if (const std::string text = t.load(folder, quick_files()); !text.empty()) _exit(9);
    for (int i = 1;; ++i) {
      t.step();
      if (rank == 0 && write(told, "s", 1) != 1) _exit(6);
      const std::string tag = format_text("s{}", i % 3);
      if (!t.save(folder, tag.c_str(), checkpoint::posix_files(), with(true, i % 2 == 0)).empty())
        _exit(8);
    }
    return "";
  });
}

TEST(CheckpointFault, ThreeHundredKills) {
  std::mt19937 random(5);
  TemporaryFolder folder;
  on_ranks([&](int32_t, Trained& t) { return t.save(folder, "s0", quick_files()); });
  int64_t later = 0;
  for (int round = 0; round < 300; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      save_without_end(folder, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    char byte = 0;
    for (size_t begun = 1 + random() % 3; begun > 0; --begun) {
      ASSERT_EQ(read(ends[0], &byte, 1), 1) << "it ended by itself";
    }
    usleep(static_cast<useconds_t>(random() % 6000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    close(ends[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << WEXITSTATUS(status);
    later += whole_tag(folder) == "s0" ? 0 : 1;
  }
  EXPECT_GT(later, 100) << "saves were reached";
}

}  // namespace
}  // namespace outrigger::test

// SPDX-License-Identifier: Apache-2.0
// A guest in the host's process: it prints nothing, leaves signals and the floating-point
// environment alone, and takes everything with it when it goes.
#include <dirent.h>
#include <fenv.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "../core/shared_memory.h"
#include "flat.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 400000;  // big enough for pages of its own

// Everything a host does, errors and failures included.
void whole_scenario() {
  for (const Kind& kind : kKinds) {
    run_ranks(2, [&](int32_t, otr_comm* comm) {
      Engine engine(comm, config_of(kind));
      engine.add("w", {kCount}, Values(kCount, 1));
      engine.commit();
      const int64_t id = 0;
      otr_tensor t;
      EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &t));
      auto pass = engine.begin();
      EXPECT_OK(otr_pass_get_slot(pass.get(), 0, &t));
      for (int64_t i = 0; i < kCount; ++i) set_value(t, i, 1);
      EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &t, nullptr));
      Engine::add(pass, 0, {kCount}, Values(kCount, 1));
      Engine::end(pass);
      engine.step();
      int64_t none = 0;
      EXPECT_NE(otr_engine_parameter_id(engine.get(), "none", &none), OTR_OK);
      if (kind.stage == 3) {
        pass.reset();
        return;  // without finalize
      }
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
  run_ranks(2, [](int32_t rank, otr_comm* comm) {  // a failed job
    Engine engine(comm, "");
    engine.add("w", {rank + 1}, Values(static_cast<size_t>(rank + 1), 1));
    EXPECT_NE(otr_engine_commit(engine.get()), OTR_OK);
  });
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), Values(kCount, 1), Values(kCount, 1));
  step(optimizer, {flat.shard()});
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.world_size = 2;
  options.job = "c_api_process_test";
  options.timeout = 0.1;
  otr_comm* comm = nullptr;
  EXPECT_NE(otr_comm_create_shm(context.get(), &options, &comm), OTR_OK);  // nobody else comes
  options.world_size = 1;
  EXPECT_OK(otr_comm_create_shm(context.get(), &options, &comm));
  {
    const Owned<otr_comm> owned(comm);
    Engine engine(comm, config_of(kKinds[3]));
    engine.add("w", {kCount}, Values(kCount, 1));
    engine.commit();
    engine.pass({{0, Values(kCount, 1)}});
    engine.step();
  }
}

std::vector<std::string> entries_of(const char* folder) {
  std::vector<std::string> names;
  DIR* dir = opendir(folder);
  const std::string own = std::to_string(dirfd(dir));
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." &&
        !(std::string_view(folder) == "/proc/self/fd" && name == own))
      names.push_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

// A thread that was joined may be listed for a moment longer.
size_t threads_now(size_t expected) {
  for (int i = 0; i < 200 && entries_of("/proc/self/task").size() > expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return entries_of("/proc/self/task").size();
}

int64_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

std::vector<std::string> shared_mappings() {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights;
    words >> range >> rights;
    if (rights.back() == 's') found.push_back(line);
  }
  return found;
}

TEST(Process, NothingIsPrinted) {
  fflush(stdout);
  fflush(stderr);
  const int out = dup(1), err = dup(2);
  const int captured = memfd_create("captured", 0);
  ASSERT_GE(captured, 0);
  dup2(captured, 1);
  dup2(captured, 2);
  whole_scenario();
  fflush(stdout);
  fflush(stderr);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  std::string text(static_cast<size_t>(lseek(captured, 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(captured, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  close(captured);
  EXPECT_EQ(text, "");
}

TEST(Process, NothingIsLeftOver) {
  whole_scenario();  // lazily made things of the C library, thread stacks in its cache
  const auto descriptors = entries_of("/proc/self/fd");
  const size_t threads = threads_now(1);
  const auto shared = shared_mappings();
  const auto files = outrigger::test::named_shared_memory();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kRuns = 1;  // each takes seconds, and their memory is the sanitizer's
#else
  constexpr int kRuns = 5;
#endif
  int64_t least_growth = INT64_MAX;
  for (int i = 0; i < kRuns; ++i) {
    const int64_t mapped = mapped_bytes();
    whole_scenario();
    least_growth = std::min(least_growth, mapped_bytes() - mapped);
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(threads_now(threads), threads);
  EXPECT_EQ(shared_mappings(), shared);
  EXPECT_EQ(outrigger::test::named_shared_memory(), files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Each run maps more than 50 MB. A leak grows in every run, the C library's cache of thread
  // stacks only in those that have one thread more alive at a time; less than a block of one engine
  // is the allocator's.
  EXPECT_LT(least_growth, 4 * kCount);
#endif
}

TEST(Process, AFileOfASharedGroupIsGoneWhileItLives) {
  const auto files = outrigger::test::named_shared_memory();
  const auto context = make_context();
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.job = "c_api_no_file";
  options.world_size = 1;
  otr_comm* comm = nullptr;
  ASSERT_OK(otr_comm_create_shm(context.get(), &options, &comm));
  EXPECT_EQ(outrigger::test::named_shared_memory(), files)
      << "the library's shared memory is anonymous";
  otr_comm_destroy(comm);
}

std::vector<struct sigaction> dispositions() {
  std::vector<struct sigaction> all;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    all.push_back(action);
  }
  return all;
}

TEST(Process, SignalsAreTheHosts) {
  sigset_t mask, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  const auto before = dispositions();
  whole_scenario();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  const auto now = dispositions();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(now[i].sa_handler, before[i].sa_handler) << "signal " << i + 1;
    EXPECT_EQ(now[i].sa_flags, before[i].sa_flags) << "signal " << i + 1;
  }
  for (int signal = 1; signal < NSIG; ++signal)
    EXPECT_EQ(sigismember(&after, signal), sigismember(&mask, signal));
}

// Weights after three steps, engine and shard, in all formats.
std::vector<Values> results() {
  std::vector<Values> all;
  for (const Kind& kind : kKinds) {
    Solo solo(config_of(kind, 1, R"("gradient_clipping": 1)"));
    solo.engine.add("w", {5000}, irrational(5000, 1));
    solo.engine.commit();
    for (int i = 0; i < 3; ++i) {
      solo.engine.pass({{0, irrational(5000, i, i == 0 ? 1e-40 : 1)}});  // subnormal numbers, too
      solo.engine.step();
    }
    for (Values& values : solo.engine.everything()) all.push_back(std::move(values));
  }
  return all;
}

#if defined(__x86_64__)
class Modes : public testing::Test {
 protected:
  ~Modes() override { _mm_setcsr(before_); }
  unsigned before_ = _mm_getcsr();
  static constexpr unsigned kFlags = 0x3f;  // sticky exceptions, not modes
};

TEST_F(Modes, AreAsTheyWere) {
  for (const unsigned mode :
       {before_, before_ | 0x8040 /* flush to zero, denormals are zero */, before_ | 0x4000}) {
    _mm_setcsr(mode);
    whole_scenario();
    EXPECT_EQ(_mm_getcsr() & ~kFlags, mode & ~kFlags);
    _mm_setcsr(before_);
  }
}

// A host that flushes denormals or rounds upwards gets the same bits. (The host's own side of the
// test runs in the default mode.)
TEST_F(Modes, OfTheHostDoNotShowInTheResults) {
  const auto run = [&](unsigned mode) {
    std::vector<Values> all;
    for (const Kind& kind : kKinds) {
      Solo solo(config_of(kind, 3, R"("gradient_clipping": 0.7)"));
      solo.engine.add("w", {5000}, irrational(5000, 1));
      solo.engine.commit();
      for (int i = 0; i < 6; ++i) {
        const Tensor grad({5000}, irrational(5000, i, i < 3 ? 1e-40 : 1));
        const Tensor output({3}, {1, 0.3, 1e-39});
        _mm_setcsr(mode);
        otr_pass* pass = nullptr;
        int32_t failures = 0;
        failures |= otr_pass_begin(solo.engine.get(), &output, 1, nullptr, &pass);
        failures |= otr_pass_add_grad(pass, 0, &grad, nullptr);
        failures |= otr_pass_end(pass);
        failures |= otr_engine_step(solo.engine.get(), nullptr);
        _mm_setcsr(before_);
        EXPECT_EQ(failures, OTR_OK) << otr_last_error_message();
        otr_tensor scaled;
        EXPECT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
        all.push_back(values_of(scaled));
        otr_pass_destroy(pass);
      }
      for (Values& values : solo.engine.everything()) all.push_back(std::move(values));
    }
    return all;
  };
  const auto plain = run(before_);
  EXPECT_EQ(run(before_ | 0x8040), plain) << "flush to zero, denormals are zero";
  EXPECT_EQ(run(before_ | 0x4000), plain) << "rounds upwards";
  EXPECT_EQ(run(before_ | 0x6000), plain) << "rounds towards zero";
}
#endif

// Makes de_DE.UTF-8, whose decimal sign is a comma, in a folder of its own.
class CommaLocale {
 public:
  CommaLocale() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string make = "localedef -f UTF-8 -i de_DE " + folder_ + "/de_DE.UTF-8";
    EXPECT_EQ(std::system(make.c_str()), 0) << "Debian's packages libc-bin and locales have it";
    setenv("LOCPATH", folder_.c_str(), 1);
  }
  ~CommaLocale() {
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

 private:
  std::string folder_ = std::filesystem::temp_directory_path().string() + "/otr-locale-XXXXXX";
};

TEST(Process, TheLocaleDoesNotShow) {
  // A comma as the decimal sign would break configurations and texts.
  const auto plain = results();
  const CommaLocale made;
  ASSERT_NE(setlocale(LC_ALL, "de_DE.UTF-8"), nullptr);
  ASSERT_STREQ(localeconv()->decimal_point, ",");
  EXPECT_EQ(results(), plain);
}

}  // namespace

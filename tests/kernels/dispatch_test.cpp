// SPDX-License-Identifier: Apache-2.0
// The choice of an instruction set, and independence of the host's floating-point settings.
#include <array>
#include <cfenv>
#include <cstdlib>

#include "kernels/float_environment.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

TEST(Dispatch, TheBestIsInUseAndTheOracleIsLast) {
  EXPECT_EQ(simd_name(), targets().front());
  EXPECT_EQ(targets().back(), "oracle");
  EXPECT_EQ(simd_error(), nullptr);
}

TEST(Dispatch, SelectsByNameOnly) {
  EXPECT_FALSE(simd_select("AVX9"));
  EXPECT_FALSE(simd_select(""));
  EXPECT_EQ(simd_name(), targets().front()) << "a refused name changes nothing";
  for_each_target([] {});
}

#if defined(__x86_64__)
TEST(Dispatch, FindsWhatThisProcessorHas) {
  const std::string available = simd_available();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(available.find("AVX2") != std::string::npos, avx2) << available;
  EXPECT_EQ(available.find("AVX3") != std::string::npos, avx3) << available;
}
#elif defined(__aarch64__)
TEST(Dispatch, FindsWhatEachProcessorHas) { EXPECT_STREQ(simd_available(), "NEON,oracle"); }
#endif

// The variable is read at first use, so each case needs a process of its own.
class DispatchEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  template <class Check>
  static void in_new_process(const char* value, const Check& check) {
    EXPECT_EXIT(
        {
          setenv("OTR_SIMD", value, 1);
          std::_Exit(check() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
};

TEST_F(DispatchEnvironment, HonoursAName) {
  in_new_process("oracle",
                 [] { return std::string(simd_name()) == "oracle" && simd_error() == nullptr; });
}

TEST_F(DispatchEnvironment, ReportsAnUnusableNameAndTakesTheBest) {
  in_new_process("SSE1", [] {
    const char* error = simd_error();
    return error != nullptr && std::string(error).find("SSE1") != std::string::npos &&
           std::string(error).find(simd_available()) != std::string::npos &&
           simd_name() == targets().front();
  });
}

// The processor's floating-point settings and, of aarch64 in a register of its own, its flags.
#if defined(__x86_64__)
using Settings = uint32_t;
// Masked; FTZ and DAZ; round down. Then the usual ones, without a flag and with one.
constexpr Settings kHosts[] = {0x1f80 | 0x8040 | 0x2000, 0x1f80, 0x1f80 | 0x4};

Settings settings() { return _mm_getcsr(); }
void set_settings(Settings settings) { _mm_setcsr(settings); }
#elif defined(__aarch64__)
using Settings = std::array<uint64_t, 2>;
// Flush; round down; default NaN. Then the usual ones, without a flag and with one.
constexpr Settings kHosts[] = {{1 << 24 | 2 << 22 | 1 << 25, 0}, {0, 0}, {0, 1 << 1}};

Settings settings() {
  Settings now{};
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(now[0]), "=r"(now[1])::"memory");
  return now;
}
void set_settings(Settings settings) {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(settings[0]), "r"(settings[1]) : "memory");
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
// Every kernel under a hostile host, too: rounding down, denormals flushed on input and output.
TEST(FloatEnvironmentTest, HostSettingsChangeNoBitAndAreRestored) {
  const Rounding s = Rounding::stochastic;
  for_each_target([&] {
    Array wide(Format::float32, 1000), narrow(Format::bfloat16, 1000), half(Format::float16, 1000);
    Array sum(Format::float32, 768), denormal(Format::float32, 1000);
    for (int64_t i = 0; i < 1000; ++i) denormal.set(i, static_cast<uint32_t>(i + 1));
    fill(wide, Values::any, 1);
    fill(sum, Values::any, 2);
    Parameter p({Format::bfloat16, Format::float32, Format::bfloat16, Format::float32, s, s, s},
                1000, 0, Values::any, 3);
    // Small second moments and gradients, so that flushing would show.
    for (int64_t i = 0; i < 500; ++i) p.exp_avg_sq.set(i, static_cast<uint16_t>(i % 128));
    for (int64_t i = 0; i < 500; ++i) p.grad.set(i, static_cast<float>(i) * 1e-20F);

    struct Results {
      Array narrow, half, sum, scaled, added;
      Parameter p;
      NormSum norm;   // of fold
      NormSum small;  // of denormals alone
      UpdateCount count;
    };
    const auto run = [&] {
      Results r = {narrow, half, sum, narrow, wide, p, {}, {}, {}};
      convert(r.narrow.at(), Format::bfloat16, wide.at(), Format::float32, 1000);
      convert(r.half.at(), Format::float16, wide.at(), Format::float32, 1000);
      scale(r.scaled.at(), Format::bfloat16, wide.at(), Format::float32, 0.3F, 1000);
      add(r.added.at(), Format::float32, r.narrow.at(), Format::bfloat16, 1000);
      const void* sources[] = {wide.at(), r.added.at()};
      Fold f;
      f.sources = sources;
      f.world = 2;
      f.accumulator = r.sum.at();
      f.add = true;
      f.count = 768;
      f.norm = &r.norm;
      fold(f);
      sum_of_squares(r.small, denormal.at(), Format::float32, 1000, 0);
      r.count = update(r.p.step(ordinary_scalars()));
      return r;
    };

    const Results want = run();
    EXPECT_GT(value_of(want.small), 0);
    for (const Settings& host : kHosts) {
      const Settings saved = settings();
      set_settings(host);
      const Results got = run();
      const Settings after = settings();
      set_settings(saved);
      EXPECT_EQ(after, host) << "nor does an exception flag leak out";
      expect_same_bits(got.narrow, want.narrow);
      expect_same_bits(got.half, want.half);
      expect_same_bits(got.scaled, want.scaled);
      expect_same_bits(got.added, want.added);
      expect_same_bits(got.sum, want.sum);
      expect_same_bits(got.p, want.p);
      EXPECT_EQ(got.norm.limbs, want.norm.limbs);
      EXPECT_EQ(got.small.limbs, want.small.limbs);
      EXPECT_EQ(got.count.updates, want.count.updates);
      EXPECT_EQ(got.count.vanished, want.count.vanished);
    }
  });
}
#endif

}  // namespace
}  // namespace outrigger::kernels::test

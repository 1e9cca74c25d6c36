// SPDX-License-Identifier: Apache-2.0
// convert, scale and add: every instruction set against the oracle, bit by bit.
#include "kernels/reference/convert.h"

#include "tests/kernels/support.h"

namespace outrigger::kernels::test {
namespace {

// Runs body(to, from, count, shift, values) over all formats, sizes and alignments.
template <class Body>
void over_everything(const Body& body) {
  for (const Format to : kFormats) {
    for (const Format from : kFormats) {
      for (const int64_t count : kSizes) {
        for (const int64_t shift : {0, 1, 3}) {
          body(to, from, count, shift, count % 2 == 0 ? Values::any : Values::ordinary);
        }
      }
    }
  }
}

TEST(Convert, EveryTargetHasTheOraclesBits) {
  for_each_target([] {
    over_everything([](Format to, Format from, int64_t count, int64_t shift, Values values) {
      Array source(from, count, shift), got(to, count, shift), want(to, count, shift);
      fill(source, values, static_cast<uint64_t>(count + 1));
      convert(got.at(), to, source.at(), from, count);
      reference::convert(want.at(), to, source.at(), from, count);
      expect_same_bits(got, want);
    });
  });
}

TEST(Scale, EveryTargetHasTheOraclesBits) {
  for_each_target([] {
    over_everything([](Format to, Format from, int64_t count, int64_t shift, Values values) {
      Array source(from, count, shift), got(to, count, shift), want(to, count, shift);
      fill(source, values, static_cast<uint64_t>(count + 2));
      for (const float factor : {0.3F, 1e30F, -1e-30F, 0.0F}) {
        scale(got.at(), to, source.at(), from, factor, count);
        reference::scale(want.at(), to, source.at(), from, factor, count);
        expect_same_bits(got, want);
      }
    });
  });
}

TEST(Scale, InPlace) {
  for_each_target([] {
    Array x(Format::bfloat16, 300, 1), want(Format::bfloat16, 300);
    fill(x, Values::ordinary, 3);
    reference::scale(want.at(), Format::bfloat16, x.at(), Format::bfloat16, 3.0F, 300);
    scale(x.at(), Format::bfloat16, x.at(), Format::bfloat16, 3.0F, 300);
    expect_same_bits(x, want);
  });
}

TEST(Add, EveryTargetHasTheOraclesBits) {
  for_each_target([] {
    over_everything([](Format to, Format from, int64_t count, int64_t shift, Values values) {
      Array source(from, count, shift), got(to, count, shift);
      fill(source, values, static_cast<uint64_t>(count + 3));
      fill(got, values, static_cast<uint64_t>(count + 4));
      Array want = got;
      add(got.at(), to, source.at(), from, count);
      reference::add(want.at(), to, source.at(), from, count);
      expect_same_bits(got, want);
    });
  });
}

TEST(Convert, EveryTargetRoundsAllOfFloat32sBoundaries) {
  // All 2^16 upper halves with the lower halves around a tie.
  constexpr int64_t kCount = int64_t{7} << 16;
  Array source(Format::float32, kCount), got(Format::bfloat16, kCount);
  int64_t i = 0;
  for (uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (const uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xfffeU, 0xffffU}) {
      source.set(i++, upper << 16 | lower);
    }
  }
  for_each_target([&] {
    convert(got.at(), Format::bfloat16, source.at(), Format::float32, kCount);
    for (int64_t j = 0; j < kCount; ++j) {
      ASSERT_EQ(got.get<uint16_t>(j), reference::round_to_bfloat16(source.get<float>(j)))
          << std::hex << source.bits(j);
    }
  });
}

TEST(Convert, KeepsDenormalsInEveryFormat) {
  for_each_target([] {
    Array source(Format::float32, 64), narrow(Format::bfloat16, 64), back(Format::float32, 64);
    for (int64_t i = 0; i < 64; ++i) source.set(i, static_cast<uint32_t>(i + 1) << 16);
    convert(narrow.at(), Format::bfloat16, source.at(), Format::float32, 64);
    convert(back.at(), Format::float32, narrow.at(), Format::bfloat16, 64);
    expect_same_bits(back, source);
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

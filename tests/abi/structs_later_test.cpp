// SPDX-License-Identifier: Apache-2.0
// How a library whose structs have grown reads and fills those of a program that was built before:
// compiled with a header that tests/abi/grow.py made.
#include <gtest/gtest.h>

#include <cstring>

#include "c_api/src/structs.h"

namespace outrigger::c_api {
namespace {

constexpr size_t kFirst = kFirstSize<otr_step_report>;
static_assert(sizeof(otr_step_report) == kFirst + sizeof(otr_step_report::later));

otr_context_options defaults() {
  otr_context_options o{};
  o.struct_size = sizeof o;
  o.workers = 3;
  o.later[0] = 8;
  o.later[1] = 9;
  return o;
}

TEST(LaterStructs, AnOlderProgramsOptionsHaveTheDefaultsOfWhatTheyLack) {
  otr_context_options given{};
  std::memset(static_cast<void *>(&given), 0xab,
              sizeof given);  // beyond its size: not the program's
  std::memset(static_cast<void *>(&given), 0, kFirstSize<otr_context_options>);
  given.struct_size = kFirstSize<otr_context_options>;
  given.workers = 5;
  const otr_context_options read = read_struct(&given, defaults(), "options");
  EXPECT_EQ(read.workers, 5);
  EXPECT_EQ(read.later[0], 8U);
  EXPECT_EQ(read.later[1], 9U);
  given.struct_size = sizeof given;
  EXPECT_EQ(read_struct(&given, defaults(), "options").later[1], 0xababababababababU);
  for (const size_t size : {size_t{0}, kFirstSize<otr_context_options> - 1, kLargestSize + 1}) {
    given.struct_size = static_cast<uint32_t>(size);
    EXPECT_THROW((void)read_struct(&given, defaults(), "options"), Error) << size;
  }
}

otr_step_report filled(int64_t steps) {
  otr_step_report report{};
  report.applied_steps = steps;
  report.later[0] = report.later[1] = 7;
  return report;
}

TEST(LaterStructs, AnOlderProgramsReportIsFilledToItsEnd) {
  otr_step_report report;
  std::memset(static_cast<void *>(&report), 0xab, sizeof report);
  report.struct_size = kFirst;
  fill_output(&report, "report", [](otr_step_report &full) { full = filled(4); });
  EXPECT_EQ(report.struct_size, kFirst);
  EXPECT_EQ(report.applied_steps, 4);
  EXPECT_EQ(report.later[0], 0xababababababababU) << "beyond the program's struct";
}

TEST(LaterStructs, AnOlderProgramsArrayHasItsOwnStride) {
  alignas(otr_step_report) char memory[3 * kFirst + 8];
  std::memset(memory, 0xab, sizeof memory);
  const auto at = [&](size_t i) {
    return reinterpret_cast<otr_step_report *>(memory + i * kFirst);
  };
  for (size_t i = 0; i < 3; ++i) at(i)->struct_size = kFirst;
  OutputArray<otr_step_report> out(at(0), 3, "report", true);
  for (size_t i = 0; i < 3; ++i) out.write(i, filled(static_cast<int64_t>(i) + 1));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(at(i)->struct_size, kFirst);
    EXPECT_EQ(at(i)->applied_steps, static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ(memory[3 * kFirst], '\xab');
  at(2)->struct_size = kFirst + 8;
  EXPECT_THROW(OutputArray<otr_step_report>(at(0), 3, "report", true), Error);
}

}  // namespace
}  // namespace outrigger::c_api

// SPDX-License-Identifier: Apache-2.0
// What the machine offers, as text.
#include <cstring>
#include <thread>
#include <vector>

#include "support.h"

namespace {

using namespace otr_test;

std::string machine_info() {
  size_t size = 0;
  EXPECT_OK(otr_machine_info(nullptr, &size));
  std::string text(size, 'x');
  EXPECT_OK(otr_machine_info(text.data(), &size));
  EXPECT_LE(size, text.size());
  EXPECT_EQ(std::strlen(text.c_str()), size - 1) << "*inout_size counts the NUL";
  return text.c_str();
}

TEST(MachineInfo, NamesEveryPart) {
  const std::string text = machine_info();
  EXPECT_EQ(text.front(), '{');
  EXPECT_EQ(text.back(), '}');
  for (const char* part :
       {"version", "cores", "caches", "numa_nodes", "memory", "huge_pages", "locked_memory",
        "shared_memory", "instruction_sets", "communicators", "plugins"}) {
    EXPECT_NE(text.find("\"" + std::string(part) + "\":"), std::string::npos) << part;
  }
  EXPECT_NE(text.find(OTR_VERSION_STRING), std::string::npos);
}

// Memory that is free changes all the time; a text asked for can be fetched all the same.
TEST(MachineInfo, CanBeFetchedWithTheSizeThatWasAsked) {
  for (int i = 0; i < 20; ++i) EXPECT_GT(machine_info().size(), 100U);
}

// A program's ranks may be threads, and each of them makes a context of its own.
TEST(MachineInfo, ManyThreadsAskWhileOthersMakeContexts) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 10; ++round) {
        if (i % 2 == 0) {
          EXPECT_GT(machine_info().size(), 100U);
          continue;
        }
        otr_context* context = nullptr;
        EXPECT_OK(otr_context_create(nullptr, &context));
        otr_context_destroy(context);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MachineInfo, RefusesASmallBuffer) {
  char buffer[8] = {'x'};
  for (const size_t small : {size_t{0}, size_t{1}, sizeof buffer}) {
    size_t size = small;
    EXPECT_FAILS(OTR_E_BUFFER_SIZE, otr_machine_info(buffer, &size), std::to_string(small));
    EXPECT_GT(size, sizeof buffer);
    EXPECT_EQ(buffer[0], 'x') << "a call that failed wrote";
  }
  size_t size = 1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_machine_info(nullptr, &size), "buffer");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_machine_info(buffer, nullptr), "inout_size");
}

}  // namespace

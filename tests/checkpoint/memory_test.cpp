// SPDX-License-Identifier: Apache-2.0
// What a header makes the reader hold, to the byte: this program counts what is allocated.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"

namespace {

int64_t held = 0, peak = 0;  // one thread

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  held += static_cast<int64_t>(malloc_usable_size(memory));
  peak = std::max(peak, held);
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) held -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }

namespace outrigger::checkpoint::test {
namespace {

constexpr size_t kHeader = size_t{1} << 23;

// The piece with a number in it, again and again.
std::string repeated(std::string_view begin, const std::function<std::string(size_t)>& piece,
                     std::string_view end) {
  std::string header(begin);
  for (size_t i = 0; header.size() < kHeader; ++i) header += (i > 0 ? "," : "") + piece(i);
  return header.append(end);
}

int64_t held_for(const std::string& header) {
  const TemporaryFolder temporary;
  write_text(temporary / "f", file_of(header));
  const Folder folder = temporary.open();
  const int64_t before = held;
  peak = held;
  try {
    const Reader reader(folder, "f");
  } catch (const Error&) {
    // refused, after whatever it took to know
  }
  EXPECT_EQ(held, before);
  return peak - before;
}

TEST(SafetensorsMemory, AHeaderCostsAtMostEightTimesItself) {
  const std::string ones = [] {
    std::string text = "0";
    for (int i = 1; i < 64; ++i) text += ",0";
    return text;
  }();
  const auto tensor = [](size_t i, std::string_view shape) {
    return format_text(R"("{:x}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,0]}})", i, shape);
  };
  const std::pair<const char*, std::string> headers[] = {
      {"tensors", repeated(
                      "{", [&](size_t i) { return tensor(i, "0"); }, "}")},
      {"the same tensor", repeated(
                              "{", [&](size_t) { return tensor(0, "0"); }, "}")},
      {"extents", repeated(
                      "{", [&](size_t i) { return tensor(i, ones); }, "}")},
      {"endless extents", repeated(
                              "{\"a\":{\"shape\":[", [](size_t) { return "0"; }, "]}}")},
      {"metadata",
       repeated(
           "{\"__metadata__\":{", [](size_t i) { return format_text(R"("{:x}":"")", i); }, "}}")},
      {"brackets", std::string(kHeader, '{')},
      {"lists", "{\"a\":" + std::string(kHeader, '[')},
      {"a name", "{\"" + std::string(kHeader, 'a') + "\":{}}"},
      {"a name without end", "{\"" + std::string(kHeader, 'a')},
      {"a wrong word", "{\"a\":" + std::string(kHeader, 'x') + "}"},
      {"a dtype", "{\"a\":{\"dtype\":\"" + std::string(kHeader, 'x') + "\"}}"},
      {"a field", "{\"a\":{\"" + std::string(kHeader, 'x') + "\":1}}"},
      {"a number", "{\"a\":{\"shape\":[" + std::string(kHeader, '1') + "]}}"},
      {"a value", "{\"__metadata__\":{\"a\":\"" + std::string(kHeader, 'x') + "\"}}"},
      {"spaces", "{}" + std::string(kHeader, ' ')},
  };
  for (const auto& [name, header] : headers) {
    const int64_t bytes = held_for(header);
    EXPECT_LE(bytes, 8 * static_cast<int64_t>(header.size())) << name;
    std::printf("%-20s %.2f times the header\n", name,
                static_cast<double>(bytes) / static_cast<double>(header.size()));
  }
}

TEST(SafetensorsMemory, ALengthCostsNothing) {
  const TemporaryFolder temporary;
  write_text(temporary / "f", std::string("\0\xE1\xF5\x05\0\0\0\0{}", 10));  // 100,000,000
  const Folder folder = temporary.open();
  const int64_t before = held;
  peak = held;
  EXPECT_THROW(Reader(folder, "f"), Error);
  EXPECT_LT(peak - before, 10000);
}

}  // namespace
}  // namespace outrigger::checkpoint::test

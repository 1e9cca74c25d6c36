// SPDX-License-Identifier: Apache-2.0
// Runs of a strided tensor's elements, cut anywhere.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/tensor/tensor.h"

namespace outrigger::tensor {
namespace {

TEST(PartsTest, AreTheElementsInRowMajorOrderWhereverTheyAreCut) {
  struct Case {
    std::vector<int64_t> shape, strides;
  };
  const Case cases[] = {{{24}, {1}},
                        {{24}, {2}},
                        {{4, 6}, {6, 1}},
                        {{4, 6}, {1, 4}},
                        {{4, 6}, {12, 2}},
                        {{2, 3, 4}, {1, 2, 6}},
                        {{2, 1, 12}, {24, 7, 2}},
                        {{3, 0, 2}, {1, 1, 1}},
                        {{}, {}},
                        {{2, 3, 4}, {0, 4, 1}}};
  for (Case c : cases) {
    std::vector<float> memory(64);
    std::iota(memory.begin(), memory.end(), 0.0F);
    const otr_tensor t{memory.data(),
                       kHost,
                       static_cast<int32_t>(c.shape.size()),
                       dtype_of(Format::float32),
                       c.shape.data(),
                       c.strides.data(),
                       0};
    const View whole = check(t, "a tensor");
    std::vector<float> all(static_cast<size_t>(whole.count));
    read(all.data(), Format::float32, whole);
    for (int64_t first = 0; first <= whole.count; ++first) {
      for (int64_t count = 0; first + count <= whole.count; ++count) {
        std::vector<float> got(static_cast<size_t>(count), -1);
        int64_t next = 0;
        for_each_part(whole, first, count, [&](const View& part, int64_t offset) {
          EXPECT_EQ(offset, next);
          next += part.count;
          read(got.data() + offset, Format::float32, part);
        });
        ASSERT_EQ(next, count);
        ASSERT_EQ(got, std::vector<float>(all.begin() + first, all.begin() + first + count));
      }
    }
  }
}

}  // namespace
}  // namespace outrigger::tensor

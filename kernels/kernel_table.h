// SPDX-License-Identifier: Apache-2.0
// One instruction set's kernels. dispatch.cpp chooses a table; the functions run inside its
// FloatEnvironment.
#pragma once

#include "kernels/kernels.h"

namespace outrigger::kernels {

using ConvertFunction = void (*)(void* destination, Format to, const void* source, Format from,
                                 int64_t count);
using ScaleFunction = void (*)(void* destination, Format to, const void* source, Format from,
                               float factor, int64_t count);
using AddFunction = ConvertFunction;
using SumOfSquaresFunction = void (*)(NormSum& sum, const void* data, Format format, int64_t count,
                                      int64_t first_index);
using FoldFunction = void (*)(const Fold& fold);
using AdamFunction = UpdateCount (*)(const Adam& adam);

struct KernelTable {
  const char* name = nullptr;
  ConvertFunction convert = nullptr;
  ScaleFunction scale = nullptr;
  AddFunction add = nullptr;
  SumOfSquaresFunction sum_of_squares = nullptr;
  FoldFunction fold = nullptr;
  AdamFunction adam = nullptr;
};

}  // namespace outrigger::kernels

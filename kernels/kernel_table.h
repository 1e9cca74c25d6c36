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
using UnpackFunction = void (*)(float* values, const void* codes, const float* scales,
                                Format format, int64_t count);
using PackFunction = void (*)(void* codes, float* scales, Format format, const float* values,
                              int64_t count, const BlockRounding& rounding);
using ToIntegersFunction = void (*)(void* integers, float* scales, const float* values,
                                    int64_t count);
using FromIntegersFunction = void (*)(float* values, const void* integers, const float* scales,
                                      int64_t count);
using SumOfSquaresFunction = void (*)(NormSum& sum, const void* data, Format format, int64_t count,
                                      int64_t first_index);
using FoldFunction = void (*)(const Fold& fold);
using UpdateFunction = UpdateCount (*)(const Update& update);
using LambNormsFunction = void (*)(const Update& update, NormSum& weights, NormSum& directions);
using MuonDirectionFunction = void (*)(const Update& update, float* direction);
using ProductFunction = void (*)(const Product& whole, int64_t row, int64_t column);

struct KernelTable {
  const char* name = nullptr;
  ConvertFunction convert = nullptr;
  ScaleFunction scale = nullptr;
  AddFunction add = nullptr;
  UnpackFunction unpack = nullptr;
  PackFunction pack = nullptr;
  ToIntegersFunction to_integers = nullptr;
  FromIntegersFunction from_integers = nullptr;
  SumOfSquaresFunction sum_of_squares = nullptr;
  FoldFunction fold = nullptr;
  UpdateFunction update = nullptr;
  LambNormsFunction lamb_norms = nullptr;
  MuonDirectionFunction muon_direction = nullptr;
  ProductFunction product = nullptr;
};

}  // namespace outrigger::kernels

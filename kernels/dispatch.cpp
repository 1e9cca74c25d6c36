// SPDX-License-Identifier: Apache-2.0
// Chooses the best instruction set once, at first use, and enters each kernel with fixed
// floating-point settings. Highway's detection asks CPUID and what the operating system saves
// (XCR0).
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/targets.h"
#include "kernels/float_environment.h"
#include "kernels/kernels.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/convert.h"
#include "kernels/reference/fold.h"
#include "kernels/reference/integers.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/product.h"
#include "kernels/reference/split.h"
#include "kernels/reference/update.h"

namespace outrigger::kernels {
namespace {

constexpr std::array<int64_t, 3> kTargets = {HWY_AVX3, HWY_AVX2, HWY_NEON};  // best first

constexpr KernelTable kOracle = {"oracle",
                                 reference::convert,
                                 reference::scale,
                                 reference::add,
                                 reference::unpack,
                                 reference::pack,
                                 reference::to_integers,
                                 reference::from_integers,
                                 reference::sum_of_squares,
                                 reference::fold,
                                 reference::update,
                                 reference::lamb_norms,
                                 reference::muon_direction,
                                 reference::product};

// Everything decided at first use. Trivially destructible: nothing runs when the library is
// unloaded.
struct Dispatch {
  std::array<KernelTable, kTargets.size() + 1> tables{};  // best first, the oracle last
  size_t count = 0;
  char available[64] = "";
  char error[192] = "";
  std::atomic<const KernelTable*> current{nullptr};

  Dispatch() {
    const int64_t usable = hwy::SupportedTargets() & OTR_VECTOR_TARGETS;
    for (const int64_t target : kTargets) {
      if ((usable & target) == 0 || cpu::update_for(target) == nullptr) continue;
      tables[count++] = {hwy::TargetName(target),         cpu::convert_for(target),
                         cpu::scale_for(target),          cpu::add_for(target),
                         cpu::unpack_for(target),         cpu::pack_for(target),
                         cpu::to_integers_for(target),    cpu::from_integers_for(target),
                         cpu::sum_of_squares_for(target), cpu::fold_for(target),
                         cpu::update_for(target),         cpu::lamb_norms_for(target),
                         cpu::muon_direction_for(target), cpu::product_for(target)};
    }
    tables[count++] = kOracle;
    for (size_t i = 0; i < count; ++i) {
      const size_t length = std::strlen(available);
      std::snprintf(available + length, sizeof available - length, "%s%s", i == 0 ? "" : ",",
                    tables[i].name);
    }
    current = tables.data();
    const char* wanted = std::getenv("OTR_SIMD");
    if (wanted != nullptr && !select(wanted)) {
      std::snprintf(error, sizeof error,
                    "OTR_SIMD=%.40s is not an instruction set usable here (%s); using %s", wanted,
                    available, tables[0].name);
    }
  }

  bool select(const char* name) {
    for (size_t i = 0; i < count; ++i) {
      if (std::strcmp(tables[i].name, name) == 0) {
        current = &tables[i];
        return true;
      }
    }
    return false;
  }
};

Dispatch& dispatch() {
  static Dispatch instance;
  return instance;
}

const KernelTable& table() { return *dispatch().current.load(std::memory_order_relaxed); }

}  // namespace

const char* simd_name() { return table().name; }
const char* simd_available() { return dispatch().available; }
const char* simd_error() { return dispatch().error[0] == '\0' ? nullptr : dispatch().error; }
bool simd_select(const char* name) { return dispatch().select(name); }

void convert(void* destination, Format to, const void* source, Format from, int64_t count) {
  const FloatEnvironment environment;
  table().convert(destination, to, source, from, count);
}

void scale(void* destination, Format to, const void* source, Format from, float factor,
           int64_t count) {
  const FloatEnvironment environment;
  table().scale(destination, to, source, from, factor, count);
}

void add(void* destination, Format to, const void* source, Format from, int64_t count) {
  const FloatEnvironment environment;
  table().add(destination, to, source, from, count);
}

// Halves are read and written for checks and exports only: no instruction set's own form.
void join(float* values, const uint16_t* published, const uint16_t* remainder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = reference::join(published[i], remainder[i]);
}

void split(uint16_t* published, uint16_t* remainder, const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const reference::Halves halves = reference::split_of(values[i]);
    published[i] = halves.published;
    remainder[i] = halves.remainder;
  }
}

void unpack(float* values, const void* codes, const float* scales, Format format, int64_t count) {
  const FloatEnvironment environment;
  table().unpack(values, codes, scales, format, count);
}

void pack(void* codes, float* scales, Format format, const float* values, int64_t count,
          const BlockRounding& rounding) {
  const FloatEnvironment environment;
  table().pack(codes, scales, format, values, count, rounding);
}

void to_integers(void* integers, float* scales, const float* values, int64_t count) {
  const FloatEnvironment environment;
  table().to_integers(integers, scales, values, count);
}

void from_integers(float* values, const void* integers, const float* scales, int64_t count) {
  const FloatEnvironment environment;
  table().from_integers(values, integers, scales, count);
}

void sum_of_squares(NormSum& sum, const void* data, Format format, int64_t count,
                    int64_t first_index) {
  const FloatEnvironment environment;
  table().sum_of_squares(sum, data, format, count, first_index);
}

void fold(const Fold& fold) {
  const FloatEnvironment environment;
  table().fold(fold);
}

UpdateCount update(const Update& update) {
  const FloatEnvironment environment;
  return table().update(update);
}

void lamb_norms(const Update& update, NormSum& weights, NormSum& directions) {
  const FloatEnvironment environment;
  table().lamb_norms(update, weights, directions);
}

void muon_direction(const Update& update, float* direction) {
  const FloatEnvironment environment;
  table().muon_direction(update, direction);
}

void product(const Product& whole, int64_t row, int64_t column) {
  const FloatEnvironment environment;
  table().product(whole, row, column);
}

}  // namespace outrigger::kernels

// SPDX-License-Identifier: Apache-2.0
// Every kernel of the library: raw pointers and sizes, no state, no allocation, no exceptions.
//
// Each kernel has a scalar oracle in reference/ and a vector form in cpu/ with the same bits on
// every instruction set. Arithmetic is float32 (norms: float64); formulas stand in
// reference/<op>.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace outrigger::kernels {

// A parameter, a rank's slice and a bucket begin at multiples of a leaf in their flat space, so
// norms and quantisation blocks never straddle a cut.
inline constexpr int64_t kLeaf = 256;
// Rounded up to whole leaves.
[[nodiscard]] constexpr int64_t in_leaves(int64_t elements) {
  return (elements + kLeaf - 1) / kLeaf * kLeaf;
}

// Storage formats. float64 is for conversion only; moments are never float16.
//   split            of a master weight: 16 bits beside the bfloat16 that is published; together a
//                    float32 (reference/split.h)
//   block8           of a moment: 8 bits an element, and a scale for each leaf, apart from them
//   positive_block8  the same for values that are never negative (reference/block8.h)
enum class Format : uint8_t { float32, bfloat16, float16, float64, split, block8, positive_block8 };
[[nodiscard]] constexpr const char* name_of(Format f) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "float64",
                                    "split",   "block8",   "block8"};
  return kNames[static_cast<size_t>(f)];
}
[[nodiscard]] constexpr bool is_block(Format f) {
  return f == Format::block8 || f == Format::positive_block8;
}
// Of one element; of a block format without its share of the scale.
[[nodiscard]] constexpr size_t size_of(Format f) {
  return is_block(f) ? 1 : f == Format::float64 ? 8 : f == Format::float32 ? 4 : 2;
}
// What lies in one piece: the elements, of a block format codes in whole leaves; and the scales of
// such, one for each leaf.
[[nodiscard]] constexpr int64_t plain_bytes_of(int64_t elements, Format f) {
  return (is_block(f) ? in_leaves(elements) : elements) * static_cast<int64_t>(size_of(f));
}
[[nodiscard]] constexpr int64_t scale_bytes_of(int64_t elements, Format f) {
  return is_block(f) ? in_leaves(elements) / kLeaf * static_cast<int64_t>(sizeof(float)) : 0;
}
[[nodiscard]] constexpr int64_t bytes_of(int64_t elements, Format f) {
  return plain_bytes_of(elements, f) + scale_bytes_of(elements, f);
}
// How many elements have so many bytes, in whole leaves of a block format.
[[nodiscard]] constexpr int64_t elements_in(int64_t bytes, Format f) {
  return is_block(f) ? bytes / bytes_of(kLeaf, f) * kLeaf : bytes / bytes_of(1, f);
}
// In memory for so many elements the scales lie behind all codes.
[[nodiscard]] inline float* scales_behind(void* codes, int64_t elements, Format f) {
  if (!is_block(f) || codes == nullptr) return nullptr;
  return reinterpret_cast<float*>(static_cast<std::byte*>(codes) + plain_bytes_of(elements, f));
}

enum class Rounding : uint8_t { nearest, stochastic };

// Every kernel runs under round-to-nearest without flushing of denormals, whatever the host has
// set, and restores the host's settings. A NaN that arithmetic makes or meets is stored as the one
// canonical NaN (float32 0x7fc00000, bfloat16 0x7fc0, float16 0x7e00), because processors differ in
// the NaN they make; convert() alone keeps the payload.

// ---- reference/convert.h ----
// destination[i] = round(source[i]), nearest even and once (float64 to a 16-bit format, too). A NaN
// stays a NaN with its sign and upper payload bits, made quiet where the format narrows or
// arithmetic widens it; equal formats and bfloat16 to float32 are plain bit copies. Any count, any
// alignment of the element size; source and destination do not overlap.
void convert(void* destination, Format to, const void* source, Format from, int64_t count);
// destination[i] = round(float32(source[i]) * factor); destination may be source if the formats are
// equal.
void scale(void* destination, Format to, const void* source, Format from, float factor,
           int64_t count);
// destination[i] = round(float32(destination[i]) + float32(source[i]))
void add(void* destination, Format to, const void* source, Format from, int64_t count);

// ---- reference/split.h ----
// values[i] = the float32 of published[i] and remainder[i], and the two of a value.
void join(float* values, const uint16_t* published, const uint16_t* remainder, int64_t count);
void split(uint16_t* published, uint16_t* remainder, const float* values, int64_t count);

// ---- reference/philox.h ----
// One random number of 16 bits is drawn for each element and step; a moment's is the weight's times
// an odd constant.
enum class Draw : uint8_t { weight, exp_avg, exp_avg_sq };

// ---- reference/block8.h ----
// How 8-bit codes are rounded; the other fields are for stochastic rounding only (RandomStream).
struct BlockRounding {
  Rounding rounding = Rounding::nearest;
  uint64_t key = 0;
  uint64_t first_element = 0;  // a multiple of kLeaf
  uint64_t step = 0;
  Draw draw = Draw::exp_avg;
};
// Blocks to float32 values and back; the first element is a block's first. Of a last block that
// `count` does not fill, pack() sets the other codes to zero.
void unpack(float* values, const void* codes, const float* scales, Format format, int64_t count);
void pack(void* codes, float* scales, Format format, const float* values, int64_t count,
          const BlockRounding& rounding);

// ---- reference/integers.h ----
// Values as 8-bit integers and back, laid out as Format::block8: whole leaves of codes, and a scale
// for each. Of a last leaf that `count` does not fill the other codes are zero.
void to_integers(void* integers, float* scales, const float* values, int64_t count);
void from_integers(float* values, const void* integers, const float* scales, int64_t count);

// ---- reference/norm.h ----
// An exact sum of leaf sums in any order: the limbs are one 640-bit integer in units of 2^-298,
// always fully carried, so equal sums have equal limbs. A leaf's sum of squares is float64 in a
// fixed lane order; leaf sums are added exactly, so the result depends on the values only, not on
// ranks, threads or cuts. Sums over ranks go through merge(): adding limbs elementwise would lose
// the carries.
struct NormSum {
  std::array<uint64_t, 10> limbs{};  // little-endian
  int64_t nonfinite = 0;             // Inf and NaN elements; their leaves are left out of the sum
  int64_t first_nonfinite = -1;      // lowest index (as given by the caller) of one, or -1
};
void merge(NormSum& into, const NormSum& from);
[[nodiscard]] double value_of(const NormSum& sum);  // the sum rounded once
// Adds the squares of data[0..count) to `sum`; element i has the index first_index + i. Leaves are
// counted from data[0]; the last one is padded with zeros. A float64 element is rounded to float32
// first.
void sum_of_squares(NormSum& sum, const void* data, Format format, int64_t count,
                    int64_t first_index);

// ---- reference/fold.h ----
// s = float32(sources[0][i]); s += float32(sources[r][i]) in rank order;
// accumulator[i] = add ? round(float32(accumulator[i]) + s) : round(s), nearest even.
// The squares of the stored accumulator are added to `norm` in the same pass. A source may be the
// accumulator itself.
struct Fold {
  const void* const* sources = nullptr;  // `world` pointers
  int32_t world = 1;
  Format source_format = Format::float32;
  void* accumulator = nullptr;
  Format accumulator_format = Format::float32;
  bool add = false;
  int64_t count = 0;        // a multiple of kLeaf
  int64_t first_index = 0;  // of element 0, for norm->first_nonfinite
  NormSum* norm = nullptr;  // may be null
};
void fold(const Fold& fold);

// ---- reference/update.h ----
// Adam and AdamW, Adagrad, Lion, SGD with or without momentum, and the second part of LAMB, whose
// first is lamb_norms(). Of Muon there is muon_direction() here; what product() makes of that is a
// gradient of SGD.
enum class Rule : uint8_t { adam, adagrad, lion, sgd, lamb, muon };

// Which moments a rule has; SGD's is there with momentum only.
[[nodiscard]] constexpr bool has_exp_avg(Rule rule, bool momentum) {
  return rule == Rule::sgd ? momentum : rule != Rule::adagrad;
}
[[nodiscard]] constexpr bool has_exp_avg_sq(Rule rule) {
  return rule != Rule::lion && rule != Rule::sgd && rule != Rule::muon;
}

// Everything that depends on the step only; computed once on the host in double, rounded once.
struct UpdateScalars {
  float gradient_factor = 1;                   // 1/(loss scale × world) × clip coefficient
  float clip_value = __builtin_inff();         // no element of the gradient is beyond it
  float beta1 = 0.9F, one_minus_beta1 = 0.1F;  // SGD: momentum, 1 − dampening; Muon: momentum
  float beta2 = 0.999F, one_minus_beta2 = 0.001F;
  float eps = 1e-8F;
  float inverse_bias1 = 1;       // LAMB: 1/(1 − β1^t)
  float inverse_sqrt_bias2 = 1;  // 1/sqrt(1 − β2^t)
  float minus_step = 0;          // −lr; Adam: −lr/(1 − β1^t); LAMB: −lr × trust ratio
  float weight_decay = 0;        // L2 mode: g += weight_decay·p; LAMB: of the direction
  float minus_lr_decay = 0;      // decoupled mode: p += minus_lr_decay·p, first
  bool decoupled = true;
  bool nesterov = false;
  bool operator==(const UpdateScalars&) const = default;
};

// The stream of random numbers (Philox4x32).
struct RandomStream {
  uint64_t key = 0;
  uint64_t first_element = 0;  // index in the parameter of element 0; a multiple of kLeaf
  uint64_t step = 0;           // applied steps before this one
  bool operator==(const RandomStream&) const = default;
};

struct Update {
  Rule rule = Rule::adam;
  const void* grad = nullptr;
  Format grad_format = Format::float32;  // float32, bfloat16, float16
  void* weight = nullptr;
  Format weight_format = Format::float32;
  // Of a split master, whose weights are bfloat16, rounded as reference/split.h says; else null.
  uint16_t* remainder = nullptr;
  // Null where the rule has none.
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  Format exp_avg_format = Format::float32, exp_avg_sq_format = Format::float32;
  float *exp_avg_scales = nullptr, *exp_avg_sq_scales = nullptr;  // of block formats
  Rounding weight_rounding = Rounding::nearest, exp_avg_rounding = Rounding::nearest,
           exp_avg_sq_rounding = Rounding::nearest;
  // 16-bit copy of a float32 weight, nearest even; may be null.
  void* published = nullptr;
  Format published_format = Format::bfloat16;
  int64_t count = 0;  // any
  UpdateScalars scalars;
  RandomStream random;
  bool operator==(const Update&) const = default;
};

// Which states of an update are stored by random numbers: only these formats drop bits so.
struct RandomStates {
  constexpr explicit RandomStates(const Update& u)
      : of{u.remainder == nullptr && is_random(u.weight_format, u.weight_rounding),
           is_random(u.exp_avg_format, u.exp_avg_rounding),
           is_random(u.exp_avg_sq_format, u.exp_avg_sq_rounding)} {}
  [[nodiscard]] constexpr bool operator[](Draw draw) const { return of[static_cast<size_t>(draw)]; }
  [[nodiscard]] constexpr bool any() const { return of[0] || of[1] || of[2]; }
  [[nodiscard]] static constexpr bool is_random(Format format, Rounding rounding) {
    return rounding == Rounding::stochastic && (format == Format::bfloat16 || is_block(format));
  }
  std::array<bool, 3> of;
};

struct UpdateCount {
  int64_t updates = 0;   // elements to which the formula gives a step or a decay that is not zero
  int64_t vanished = 0;  // of these, whose stored weight has the bits of the old one
};
[[nodiscard]] UpdateCount update(const Update& update);

// LAMB's first part: new moments; the squares of the weights and of the direction that follows from
// the moments as stored are added. The weights are not written.
void lamb_norms(const Update& update, NormSum& weights, NormSum& directions);

// Muon's: a new exp_avg; direction[0..count) is what follows from it. The weights are not read.
void muon_direction(const Update& update, float* direction);

// ---- reference/product.h ----
// A product of row-major float32 matrices without gaps, left (rows × inner) and right (inner ×
// columns), in one order of additions; `out` overlaps none of the others.
struct Product {
  const float* left = nullptr;
  const float* right = nullptr;
  int64_t rows = 0, inner = 0, columns = 0;
  float factor = 1;
  const float* plus = nullptr;  // rows × columns; null: nothing is added
  float plus_factor = 0;
  float* out = nullptr;
};
// One tile of it, of at most kProductTile rows and columns, whose first element is (row, column).
inline constexpr int64_t kProductTile = 128;
void product(const Product& whole, int64_t row, int64_t column);

// ---- dispatch.cpp ----
// Names of the instruction sets compiled in and usable here, best first ("AVX3", "AVX2", …,
// "oracle"). OTR_SIMD=<name> in the environment chooses one at first use; an unusable name is
// reported by simd_error() (text that lives as long as the library) and the best is used.
[[nodiscard]] const char* simd_name();       // the one in use
[[nodiscard]] const char* simd_available();  // comma-separated
[[nodiscard]] const char* simd_error();      // nullptr if OTR_SIMD was absent or honoured
bool simd_select(const char* name);          // for tests; false if not available. Not thread-safe

}  // namespace outrigger::kernels

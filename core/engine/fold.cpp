// SPDX-License-Identifier: Apache-2.0
#include "core/engine/fold.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace outrigger::engine {
namespace {

constexpr int64_t kChunk = 256 * kernels::kLeaf;  // elements of one task

const std::byte* at(const void* data, int64_t element, kernels::Format format) {
  return static_cast<const std::byte*>(data) +
         element * static_cast<int64_t>(kernels::size_of(format));
}

int32_t rank_of_nonfinite(const kernels::Fold& fold, int64_t element) {
  for (int32_t rank = 0; rank < fold.world; ++rank) {
    float value = 0;
    kernels::convert(&value, kernels::Format::float32,
                     at(fold.sources[rank], element, fold.source_format), fold.source_format, 1);
    if (!std::isfinite(value)) return rank;
  }
  return -1;
}

// A source that is the accumulator is overwritten by the sum; a copy tells afterwards whose Inf it
// was.
class Witness {
 public:
  void replace_accumulator(std::vector<const void*>& sources, const void* accumulator,
                           size_t bytes) {
    for (const void*& source : sources) {
      if (source != accumulator || sources.size() == 1) continue;
      copy_.assign(static_cast<const std::byte*>(source),
                   static_cast<const std::byte*>(source) + bytes);
      source = copy_.data();
    }
  }

 private:
  std::vector<std::byte> copy_;
};

// Runs body(begin, count, norm of the worker, worker) over [0, count) and merges the norms.
template <typename Body>
kernels::NormSum over_chunks(Workers& workers, int64_t count, const Body& body) {
  std::vector<kernels::NormSum> norms(static_cast<size_t>(workers.size()));
  workers.run((count + kChunk - 1) / kChunk, [&](int64_t task, int32_t worker) {
    const int64_t begin = task * kChunk;
    body(begin, std::min(kChunk, count - begin), norms[static_cast<size_t>(worker)], worker);
  });
  for (size_t w = 1; w < norms.size(); ++w) kernels::merge(norms[0], norms[w]);
  return norms[0];
}

}  // namespace

void keep_first(Nonfinite& into, const Nonfinite& other) {
  if (other.flat >= 0 && (into.flat < 0 || other.flat < into.flat)) into = other;
}

kernels::NormSum fold_slice(Workers& workers, const SliceFold& slice, Nonfinite& origin) {
  std::vector<Nonfinite> origins(static_cast<size_t>(workers.size()));
  std::vector<Witness> witnesses(origins.size());
  auto* accumulator = static_cast<std::byte*>(slice.accumulator);
  const kernels::NormSum norm = over_chunks(
      workers, slice.count,
      [&](int64_t begin, int64_t count, kernels::NormSum& sum, int32_t worker) {
        kernels::Fold fold;
        fold.accumulator =
            accumulator + begin * static_cast<int64_t>(kernels::size_of(slice.accumulator_format));
        std::vector<const void*> sources;
        for (const void* s : slice.sources) sources.push_back(at(s, begin, slice.source_format));
        const size_t bytes = static_cast<size_t>(count) * kernels::size_of(slice.source_format);
        witnesses[static_cast<size_t>(worker)].replace_accumulator(sources, fold.accumulator,
                                                                   bytes);
        kernels::NormSum chunk;
        fold.sources = sources.data();
        fold.world = static_cast<int32_t>(sources.size());
        fold.source_format = slice.source_format;
        fold.accumulator_format = slice.accumulator_format;
        fold.add = slice.add;
        fold.count = count;
        fold.first_index = slice.flat + begin;
        fold.norm = &chunk;
        kernels::fold(fold);
        if (chunk.first_nonfinite >= 0) {
          const int32_t rank = rank_of_nonfinite(fold, chunk.first_nonfinite - fold.first_index);
          keep_first(origins[static_cast<size_t>(worker)], {chunk.first_nonfinite, rank});
        }
        kernels::merge(sum, chunk);
      });
  for (const Nonfinite& o : origins) keep_first(origin, o);
  return norm;
}

kernels::NormSum norm_of(Workers& workers, const void* data, kernels::Format format, int64_t count,
                         int64_t flat) {
  return over_chunks(workers, count, [&](int64_t begin, int64_t n, kernels::NormSum& sum, int32_t) {
    kernels::sum_of_squares(sum, at(data, begin, format), format, n, flat + begin);
  });
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/device/host.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "core/base/error.h"
#include "core/topology/binding.h"
#include "kernels/fold_origin.h"
#include "kernels/in_blocks.h"
#include "kernels/update_part.h"

namespace outrigger::device {
namespace {

using kernels::advance;

constexpr size_t kOwnPages = size_t{1} << 20, kHuge = size_t{2} << 20;
constexpr std::align_val_t kAlignment{64};
constexpr int64_t kAlone =
    4 * kTaskElements;  // up to so many, waking a worker costs more than it does

// Arrays cut into tasks of about a chunk: a large one into several, many small ones into one.
class Tasks {
 public:
  struct Part {
    size_t array;
    int64_t first, count;
  };
  void add(size_t array, int64_t count) {
    for (int64_t first = 0; first < count; first += kTaskElements) {
      const int64_t n = std::min(kTaskElements, count - first);
      if (begins_.empty() || filled_ + n > kTaskElements) {
        begins_.push_back(parts_.size());
        filled_ = 0;
      }
      filled_ += n;
      elements_ += n;
      parts_.push_back({array, first, n});
    }
  }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(begins_.size()); }
  [[nodiscard]] int64_t elements() const { return elements_; }
  [[nodiscard]] std::span<const Part> operator[](int64_t task) const {
    const auto t = static_cast<size_t>(task);
    const size_t end = t + 1 < begins_.size() ? begins_[t + 1] : parts_.size();
    return std::span(parts_).subspan(begins_[t], end - begins_[t]);
  }

 private:
  std::vector<Part> parts_;
  std::vector<size_t> begins_;
  int64_t filled_ = 0, elements_ = 0;
};

// Whole huge pages, with room to move: the system puts those on a boundary of theirs.
size_t mapped_for(size_t bytes) {
  return bytes < kLargeArray ? bytes : (bytes + kMostApart + kHuge - 1) / kHuge * kHuge;
}

}  // namespace

HostMemory allocate_host(size_t bytes, std::span<const Neighbour> others) noexcept {
  if (bytes >= kOwnPages) {
    const size_t mapped = mapped_for(bytes);
    void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return {};
    topology::bind_pages(pages, mapped);
    auto* begin = static_cast<std::byte*>(pages);
    const size_t apart = bytes < kLargeArray ? 0 : bytes_apart(begin, bytes, others);
    // A wish; 4 KiB pages work too, and the end is not worth a huge one.
    const size_t huge = (apart + bytes) / kHuge * kHuge;
    madvise(begin, huge, MADV_HUGEPAGE);
    madvise(begin + huge, mapped - huge, MADV_NOHUGEPAGE);
    return {begin + apart, begin, mapped};
  }
  void* memory = ::operator new(bytes, kAlignment, std::nothrow);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), nullptr, 0};
}

void release_host(const HostMemory& memory) noexcept {
  if (memory.mapped > 0) {
    munmap(memory.begin, memory.mapped);
  } else {
    ::operator delete(memory.data, kAlignment);
  }
}

void keep_first(Nonfinite& into, const Nonfinite& other) {
  if (other.flat < 0) return;
  const bool same = other.flat == into.flat;
  const bool named = other.rank >= 0 && (into.rank < 0 || other.rank < into.rank);
  if (into.flat < 0 || other.flat < into.flat || (same && named)) into = other;
}

std::byte* Host::allocate(size_t bytes, Stream) {
  const HostMemory memory = allocate_host(bytes);
  if (memory.data == nullptr) fail(OTR_E_OUT_OF_MEMORY, "the system has no {} bytes", bytes);
  return memory.data;
}

void Host::release(std::byte* data, size_t bytes, Stream) noexcept {
  release_host({data, data, bytes < kOwnPages ? 0 : mapped_for(bytes)});
}

void Host::copy(void* to, const void* from, size_t bytes, Stream) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void Host::zero(void* data, size_t bytes, Stream) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

void Host::read(void* to, Format to_format, const tensor::View& from, float factor, Stream) {
  tensor::read(to, to_format, from, factor);
}

void Host::write(const tensor::View& to, const void* from, Format from_format, Stream) {
  tensor::write(to, from, from_format);
}

void Host::convert(void* to, Format to_format, const void* from, Format from_format, float factor,
                   int64_t count, Stream) {
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t) {
    auto* target = advance(to, begin, to_format);
    const auto* source = advance(from, begin, from_format);
    if (factor == 1) {
      kernels::convert(target, to_format, source, from_format, n);
    } else {
      kernels::scale(target, to_format, source, from_format, factor, n);
    }
  });
}

void Host::add(void* to, Format to_format, const void* from, Format from_format, int64_t count,
               Stream) {
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t) {
    kernels::add(advance(to, begin, to_format), to_format, advance(from, begin, from_format),
                 from_format, n);
  });
}

void Host::run(int64_t tasks, const outrigger::Task& task) {
  if (workers_ != nullptr) {
    workers_->run(tasks, task);
  } else {
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
  }
}

void Host::run_over(int64_t elements, int64_t tasks, const outrigger::Task& task) {
  if (elements > kAlone) return run(tasks, task);
  for (int64_t i = 0; i < tasks; ++i) task(i, 0);
}

template <typename Body>
kernels::NormSum Host::over_chunks(int64_t count, const Body& body) {
  std::vector<kernels::NormSum> norms(threads());
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t worker) {
    body(begin, n, norms[static_cast<size_t>(worker)], worker);
  });
  for (size_t w = 1; w < norms.size(); ++w) kernels::merge(norms[0], norms[w]);
  return norms[0];
}

kernels::NormSum Host::fold(const SliceFold& slice, Nonfinite& origin) {
  std::vector<Nonfinite> origins(threads());
  std::vector<std::vector<std::byte>> kept(origins.size());
  const kernels::NormSum norm = over_chunks(
      slice.count, [&](int64_t begin, int64_t count, kernels::NormSum& sum, int32_t worker) {
        const auto w = static_cast<size_t>(worker);
        kernels::Fold fold;
        fold.source_format = slice.source_format;
        fold.accumulator = advance(slice.accumulator, begin, slice.accumulator_format);
        fold.accumulator_format = slice.accumulator_format;
        fold.add = slice.add;
        fold.count = count;
        fold.first_index = slice.flat + begin;
        fold.norm = &sum;
        kernels::Origin found;
        if (kernels::is_block(slice.source_format)) {
          found = kernels::fold_blocks(fold, slice.sources, begin, slice.count);
        } else {
          std::vector<const void*> sources;
          for (const void* s : slice.sources) {
            sources.push_back(advance(s, begin, slice.source_format));
          }
          found = kernels::fold_with_origin(fold, sources, kept[w]);
        }
        keep_first(origins[w], {found.index, found.rank});
      });
  for (const Nonfinite& o : origins) keep_first(origin, o);
  return norm;
}

kernels::NormSum Host::norm(const void* data, Format format, int64_t count, int64_t flat) {
  return over_chunks(count, [&](int64_t begin, int64_t n, kernels::NormSum& sum, int32_t) {
    kernels::sum_of_squares(sum, advance(data, begin, format), format, n, flat + begin);
  });
}

kernels::NormSum Host::norm(std::span<const Array> arrays, int64_t& nonfinite) {
  Tasks tasks;
  for (size_t i = 0; i < arrays.size(); ++i) tasks.add(i, arrays[i].count);
  struct Found {
    kernels::NormSum sum;
    int64_t nonfinite = -1;
  };
  std::vector<Found> found(threads());
  run_over(tasks.elements(), tasks.size(), [&](int64_t task, int32_t worker) {
    Found& f = found[static_cast<size_t>(worker)];
    for (const Tasks::Part& part : tasks[task]) {
      const Array& a = arrays[part.array];
      const auto index = static_cast<int64_t>(part.array);
      const int64_t before = f.sum.nonfinite;
      kernels::sum_of_squares(f.sum, advance(a.data, part.first, a.format), a.format, part.count,
                              0);
      if (f.sum.nonfinite > before && (f.nonfinite < 0 || index < f.nonfinite)) f.nonfinite = index;
    }
  });
  kernels::NormSum total;
  nonfinite = -1;
  for (const Found& f : found) {
    kernels::merge(total, f.sum);
    if (f.nonfinite >= 0 && (nonfinite < 0 || f.nonfinite < nonfinite)) nonfinite = f.nonfinite;
  }
  return total;
}

std::vector<LambNorms> Host::lamb_norms(std::span<const kernels::Update> pieces) {
  Tasks tasks;
  for (size_t i = 0; i < pieces.size(); ++i) tasks.add(i, pieces[i].count);
  std::vector<LambNorms> norms(pieces.size());
  std::mutex mutex;
  run_over(tasks.elements(), tasks.size(), [&](int64_t task, int32_t) {
    for (const Tasks::Part& part : tasks[task]) {
      LambNorms n;
      kernels::lamb_norms(kernels::part_of(pieces[part.array], part.first, part.count), n.weights,
                          n.directions);
      const std::lock_guard lock(mutex);
      kernels::merge(norms[part.array].weights, n.weights);
      kernels::merge(norms[part.array].directions, n.directions);
    }
  });
  return norms;
}

kernels::UpdateCount Host::update(std::span<const kernels::Update> pieces) {
  Tasks tasks;
  for (size_t i = 0; i < pieces.size(); ++i) tasks.add(i, pieces[i].count);
  std::vector<kernels::UpdateCount> counts(threads());
  run_over(tasks.elements(), tasks.size(), [&](int64_t task, int32_t worker) {
    const auto parts = tasks[task];
    const auto update_of = [&](const Tasks::Part& part) {
      return kernels::part_of(pieces[part.array], part.first, part.count);
    };
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i + 1 < parts.size()) kernels::fetch_begin(update_of(parts[i + 1]));
      kernels::add(counts[static_cast<size_t>(worker)], kernels::update(update_of(parts[i])));
    }
  });
  for (size_t w = 1; w < counts.size(); ++w) kernels::add(counts[0], counts[w]);
  return counts[0];
}

std::unique_ptr<Updating> Host::begin_update(std::span<const kernels::Update> pieces) {
  struct Done final : Updating {
    explicit Done(const kernels::UpdateCount& given) : count(given) {}
    kernels::UpdateCount wait() override { return count; }
    const kernels::UpdateCount count;
  };
  return std::make_unique<Done>(update(pieces));
}

}  // namespace outrigger::device

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/contents.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace outrigger::engine {

using checkpoint::Manifest;
using checkpoint::Plane;
using kernels::Format;

namespace {

std::vector<Section> sections_to_write(const Declared& declared, const Committed& committed) {
  std::vector<Section> sections = sections_of(committed);
  if (committed.sharded()) return sections;
  std::vector<Section> own;
  for (Section& s : sections) {
    if (s.kept != Kept::published) {
      const auto piece =
          committed.layout.piece(declared.model, s.parameter, committed.control.slice());
      if (!piece) continue;
      s.first = piece->first;
      s.count = piece->count;
    }
    own.push_back(s);
  }
  return own;
}

}  // namespace

Contents::Contents(Declared& declared, Committed& committed, const Manifest& manifest,
                   const std::vector<HostPart>& parts, Extent extent)
    : declared_(declared),
      committed_(committed),
      sections_(extent == Extent::all_here ? sections_here(committed)
                                           : sections_to_write(declared, committed)),
      outline_({}, {}) {
  const int64_t rank = committed.control.rank();
  std::vector<checkpoint::TensorSpec> tensors;
  for (size_t section = 0; section < sections_.size(); ++section) {
    const Section& s = sections_[section];
    const Manifest::Parameter& p = manifest.parameters[static_cast<size_t>(s.parameter)];
    const auto planes = checkpoint::planes_of(s.format);
    for (size_t i = 0; i < planes.size(); ++i) {
      const Plane& plane = planes[i];
      const bool whole = s.count == p.count() && plane.per == 1;
      tensors.push_back({checkpoint::tensor_name(p, s.kept, plane.suffix, s.first, s.count),
                         plane.dtype,
                         whole ? p.shape : std::vector<int64_t>{plane.extent(s.count)}});
      rows_.push_back({rank, s.parameter, static_cast<int64_t>(s.kept), static_cast<int64_t>(i),
                       s.first, s.count, 0});
      origins_.push_back({section, i, nullptr});
    }
  }
  for (const HostPart& part : parts) {
    const auto bytes = static_cast<int64_t>(part.bytes.size());
    tensors.push_back({checkpoint::part_name(part.name), checkpoint::Dtype::u8, {bytes}});
    rows_.push_back({rank, -1, 0, 0, checkpoint::part_hash(part.name), bytes, 0});
    origins_.push_back({0, 0, &part});
  }
  outline_ = checkpoint::Outline(std::move(tensors),
                                 {{"checkpoint", manifest.id}, {"rank", std::to_string(rank)}});
  blocks_ = checkpoint::blocks_of(outline_);
}

bool Contents::is_in_memory() const {
  return committed_.published.device().is_host() && committed_.states->is_in_memory();
}

bool Contents::is_seen_outside(size_t block) const {
  const Origin& origin = origins_[blocks_[block].tensor];
  if (origin.part != nullptr) return true;
  const Section& section = sections_[origin.section];
  if (section.kept == Kept::published) return true;
  if (section.kept != Kept::master) return false;
  const bool is_published = section.format == Format::split
                                ? origin.plane == 0
                                : !committed_.plan.side_of(section.parameter).separate_master;
  return is_published;
}

void Contents::read(size_t block, Scratch& scratch, const Take& take) const {
  const checkpoint::TensorBlock& wanted = blocks_[block];
  const Origin& origin = origins_[wanted.tensor];
  if (origin.part != nullptr) {
    take(origin.part->bytes.subspan(static_cast<size_t>(wanted.offset),
                                    static_cast<size_t>(wanted.bytes)));
    return;
  }
  constexpr int64_t kRun = int64_t{1} << 20;  // elements; what a lease may copy
  const Section& section = sections_[origin.section];
  const Plane& plane = checkpoint::planes_of(section.format)[origin.plane];
  const int64_t unit = checkpoint::size_of(plane.dtype);
  Section run = section;
  run.first += wanted.offset / unit * plane.per;
  const int64_t end =
      std::min(run.first + wanted.bytes / unit * plane.per, section.first + section.count);
  const bool at_once = end - run.first <= kRun;
  scratch.block.clear();
  for (; run.first < end; run.first += run.count) {
    run.count = std::min(kRun, end - run.first);
    visit_section(declared_, committed_, run, [&](const checkpoint::Run& values) {
      const auto part = checkpoint::plane_bytes(section.format, origin.plane, values);
      if (at_once) {
        take(part);
      } else {
        scratch.block.insert(scratch.block.end(), part.begin(), part.end());
      }
    });
  }
  if (!at_once) take(scratch.block);
}

void Contents::each(const std::function<void(size_t block, Scratch& scratch)>& body,
                    const std::function<void()>& between) const {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&](bool is_caller) {
    Scratch scratch;
    try {
      while (!failed) {
        const size_t block = next++;
        if (block >= blocks_.size()) return;
        body(block, scratch);
        if (is_caller) between();
      }
    } catch (...) {
      failed = true;
      throw;
    }
  };
  if (!is_in_memory()) {
    work(true);
    return;
  }
  constexpr int32_t kMost = 8;  // more do not make memory faster
  const int32_t workers = std::min(kMost, committed_.workers.size());
  committed_.workers.run(workers, [&](int64_t, int32_t worker) { work(worker == 0); });
}

}  // namespace outrigger::engine

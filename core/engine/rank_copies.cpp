// SPDX-License-Identifier: Apache-2.0
#include "core/engine/rank_copies.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "outrigger.h"

namespace outrigger::engine {

using Json = nlohmann::ordered_json;

std::string RankCopies::to_json(const Text& text) {
  return Json{{"layout", text.layout},
              {"progress", text.progress},
              {"parts", text.parts},
              {"begins", text.begins},
              {"ends", text.ends}}
      .dump();
}

// From a process of the same job.
RankCopies::Text RankCopies::parse(const std::string& json) {
  const Json read = Json::parse(json);
  return {read.at("layout"), read.at("progress"), read.at("parts"), read.at("begins"),
          read.at("ends")};
}

std::string RankCopies::layout_of(const Contents& contents) {
  std::vector<std::string> lines;
  const auto& entries = contents.outline().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (contents.rows()[i].parameter < 0) continue;  // the host's parts, which come last
    lines.push_back(format_text("{} {} {}", entries[i].name, entries[i].begin,
                                static_cast<int>(entries[i].dtype)));
  }
  return layout_of(lines);
}

std::string RankCopies::layout_of(const std::vector<std::string>& lines) {
  uint64_t hash = 0;
  for (const std::string& line : lines) {
    hash = XXH3_64bits_withSeed(line.data(), line.size(), hash);
  }
  return format_text("{} {:016x}", OTR_VERSION_STRING, hash);
}

uint64_t RankCopies::moment_id(const std::string& new_id) {
  return std::stoull(new_id.substr(0, 15), nullptr, 16) + 1;
}

const RankCopies::Copy* RankCopies::find(int32_t rank) const {
  const auto found = std::ranges::find(copies_, rank, &Copy::rank);
  return found == copies_.end() ? nullptr : &*found;
}

int64_t RankCopies::bytes() const {
  int64_t bytes = 0;
  for (const Copy& copy : copies_) bytes += copy.room.bytes();
  for (const memory::Block& block : spare_) bytes += block.bytes();
  return bytes;
}

void RankCopies::require_filled() const {
  if (moment_.id == 0)
    fail(OTR_E_STATE, "the snapshot is empty: it was not filled, or that failed");
}

std::span<const std::byte> RankCopies::part(const std::string& name) const {
  require_filled();
  const Text text = parse(copies_.front().text);
  const auto found = std::ranges::find(text.parts, name);
  if (found == text.parts.end()) {
    fail(OTR_E_NOT_FOUND, "the snapshot of rank {} has no part \"{}\"", own_rank(),
         printable(name));
  }
  const auto i = static_cast<size_t>(found - text.parts.begin());
  return copies_.front().data().subspan(static_cast<size_t>(text.begins[i]),
                                        static_cast<size_t>(text.ends[i] - text.begins[i]));
}

void RankCopies::clear() {
  moment_ = {};
  spare_.clear();
  for (Copy& copy : copies_) spare_.push_back(std::move(copy.room));
  copies_.clear();
}

RankCopies::Copy& RankCopies::add(int32_t rank, std::string text, int64_t bytes) {
  memory::Block room;
  const auto fits = std::ranges::find_if(
      spare_, [&](const memory::Block& block) { return block.bytes() >= bytes; });
  if (fits != spare_.end()) {
    room = std::move(*fits);
    spare_.erase(fits);
  } else {
    spare_.clear();
    room = memory::Block(ledger_, memory::Purpose::snapshots, std::max<int64_t>(bytes, 1));
  }
  return copies_.emplace_back(Copy{rank, std::move(text), std::move(room), bytes});
}

}  // namespace outrigger::engine

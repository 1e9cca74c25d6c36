// SPDX-License-Identifier: Apache-2.0
#include "core/engine/shard_checkpoints.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/complete.h"
#include "core/checkpoint/planes.h"
#include "core/memory/copy.h"

namespace outrigger::engine {

using checkpoint::Plane;
using kernels::Format;
using optimizer::Shard;
using optimizer::StoredValue;

namespace {

constexpr std::array<std::pair<checkpoint::Kept, int32_t>, 3> kShardValues{
    {{checkpoint::Kept::master, OTR_VALUE_MASTER},
     {checkpoint::Kept::exp_avg, OTR_VALUE_EXP_AVG},
     {checkpoint::Kept::exp_avg_sq, OTR_VALUE_EXP_AVG_SQ}}};

bool keeps(const Shard& shard, checkpoint::Kept kept) {
  if (kept == checkpoint::Kept::exp_avg) return shard.keeps_exp_avg;
  return kept == checkpoint::Kept::master || shard.keeps_exp_avg_sq;
}

// A part that does not begin with its parameter is not taken for one that does, or for another.
std::string name_there(const Shard& shard) {
  if (shard.first_element == 0) return shard.name;
  return format_text("{}[{}:{}]", shard.name, shard.first_element,
                     shard.first_element + shard.weights.count);
}

}  // namespace

ShardCheckpoints::ShardCheckpoints(optimizer::Optimizer& optimizer, std::vector<Shard*> shards,
                                   const char* call, checkpoint::Files& files)
    : optimizer_(optimizer), shards_(std::move(shards)), call_(call), files_(files) {
  std::set<std::string_view> known;
  for (const Shard* shard : shards_) names_.push_back(name_there(*shard));
  for (const std::string& name : names_) {
    if (known.insert(name).second) continue;
    fail(OTR_E_DUPLICATE,
         "{}: two shards are called \"{}\": give each a name of its own (otr_shard_options.name)",
         call_, printable(name));
  }
  optimizer_.prepare(shards_);
}

std::vector<ShardCheckpoints::Value> ShardCheckpoints::values() const {
  std::vector<Value> all;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = *shards_[i];
    for (const auto& [kept, value] : kShardValues) {
      if (!keeps(shard, kept)) continue;
      all.push_back({i, kept, optimizer::stored_value(shard, value), shard.weights.count});
    }
  }
  return all;
}

// ---- Progress -----------------------------------------------------------------------------------

Progress ShardCheckpoints::progress() const {
  Progress p;
  p.micro_steps = optimizer_.counts().steps;
  p.applied_steps = optimizer_.counts().applied;
  p.skipped_steps = optimizer_.counts().skipped;
  const auto& norms = optimizer_.outliers().norms();
  p.outlier_norms.assign(norms.begin(), norms.end());
  p.groups.push_back(group_of("default", optimizer_.config()));
  p.trainable = static_cast<int64_t>(shards_.size());
  std::set<std::string> lines;
  std::vector<std::pair<std::string, int64_t>> updates;
  for (size_t i = 0; i < shards_.size(); ++i) {
    lines.insert(format_text("{}\n{}", names_[i], shards_[i]->weights.count));
    updates.emplace_back(names_[i], shards_[i]->updates);
  }
  count_updates(p, updates);
  p.model = model_hash(lines);
  p.made_with = {1, 1, "boundary", optimizer_.config().seed, optimizer_.config().type};
  return p;
}

// Of several groups none is known to be the one whose values this optimizer has.
config::OptimizerConfig ShardCheckpoints::config_of(const Progress& progress) const {
  config::OptimizerConfig config = optimizer_.config();
  if (progress.groups.size() != 1) return config;
  try {
    set_values(config, progress.groups.front());
  } catch (const Error& error) {
    fail(error.status(), "{}: {}; load weights only, or use the optimizer that it was made with",
         call_, error.what());
  }
  return config;
}

void ShardCheckpoints::resume(const Progress& progress, config::OptimizerConfig config,
                              const std::vector<std::string>& names) {
  const Progress::Circumstances& there = progress.made_with;
  if (!progress.groups.empty() && (there.seed != config.seed || there.optimizer != config.type)) {
    optimizer_.context().log(
        OTR_LOG_WARNING,
        format_text("{}: this run goes on with seed {} and optimizer \"{}\", and was made with {} "
                    "and \"{}\": its bits are not those of a run that was not stopped",
                    call_, config.seed, printable(config.type), there.seed,
                    printable(there.optimizer)));
  }
  optimizer_.resume({progress.micro_steps, progress.applied_steps, progress.skipped_steps},
                    std::move(config), progress.outlier_norms);
  const std::map<std::string, int64_t> others(progress.other_updates.begin(),
                                              progress.other_updates.end());
  for (size_t i = 0; i < shards_.size(); ++i) {
    const auto other = others.find(names[i]);
    shards_[i]->updates = other == others.end() ? progress.usual_updates : other->second;
  }
}

// ---- Files --------------------------------------------------------------------------------------

checkpoint::AssemblyOptions ShardCheckpoints::options_of(const std::vector<Value>& values) const {
  std::array<const Value*, checkpoint::kKept> first{};  // of each state
  for (const Value& value : values) {
    const Value*& known = first.at(static_cast<size_t>(value.kept));
    if (known == nullptr) known = &value;
    if (known->stored.format == value.stored.format) continue;
    fail(OTR_E_UNSUPPORTED,
         "{}: shard \"{}\" has its {} as {}, and \"{}\" as {}; a checkpoint has one format of "
         "each: save them into two",
         call_, printable(name_of(*known)), checkpoint::name_of(value.kept),
         checkpoint::format_name(known->stored.format), printable(name_of(value)),
         checkpoint::format_name(value.stored.format));
  }
  const auto format = [&](Kept kept) -> std::optional<Format> {
    const Value* const known = first.at(static_cast<size_t>(kept));
    return known == nullptr ? std::nullopt : std::optional(known->stored.format);
  };
  checkpoint::AssemblyOptions made;
  made.weights = format(Kept::master).value_or(Format::float32);
  made.exp_avg = format(Kept::exp_avg);
  made.exp_avg_sq = format(Kept::exp_avg_sq);
  if (!shards_.empty() && shards_.front()->published) {
    made.published = shards_.front()->published->format;
  }
  made.progress = to_json(progress());
  made.in_order = true;
  return made;
}

void ShardCheckpoints::save(const SaveTarget& target, const std::vector<HostPart>& parts) {
  const std::vector<Value> all = values();
  checkpoint::AssemblyOptions made = options_of(all);
  made.replace = target.replace;
  checkpoint::Assembly assembly(files_, target.directory, target.tag, std::move(made));
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = *shards_[i];
    assembly.add({.name = names_[i],
                  .shape = {shard.weights.count},
                  .exp_avg = shard.keeps_exp_avg,
                  .exp_avg_sq = shard.keeps_exp_avg_sq});
  }
  for (const HostPart& part : parts) {
    assembly.add_part(part.name, {part.bytes.begin(), part.bytes.end()});
  }
  for (const Value& value : all) {
    assembly.write_stored(name_of(value), value.kept,
                          {value.stored.data, value.stored.beside, value.count});
  }
  assembly.finish();
  keep_latest(assembly.lock(), target.keep_last);
}

// ---- Snapshots ----------------------------------------------------------------------------------

std::span<std::byte> ShardCheckpoints::plane_of(const Value& value, size_t plane) {
  const StoredValue& stored = value.stored;
  const auto bytes =
      checkpoint::plane_bytes(stored.format, plane, {stored.data, stored.beside, value.count});
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

std::string ShardCheckpoints::layout_of(const std::vector<Value>& values) const {
  std::vector<std::string> lines;
  for (const Value& value : values) {
    lines.push_back(format_text("{} {} {} {}", name_of(value), checkpoint::name_of(value.kept),
                                checkpoint::format_name(value.stored.format), value.count));
  }
  return RankCopies::layout_of(lines);
}

void ShardCheckpoints::snapshot(RankCopies& into, const std::vector<HostPart>& parts) {
  into.clear();
  const std::vector<Value> all = values();
  RankCopies::Text text{layout_of(all), to_json(progress()), {}, {}, {}};
  int64_t bytes = 0;
  for (const Value& value : all) {
    for (const Plane& plane : checkpoint::planes_of(value.stored.format)) {
      bytes += plane.bytes(value.count);
    }
  }
  for (const HostPart& part : parts) {
    text.parts.push_back(part.name);
    text.begins.push_back(bytes);
    bytes += static_cast<int64_t>(part.bytes.size());
    text.ends.push_back(bytes);
  }
  std::byte* to = into.add(0, RankCopies::to_json(text), bytes).data().data();
  for (const Value& value : all) {
    for (size_t i = 0; i < checkpoint::planes_of(value.stored.format).size(); ++i) {
      const auto plane = plane_of(value, i);
      memory::copy_past_caches(to, plane);
      to += plane.size();
    }
  }
  for (const HostPart& part : parts) {
    std::ranges::copy(part.bytes, to);
    to += part.bytes.size();
  }
  into.seal({RankCopies::moment_id(checkpoint::new_id()), optimizer_.counts().steps, 1});
}

void ShardCheckpoints::restore(const RankCopies& from) {
  from.require_filled();
  const RankCopies::Text text = RankCopies::parse(from.copies().front().text);
  const std::vector<Value> all = values();
  if (text.layout != layout_of(all)) {
    fail(OTR_E_MISMATCH,
         "{}: the snapshot is of other names, formats or counts than these shards have: what "
         "changed goes by way of otr_optimizer_save and otr_optimizer_load",
         call_);
  }
  const Progress progress = parse_progress(text.progress);
  config::OptimizerConfig config = config_of(progress);
  const std::byte* data = from.copies().front().data().data();
  for (const Value& value : all) {
    for (size_t i = 0; i < checkpoint::planes_of(value.stored.format).size(); ++i) {
      const auto plane = plane_of(value, i);
      std::copy_n(data, plane.size(), plane.begin());
      data += plane.size();
    }
  }
  for (const Shard* shard : shards_) optimizer::publish(*shard);
  resume(progress, std::move(config), names_);
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// The progress of a checkpoint that no engine saved: it counts updates, and knows nothing of loss
// scales, schedules and hyperparameters.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/members.h"
#include "core/engine/run.h"

namespace outrigger::engine {
namespace {

using config::Members;
using config::ValueAt;

constexpr int64_t kMostUpdates = int64_t{1} << 53;

const config::Subject kImported{"the progress of an imported checkpoint"};

// Here a name may be an alias, frozen, or of no interest.
void set_updates(Resumed& r, const layout::Model& model, int64_t id, int64_t updates) {
  const int64_t root = model.at(id).root;
  if (model.at(root).trainable) r.updates[static_cast<size_t>(root)] = updates;
}

struct Counts {
  int64_t applied = 0;
  std::vector<std::pair<std::string, int64_t>> others;
};

// Nothing: a progress of an engine's. Null: not known how many.
using Imported = std::optional<std::optional<Counts>>;

Counts read_counts(const ValueAt& value) {
  Members m(value);
  Counts counts;
  counts.applied = m.take("applied").integer<int64_t>(0, kMostUpdates);
  for (const ValueAt& other : m.take("other_updates").list()) {
    const std::vector<ValueAt> pair = other.list();
    if (pair.size() != 2) other.refuse("a list of a name and a number of updates");
    counts.others.emplace_back(pair[0].text(), pair[1].integer<int64_t>(0, kMostUpdates));
  }
  m.require_all_taken();
  return counts;
}

Imported read_imported(std::string_view json) {
  const config::Node root =
      config::parse_document(json, {kImported.what, size_t{1} << 28, size_t{1} << 23});
  const bool imported = std::ranges::any_of(
      root.members, [](const config::Member& member) { return member.name == "imported"; });
  if (!imported) return std::nullopt;
  Members m(ValueAt(kImported, root));
  static_cast<void>(m.take("version").integer<int64_t>(1, 1));
  const ValueAt counts = m.take("imported");
  m.require_all_taken();
  if (counts.node().kind == config::Kind::null) return std::optional<Counts>();
  return read_counts(counts);
}

const Counts& counts_of(const std::optional<Counts>& known, const char* call) {
  if (known) return *known;
  fail(OTR_E_NOT_FOUND,
       "{}: the checkpoint was imported, and does not say how many updates were made: load weights "
       "only, or import it with applied steps",
       call);
}

Resumed resume_counts(const Counts& counts, const Declared& declared, const Names& names,
                      const Run& run, int32_t groups) {
  Resumed r{progress_of(declared, run, groups), declared.groups,
            std::vector<int64_t>(static_cast<size_t>(declared.model.size()), 0),
            Bits(declared.model.size())};
  // A step of the loop is one of the optimizer, as far as an import can know.
  r.progress.micro_steps = r.progress.applied_steps = counts.applied;
  r.progress.skipped_steps = 0;
  for (const int64_t root : declared.trainable_roots()) {
    r.updates[static_cast<size_t>(root)] = counts.applied;
    if (declared.model.at(root).frozen) r.frozen.set(root);
  }
  for (const auto& [name, updates] : counts.others) {
    for (const int64_t id : names.ids_of(name)) set_updates(r, declared.model, id, updates);
  }
  return r;
}

}  // namespace

Progress saved_progress(std::string_view json, const char* call) {
  const Imported imported = read_imported(json);
  if (!imported) return parse_progress(json);
  const Counts& counts = counts_of(*imported, call);
  Progress progress;
  progress.micro_steps = progress.applied_steps = progress.usual_updates = counts.applied;
  progress.other_updates = counts.others;
  return progress;
}

void require_saved_progress(std::string_view json) {
  if (!read_imported(json)) static_cast<void>(parse_progress(json));
}

Resumed read_saved_progress(std::string_view json, const Declared& declared, const Names& names,
                            const Run& run, int32_t groups) {
  const Imported imported = read_imported(json);
  if (!imported) return read_progress(json, declared, names);
  return resume_counts(counts_of(*imported, "otr_engine_load"), declared, names, run, groups);
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "flight_job.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "outrigger.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// As core/comm/group.h has it: a rank of a larger group, as a culprit.
constexpr int32_t rank_outside(int32_t culprit) { return ~culprit - 1; }

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string seconds(int64_t nanoseconds) {
  return format_text("{:.3f} s", static_cast<double>(std::max<int64_t>(0, nanoseconds)) * 1e-9);
}

std::string who(const Flight& flight) {
  return format_text("rank {} (process {} of {})", rank_of(flight), flight.process, flight.host);
}

bool is_gone(const Flight& flight) { return flight.fate == Fate::ended && !flight.failure; }

// Whom a rank waited for: its file, or if there is none its number, if that is known.
struct Next {
  const Flight* flight = nullptr;
  int32_t missing = -1;
  bool is_dead = false;  // others have found its process ended
  [[nodiscard]] bool is_known() const { return flight != nullptr || missing >= 0; }
};

const Flight* member(const Job& job, uint64_t group, int32_t rank) {
  for (const Flight& flight : job.ranks) {
    const RankGroup* const its = flight.find(group);
    if (its != nullptr && its->rank == rank) return &flight;
  }
  return nullptr;
}

// Of the group's ranks the first that has not come to this operation; better one that has ended.
Next behind(const Job& job, const Flight& flight, const FlightOperation& operation) {
  Next next, inside;
  size_t seen = 0;
  for (const Flight& other : job.ranks) {
    const RankGroup* const its = other.find(operation.group);
    if (its == nullptr) continue;
    ++seen;
    if (&other == &flight) continue;
    const uint64_t come = its->current ? its->current->number : 0;
    const bool has_ended = is_gone(other);
    if (has_ended && come == operation.number) inside.flight = &other;
    if (come >= operation.number) continue;
    const bool is_better = next.flight == nullptr || (has_ended && !is_gone(*next.flight));
    if (is_better) next.flight = &other;
  }
  if (next.flight != nullptr) return next;
  if (inside.flight != nullptr) return inside;
  const RankGroup* const its = flight.find(operation.group);
  const RankGroup* const largest = flight.largest();
  if (its == nullptr || seen >= static_cast<size_t>(its->size) || its->size != largest->size) {
    return {};
  }
  for (int32_t r = 0; r < its->size && next.missing < 0; ++r) {
    if (member(job, operation.group, r) == nullptr) next.missing = r;
  }
  return next;
}

Next named_by(const Job& job, const Flight& flight) {
  const FlightFailure& failure = *flight.failure;
  Next next;
  next.is_dead = failure.status == OTR_E_PEER_DEAD;
  const RankGroup* const largest = flight.largest();
  if (failure.culprit == -1) {  // its own, unless one that is gone made its library fail
    const FlightOperation* const failed = failed_operation(flight);
    const Next gone = failed == nullptr ? Next{} : behind(job, flight, *failed);
    next.flight = &flight;
    if (gone.flight != nullptr && is_gone(*gone.flight)) return gone;
  } else if (failure.culprit < 0) {
    next.missing = rank_outside(failure.culprit);
    for (const Flight& other : job.ranks) {
      if (rank_of(other) == next.missing) next.flight = &other;
    }
  } else {
    next.flight = member(job, failure.group, failure.culprit);
    const RankGroup* const its = flight.find(failure.group);
    if (its != nullptr && largest != nullptr && its->size == largest->size) {
      next.missing = failure.culprit;
    }
  }
  return next;
}

Next next_of(const Job& job, const Flight& flight) {
  if (flight.failure) return named_by(job, flight);
  if (is_gone(flight)) return {};
  const FlightOperation* const operation = flight.under_way();
  return operation == nullptr ? Next{} : behind(job, flight, *operation);
}

// Where to begin: whoever failed first, or else waits.
const Flight* first_of(const Job& job) {
  const Flight* first = nullptr;
  for (const Flight& flight : job.ranks) {
    if (flight.failure && (first == nullptr || flight.failure->at < first->failure->at)) {
      first = &flight;
    }
  }
  if (first != nullptr) return first;
  for (const Flight& flight : job.ranks) {
    if (flight.under_way() == nullptr) continue;
    if (first == nullptr || flight.under_way()->begun < first->under_way()->begun) first = &flight;
  }
  return first;
}

std::string where_it_was(const Job& job, const Flight& flight, bool is_gone) {
  const FlightOperation* const inside = flight.under_way();
  const char* const did = is_gone ? "its process ended" : "it is";
  if (inside != nullptr) {
    return format_text("{} in {}, which it began {}", did, text_of(job, flight, *inside),
                       is_gone ? "last" : seconds(now() - inside->begun) + " ago");
  }
  const FlightOperation* const last =
      flight.operations.empty() ? nullptr : &flight.operations.back();
  if (last == nullptr) return format_text("{} before any operation", did);
  return is_gone ? format_text("its process ended outside of any operation; its last was {}",
                               text_of(job, flight, *last))
                 : format_text("it has been in no operation for {}; its last was {}",
                               seconds(now() - last->ended), text_of(job, flight, *last));
}

}  // namespace

int64_t Job::last_moment() const {
  int64_t last = 0;
  for (const Flight& flight : ranks) last = std::max(last, flight.last_moment());
  return last;
}

int32_t Job::size() const {
  int32_t most = 0;
  for (const Flight& flight : ranks) {
    if (flight.largest() != nullptr) most = std::max(most, flight.largest()->size);
  }
  return most;
}

std::vector<int32_t> Job::missing() const {
  std::set<int32_t> there;
  for (const Flight& flight : ranks) there.insert(rank_of(flight));
  std::vector<int32_t> found;
  for (int32_t r = 0; r < size(); ++r) {
    if (!there.contains(r)) found.push_back(r);
  }
  return found;
}

std::vector<Job> jobs_of(std::vector<Flight> flights) {
  std::vector<size_t> parent(flights.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t i) {
    while (parent[i] != i) i = parent[i];
    return i;
  };
  std::map<uint64_t, size_t> first;  // that has the group
  for (size_t i = 0; i < flights.size(); ++i) {
    for (const RankGroup& group : flights[i].groups) {
      const auto [found, is_new] = first.emplace(group.identity, i);
      if (!is_new) parent[root(i)] = root(found->second);
    }
  }
  std::map<size_t, Job> by_root;
  for (size_t i = 0; i < flights.size(); ++i) {
    by_root[root(i)].ranks.push_back(std::move(flights[i]));
  }
  std::vector<Job> jobs;
  for (auto& [number, job] : by_root) {
    std::stable_sort(job.ranks.begin(), job.ranks.end(),
                     [](const Flight& a, const Flight& b) { return rank_of(a) < rank_of(b); });
    jobs.push_back(std::move(job));
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.last_moment() > b.last_moment(); });
  return jobs;
}

int32_t rank_of(const Flight& flight) {
  return flight.largest() == nullptr ? -1 : flight.largest()->rank;
}

const FlightOperation* failed_operation(const Flight& flight) {
  if (!flight.failure) return nullptr;
  const auto failed =
      std::find_if(flight.operations.rbegin(), flight.operations.rend(),
                   [](const FlightOperation& each) { return each.status != OTR_OK; });
  return failed == flight.operations.rend() ? nullptr : &*failed;
}

std::string list_of(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += format_text("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += format_text("{}{}", last > i + 1 ? "-" : ", ", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string text_of(const Job& job, const Flight& flight, const FlightOperation& operation) {
  const std::string label = operation.label.empty() ? "" : format_text(" '{}'", operation.label);
  const std::string step =
      operation.step > 0 ? format_text(", step {}", operation.step) : std::string();
  const RankGroup* const group = flight.find(operation.group);
  std::string of = "a group that is gone";
  if (group != nullptr) {
    std::vector<int32_t> members;
    for (const Flight& other : job.ranks) {
      if (other.find(operation.group) != nullptr) members.push_back(rank_of(other));
    }
    const bool knows_all = members.size() == static_cast<size_t>(group->size);
    of = format_text(
        "'{}' of {}", group->name,
        knows_all ? format_text("rank{} {}", members.size() == 1 ? "" : "s", list_of(members))
                  : format_text("{} ranks", group->size));
  }
  return format_text("{}{} (operation {} of {}{})", operation.what, label, operation.number, of,
                     step);
}

Verdict verdict_of(const Job& job) {
  Verdict verdict;
  const Flight* const first = first_of(job);
  if (first == nullptr) {
    verdict.text = "no rank waits for another, and none has failed";
    return verdict;
  }
  Next at{first, -1, false};
  std::set<const Flight*> seen{first};
  while (!at.is_dead) {
    const Next next = next_of(job, *at.flight);
    if (!next.is_known() || next.flight == at.flight) break;
    if (next.flight != nullptr && !seen.insert(next.flight).second) break;
    at = next;
    // Another rank may have found it gone that has failed itself, and says of whom.
    if (at.is_dead && at.flight != nullptr && at.flight->failure) at.is_dead = false;
    if (at.flight == nullptr) break;
  }
  verdict.culprit = at.flight != nullptr ? rank_of(*at.flight) : at.missing;
  const FlightOperation* waited_in = nullptr;
  const Flight* waiter = nullptr;
  for (const Flight& flight : job.ranks) {
    if (&flight == at.flight) continue;
    const FlightOperation* const inside = flight.under_way();
    const FlightOperation* const failed = failed_operation(flight);
    if (inside == nullptr && !flight.failure) continue;
    verdict.held_up.push_back(rank_of(flight));
    if (inside == nullptr && failed == nullptr) continue;  // it heard of it between operations
    if (waiter != nullptr && &flight != first) continue;
    waiter = &flight;
    waited_in = failed != nullptr ? failed : inside;
  }
  std::string held;
  if (waiter != nullptr) {
    const bool waits = waiter->fate == Fate::running;
    const bool one = verdict.held_up.size() == 1;
    held = format_text("; rank{} {} {} for it, rank {} in {}", one ? "" : "s",
                       list_of(verdict.held_up), waits ? (one ? "waits" : "wait") : "waited",
                       rank_of(*waiter), text_of(job, *waiter, *waited_in));
  }
  if (at.flight == nullptr) {
    verdict.text = format_text(
        "rank {} held up the others, and there is no file of it here: look on its host{}",
        at.missing, held);
  } else if (at.flight->failure) {
    verdict.text =
        format_text("{} failed first: {}{}", who(*at.flight), at.flight->failure->text, held);
  } else {
    const bool is_gone = at.is_dead || at.flight->fate == Fate::ended;
    verdict.text =
        format_text("{} {}: {}{}", who(*at.flight), is_gone ? "is gone" : "holds up the others",
                    where_it_was(job, *at.flight, is_gone), held);
  }
  return verdict;
}

}  // namespace outrigger::tools

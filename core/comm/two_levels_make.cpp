// SPDX-License-Identifier: Apache-2.0
// How the two levels are made: whether the groups fit each other, and that all ranks hear the same.
#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/comm/gather_values.h"
#include "core/comm/two_levels.h"

namespace outrigger::comm {
namespace {

constexpr const char* kLabel = "make a hierarchical communicator";

// The first rank that has another place than it should, and what it has.
struct Place {
  int32_t rank = -1;
  int32_t host_rank = 0, host_size = 0, across_rank = 0, across_size = 0;
  int32_t levels = 1;  // 2: one of its groups has two levels of its own
};

// Who a rank is: ranks of another communicator may have the right numbers, too.
struct Identity {
  std::array<int64_t, 3> job{};  // what rank 0 of all has said
  int64_t rank = 0;
  bool operator==(const Identity&) const = default;
};

// The first rank one of whose groups has a rank that does not belong there.
struct Stranger {
  int32_t rank = -1;
  int32_t is_on_host = 0, place = 0, expected = 0;
  int32_t found = 0;  // −1: of another communicator
};

template <typename T>
void keep_first_found(T& into, const T& from) {
  if (into.rank < 0 && from.rank >= 0) into = from;
}

void require_places(const RankGroups& levels) {
  const Communicator &host = *levels.group, &across = *levels.across;
  const int32_t rank = levels.all->rank(), world = levels.all->size(), each = host.size();
  Place place{-1, host.rank(), each, across.rank(), across.size()};
  if (host.groups() > 1 || across.groups() > 1) place.levels = 2;
  const bool fits = int64_t{each} * across.size() == world && host.rank() == rank % each &&
                    across.rank() == rank / each && place.levels == 1;
  if (!fits) place.rank = rank;
  combine_value(*levels.all, place, keep_first_found<Place>, kLabel);
  if (place.rank < 0) return;
  if (place.levels > 1) {
    fail(OTR_E_UNSUPPORTED,
         "rank {} gives a hierarchical communicator as host or across: there are two levels, not "
         "three",
         place.rank);
  }
  fail(OTR_E_ARGUMENT,
       "rank {} of {} is rank {} of {} on its host, and rank {} of {} across hosts; legal are "
       "hosts of as many consecutive ranks each: rank r is rank r % L of L on its host, and rank "
       "r / L across them",
       place.rank, world, place.host_rank, place.host_size, place.across_rank, place.across_size);
}

// Right numbers are not enough: sums of the wrong ranks would be sums, too.
void require_members(const RankGroups& levels) {
  Communicator& all = *levels.all;
  const int32_t rank = all.rank(), each = levels.group->size();
  Identity self{{current_process(), std::chrono::steady_clock::now().time_since_epoch().count(),
                 static_cast<int64_t>(reinterpret_cast<uintptr_t>(&all))}};
  all.broadcast(std::as_writable_bytes(std::span(self.job)), 0, kLabel);
  self.rank = rank;
  Stranger stranger;
  const auto look = [&](Communicator& part, int32_t is_on_host, int32_t first, int32_t stride) {
    const std::vector<Identity> members = gather_values(part, std::vector<Identity>{self}, kLabel);
    for (int32_t i = 0; i < part.size(); ++i) {
      const Identity& found = members[static_cast<size_t>(i)];
      const int32_t expected = first + i * stride;
      if (found == Identity{self.job, expected} || stranger.rank >= 0) continue;
      stranger = {rank, is_on_host, i, expected,
                  found.job == self.job ? static_cast<int32_t>(found.rank) : -1};
    }
  };
  look(*levels.group, 1, rank / each * each, 1);
  look(*levels.across, 0, rank % each, each);
  combine_value(all, stranger, keep_first_found<Stranger>, kLabel);
  if (stranger.rank < 0) return;
  fail(OTR_E_ARGUMENT, "rank {} of {} has {} as rank {} of its group {}, where rank {} belongs",
       stranger.rank, all.size(),
       stranger.found < 0 ? "a rank of another communicator"
                          : format_text("rank {}", stranger.found),
       stranger.place, stranger.is_on_host != 0 ? "host" : "across", stranger.expected);
}

// A failure on this rank is told to whoever is or will be in one of the groups, and all throw the
// first; what all ranks throw alike, or can try again, is no such failure.
void tell(const RankGroups& made, Communicator& host, Communicator& across, int32_t rank,
          const Error& error) {
  const int32_t status = error.status();
  constexpr int32_t kOnAll[] = {OTR_E_ARGUMENT, OTR_E_UNSUPPORTED, OTR_E_OUT_OF_MEMORY};
  if (std::ranges::find(kOnAll, status) != std::end(kOnAll)) return;
  if (!made.all && (status == OTR_E_INTERRUPTED || status == OTR_E_STATE)) return;
  if (made.all) made.all->check();
  std::string text = error.what();
  const int32_t from = error.culprit();
  const bool is_of_all = !made.all || from < -1;  // it speaks of ranks of all: as it is
  if (!is_of_all) {
    text = format_text("rank {} of all could not make a hierarchical communicator: {}", rank, text);
  }
  const int32_t culprit = !is_of_all || from == -1 ? rank : from < 0 ? rank_outside(from) : from;
  const bool told = is_told(status);
  const Error named(told ? status : OTR_E_ABORTED, text, rank_outside(culprit));
  for (Communicator* each : {made.all.get(), made.group.get(), made.across.get(), &host, &across}) {
    if (each != nullptr) each->post(named);
  }
  if (told && made.all) made.all->check();
}

}  // namespace

RankGroups make_levels(Communicator& all, Communicator& group, Communicator& across) {
  constexpr const char* kName = "hierarchical";
  RankGroups made;
  try {
    made.all = all.duplicate(kName);
    OnAll on_all(all.rank());
    on_all.attempt([&] { made.group = group.duplicate(kName); });
    on_all.attempt([&] { made.across = across.duplicate(kName); });
    on_all.agree(*made.all, kLabel);
    require_places(made);
    require_members(made);
  } catch (const Error& error) {
    tell(made, group, across, all.rank(), error);
    throw;
  }
  return made;
}

}  // namespace outrigger::comm

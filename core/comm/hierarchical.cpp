// SPDX-License-Identifier: Apache-2.0
#include "core/comm/hierarchical.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/parts.h"
#include "core/comm/two_levels.h"

namespace outrigger::comm {
namespace {

// Every rank of all has a slice. What ranks agree on goes through the group of all of them.
class Hierarchical final : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  std::string_view provider() const override { return "hierarchical"; }
  bool shares_memory() const override { return false; }
  int32_t groups() const override { return across().size(); }
  Levels levels() const override { return groups() > 1 ? Levels::hosts : Levels::one; }

  // The groups of the two levels have them again; others have one level.
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override;
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED, "create_window '{}': ranks of several hosts have no common window",
           label);
    }
    return TwoLevels::create_window(kind, bytes, label);
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override;
  uint64_t reduce(const Reduce& reduce, std::string_view label) override;
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override;

 private:
  std::unique_ptr<Communicator> remake(RankGroups levels,
                                       std::shared_ptr<const int> family) const override {
    return std::make_unique<Hierarchical>(std::move(levels), std::move(family));
  }
  const char* name_of_group() const override { return "among the ranks of its host"; }
  const char* name_of_across() const override { return "across hosts"; }
  // This host's sums of the slices that the ranks at this place own, one for each host.
  uint64_t sum_on_host(const Reduce& reduce, std::byte* sums, std::string_view label);
};

std::unique_ptr<Communicator> Hierarchical::subgroup(const std::vector<int32_t>& members) {
  constexpr std::string_view kLabel = "split a communicator";
  const auto is = [&](int32_t count, int32_t first, int32_t stride) {
    if (members.size() != static_cast<size_t>(count)) return false;
    for (int32_t i = 0; i < count; ++i) {
      if (members[static_cast<size_t>(i)] != first + i * stride) return false;
    }
    return true;
  };
  struct Fits {
    int32_t not_hosts, not_places;
  };
  Fits fits{!is(group().size(), first_here(), 1),
            !is(across().size(), group().rank(), group().size())};
  combine_value(
      inner(), fits,
      [](Fits& into, const Fits& from) {
        into.not_hosts |= from.not_hosts;
        into.not_places |= from.not_places;
      },
      kLabel);
  if (fits.not_hosts == 0) {
    return within(group(), false, [&] { return group().duplicate(kLabel); });
  }
  if (fits.not_places == 0) {
    return within(across(), false, [&] { return across().duplicate(kLabel); });
  }
  return inner().subgroup(members);
}

uint64_t Hierarchical::sum_on_host(const Reduce& reduce, std::byte* sums, std::string_view label) {
  const auto each = static_cast<size_t>(group().size());
  uint64_t ticket = 0;
  for (int32_t h = 0; h < across().size(); ++h) {
    const int64_t apart =
        int64_t{h - across().rank()} * group().size();  // from my slice, in slices
    sum_in_group(reduce, reduce.offset + static_cast<size_t>(h) * each * reduce.slice_bytes,
                 reduce.fold.flat + apart * reduce.fold.count, h == 0,
                 sums + static_cast<size_t>(h * reduce.fold.count) * sizeof(float), label);
    ticket = end_exchange();
  }
  return ticket;
}

uint64_t Hierarchical::reduce(const Reduce& reduce, std::string_view label) {
  if (groups() == 1) return Communicator::reduce(reduce, label);
  const uint64_t ticket = sum_on_host(reduce, sums_for(reduce, label), label);
  fold_across(reduce, label);
  return ticket;
}

// Both: first what the ranks at this place have, then what the host's ranks have got. So each byte
// comes to a host once.
void Hierarchical::all_gather_parts(std::span<const Part> parts, std::string_view label) {
  static_cast<void>(summarize(parts, size(), label));  // refuses what no rank can have
  const int32_t each = group().size();
  std::vector<Part> of_place, by_place;
  for (const Part& part : parts) {
    by_place.push_back({part.rank % each, part.bytes});
    if (part.rank % each == group().rank()) of_place.push_back({part.rank / each, part.bytes});
  }
  within(across(), true, [&] { across().all_gather_parts(of_place, label); });
  within(group(), false, [&] { group().all_gather_parts(by_place, label); });
}

void Hierarchical::all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                     std::string_view label) {
  Window& mine_on_host = own(window, label);
  const auto each = static_cast<size_t>(group().size());
  std::byte* const mine = mine_on_host.block(group().rank()) + offset;
  std::vector<Part> slices;
  for (int32_t h = 0; h < across().size(); ++h) {
    const size_t owner = static_cast<size_t>(h) * each + static_cast<size_t>(group().rank());
    slices.push_back({h, {mine + owner * slice_bytes, slice_bytes}});
  }
  within(across(), true, [&] { across().all_gather_parts(slices, label); });
  for (int32_t h = 0; h < across().size(); ++h) {
    const size_t first = offset + static_cast<size_t>(h) * each * slice_bytes;
    within(group(), false,
           [&] { group().all_gather_window(mine_on_host, first, slice_bytes, label); });
  }
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical(Communicator& all, Communicator& host,
                                                Communicator& across) {
  return std::make_unique<Hierarchical>(make_levels(all, host, across),
                                        std::make_shared<const int>(0));
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/mesh.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/two_levels.h"
#include "core/comm/watching.h"

namespace outrigger::comm {
namespace {

using kernels::Format;

constexpr const char* kLabel = "mesh";

// What both kinds share.
class Groups : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  std::string_view provider() const override { return "mesh"; }
  bool shares_memory() const override { return group().shares_memory(); }
  bool is_one_host() const override { return inner().is_one_host(); }
  int32_t groups() const override { return across().size(); }

 protected:
  const char* name_of_group() const override { return "in its group of the mesh"; }
  const char* name_of_across() const override { return "across the groups of the mesh"; }
};

// A rank of each group has this slice.
class Mesh final : public Groups {
 public:
  using Groups::Groups;
  Levels levels() const override { return Levels::mesh; }
  int32_t slices() const override { return group().size(); }
  int32_t slice() const override { return group().rank(); }

  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    within(group(), true, [&] { group().all_gather_parts(parts, label); });
  }
  uint64_t reduce(const Reduce& reduce, std::string_view label) override;
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    within(group(), true,
           [&] { group().all_gather_window(own(window, label), offset, slice_bytes, label); });
  }

 private:
  std::unique_ptr<Communicator> remake(RankGroups levels,
                                       std::shared_ptr<const int> family) const override {
    return std::make_unique<Mesh>(std::move(levels), std::move(family));
  }
  // From sums of the groups to those of all, by parts of a slice.
  void sum_across(const Reduce& reduce, int64_t part, std::string_view label);

  // Of `across`: the sums of all groups, each group's part of it made by its rank.
  std::shared_ptr<Window> totals_;
};

// The ranks at one place in their groups, each of which has a part of what they show.
class Replicas final : public Groups {
 public:
  using Groups::Groups;
  int32_t slices() const override { return across().size(); }
  int32_t slice() const override { return across().rank(); }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    within(across(), true, [&] { across().all_gather_parts(parts, label); });
  }

 private:
  std::unique_ptr<Communicator> remake(RankGroups levels,
                                       std::shared_ptr<const int> family) const override {
    return std::make_unique<Replicas>(std::move(levels), std::move(family));
  }
};

// Slices in the order of places in a group, and of groups at each.
class Divided final : public Groups {
 public:
  using Groups::Groups;
  Levels levels() const override { return Levels::divided; }
  int32_t slice() const override { return group().rank() * groups() + across().rank(); }
  int32_t rank_of_slice(int32_t slice) const override {
    return slice % groups() * group().size() + slice / groups();
  }
  Publishing publishing(std::string_view name) override {
    Publishing made;
    made.group = std::make_unique<Mesh>(duplicate_levels(name), std::make_shared<const int>(0));
    made.replicas =
        std::make_unique<Replicas>(duplicate_levels(name), std::make_shared<const int>(0));
    return made;
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override;
  uint64_t reduce(const Reduce& reduce, std::string_view label) override;
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override;

 private:
  std::unique_ptr<Communicator> remake(RankGroups levels,
                                       std::shared_ptr<const int> family) const override {
    return std::make_unique<Divided>(std::move(levels), std::move(family));
  }
};

// The last part may reach beyond the slice, into what nobody reads.
void Mesh::sum_across(const Reduce& reduce, int64_t part, std::string_view label) {
  const size_t bytes = static_cast<size_t>(part) * sizeof(float);
  const int64_t first = part * across().rank();
  const Sums sums = exchange_across(reduce, part, label);
  const device::SliceFold slice{
      sums.sources,
      sums.format,
      totals_->block(across().rank()) + static_cast<size_t>(across().rank()) * bytes,
      Format::float32,
      false,
      part,
      reduce.fold.flat + first};
  if (first < reduce.fold.count) fold(reduce.device, slice, label);
  within(across(), false, [&] {
    end_across(reduce);
    across().all_gather_window(*totals_, 0, bytes, label);
  });
}

uint64_t Mesh::reduce(const Reduce& reduce, std::string_view label) {
  const int64_t all = mesh_sums(reduce.fold.count, groups()), part = all / groups();
  const size_t bytes = static_cast<size_t>(all) * sizeof(float);
  std::byte* const sums = room_across(reduce, part, label);
  if (!totals_ || totals_->bytes() < bytes) {
    totals_ = create_on_all(across(), WindowKind::per_rank, bytes, label);
  }
  sum_in_group(reduce, reduce.offset, reduce.fold.flat, true, sums, label);
  const uint64_t ticket = end_exchange();
  sum_across(reduce, part, label);
  const void* const total = totals_->block(across().rank());
  fold_sums(reduce, {&total, 1}, Format::float32, label);
  return ticket;
}

void Divided::all_gather_parts(std::span<const Part> parts, std::string_view label) {
  std::vector<Part> of_ranks(parts.begin(), parts.end());
  for (Part& part : of_ranks) part.rank = rank_of_slice(part.rank);
  inner().all_gather_parts(of_ranks, label);
}

// In the group, of the slices of all groups at this rank's place; across groups, of its own.
uint64_t Divided::reduce(const Reduce& reduce, std::string_view label) {
  const int64_t first = reduce.fold.flat - int64_t{across().rank()} * reduce.fold.count;
  Reduce of_place = reduce;
  of_place.slice_bytes *= static_cast<size_t>(groups());
  of_place.fold.count *= groups();
  sum_in_group(of_place, reduce.offset, first, true, sums_for(reduce, label), label);
  const uint64_t ticket = end_exchange();
  fold_across(reduce, label);
  return ticket;
}

void Divided::all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                std::string_view label) {
  Window& of_group = own(window, label);
  const size_t place_bytes = slice_bytes * static_cast<size_t>(groups());
  std::byte* const place =
      of_group.block(group().rank()) + offset + static_cast<size_t>(group().rank()) * place_bytes;
  std::vector<Part> slices;
  for (int32_t g = 0; g < groups(); ++g) {
    slices.push_back({g, {place + static_cast<size_t>(g) * slice_bytes, slice_bytes}});
  }
  within(across(), true, [&] { across().all_gather_parts(slices, label); });
  within(group(), false, [&] { group().all_gather_window(of_group, offset, place_bytes, label); });
}

}  // namespace

// What one rank met in one of the smaller groups. All throw the same, which names a rank by its
// number among all; what all meet alike, they throw as it is.
static void tell(Communicator& all, const Error& error) {
  const int32_t status = error.status();
  if (status == OTR_E_UNSUPPORTED || status == OTR_E_INTERRUPTED || status == OTR_E_HOST) return;
  if (status == OTR_E_PEER_DEAD) all.barrier(kLabel);  // who waits for it here knows its number
  const bool told = status != OTR_E_PEER_DEAD && is_told(status);
  all.post(Error(told ? status : OTR_E_ABORTED,
                 format_text("rank {} of all could not make its groups of the mesh: {}", all.rank(),
                             error.what()),
                 all.rank()));
  if (told) all.check();
}

std::unique_ptr<Communicator> make_mesh(Communicator& all, int32_t shard, bool divided) {
  const auto consecutive = [&](int32_t first, int32_t stride, int32_t count) {
    std::vector<int32_t> members;
    for (int32_t i = 0; i < count; ++i) members.push_back(first + i * stride);
    return members;
  };
  const int32_t rank = all.rank(), groups = all.size() / shard;
  RankGroups levels;
  try {
    levels.all = all.duplicate(kLabel);
    const Watching whole(*levels.all);
    levels.group = levels.all->subgroup(consecutive(rank / shard * shard, 1, shard));
    levels.across = levels.all->subgroup(consecutive(rank % shard, shard, groups));
  } catch (const Error& error) {  // half made: it cannot be called again
    if (error.status() == OTR_E_INTERRUPTED) all.abort(error.what());
    if (levels.all) tell(*levels.all, error);
    throw;
  }
  const auto family = std::make_shared<const int>(0);
  if (divided) return std::make_unique<Divided>(std::move(levels), family);
  return std::make_unique<Mesh>(std::move(levels), family);
}

}  // namespace outrigger::comm

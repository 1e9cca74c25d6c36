// SPDX-License-Identifier: Apache-2.0
// A communicator of two levels: groups of consecutive ranks, and across them a group for each place
// in one. What ranks agree on goes over all of them; what becomes of a failure in one of the
// levels.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/fate.h"
#include "core/comm/forwarding.h"
#include "core/comm/verdict.h"
#include "core/comm/watching.h"

namespace outrigger::comm {

// A rank's groups.
struct RankGroups {
  std::unique_ptr<Communicator> all, group, across;
};

// What is made among the ranks of one level at a time, and shall be there on all ranks or on none:
// a level that has no memory for it is no reason not to come to the next.
class OnAll {
 public:
  explicit OnAll(int32_t rank) : rank_(rank) {}
  template <typename Body>
  void attempt(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.status() != OTR_E_OUT_OF_MEMORY) throw;
      if (first_.rank < 0) first_.set(rank_, error.status(), error.what());
    }
  }
  // Throws on every rank what the first one lacks.
  void agree(Group& all, std::string_view label) {
    combine_value(all, first_, merge_first, label);
    first_.require(format_text("'{}'", label));
  }

 private:
  const int32_t rank_;
  FirstVerdict first_;
};

// Of a rank's group.
class GroupsWindow final : public Window {
 public:
  GroupsWindow(std::shared_ptr<Window> window, int32_t rank, int32_t place, const void* maker)
      : window_(std::move(window)), rank_(rank), place_(place), maker_(maker) {}
  std::byte* block(int32_t rank) const override {
    return rank == rank_ ? window_->block(place_) : nullptr;
  }
  size_t bytes() const override { return window_->bytes(); }
  void give_back() noexcept override { window_->give_back(); }
  [[nodiscard]] Window& of_group() const { return *window_; }
  [[nodiscard]] const void* maker() const { return maker_; }

 private:
  const std::shared_ptr<Window> window_;
  const int32_t rank_, place_;  // this rank's numbers
  const void* const maker_;     // the family of communicators that it belongs to; never followed
};

class TwoLevels : public Forwarding {
 public:
  // family: whose windows its duplicates take, too.
  TwoLevels(RankGroups levels, std::shared_ptr<const int> family)
      : Forwarding(std::move(levels.all)),
        group_(std::move(levels.group)),
        across_(std::move(levels.across)),
        family_(std::move(family)) {}

  void follow(std::shared_ptr<const Moment> moment) override {
    for (Communicator* each : parts()) each->follow(moment);
  }
  std::unique_ptr<Communicator> duplicate(std::string_view name) override;
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override;
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override;
  uint64_t end_exchange() override { return group_->end_exchange(); }
  bool is_drained(uint64_t ticket) const override { return group_->is_drained(ticket); }
  void wait_drained(uint64_t ticket, std::string_view label) override;

  void abort(std::string_view reason) noexcept override {
    for (Communicator* each : parts()) each->abort(reason);
  }
  void cancel() noexcept override {
    cancelled_ = true;
    for (Communicator* each : parts()) each->cancel();
  }
  void give_up(int32_t culprit) noexcept override {
    inner().give_up(culprit);
    for (Communicator* part : {group_.get(), across_.get()}) {
      part->give_up(culprit == rank() ? part->rank() : rank_outside(culprit));
    }
  }
  void check() const override {
    inner().check();
    group_->check();
    across_->check();
  }
  uint64_t completed() const override {
    return inner().completed() + group_->completed() + across_->completed();
  }
  std::string waiting() const override;

 protected:
  // A duplicate of these levels.
  [[nodiscard]] virtual std::unique_ptr<Communicator> remake(
      RankGroups levels, std::shared_ptr<const int> family) const = 0;
  // "among the ranks of its host", "across hosts"
  [[nodiscard]] virtual const char* name_of_group() const = 0;
  [[nodiscard]] virtual const char* name_of_across() const = 0;

  [[nodiscard]] Communicator& group() const { return *group_; }
  [[nodiscard]] Communicator& across() const { return *across_; }
  [[nodiscard]] int32_t first_here() const { return across_->rank() * group_->size(); }

  // A part of an operation, among the ranks of `part`, which is one of the two. Its failure ends
  // this object for all ranks, with one text, which names the rank by its number among all. Before
  // anything has moved (`is_first`), an interrupt is no failure.
  template <typename Body>
  auto within(const Communicator& part, bool is_first, const Body& body) -> decltype(body());
  std::shared_ptr<Window> create_on_all(Communicator& part, WindowKind kind, size_t bytes,
                                        std::string_view label);
  [[nodiscard]] Window& own(const Window& window, std::string_view label) const;
  // Room for this group's sums of a slice for each group, which all groups have read before; and
  // from all groups' there to the reduce's accumulator.
  [[nodiscard]] std::byte* sums_for(const Reduce& reduce, std::string_view label) {
    return room_across(reduce, reduce.fold.count, label);
  }
  void fold_across(const Reduce& reduce, std::string_view label);
  // The same of parts of so many elements, one for each group, in two halves: all groups' sums of
  // this rank's part, in float32 or in blocks; and they are read.
  [[nodiscard]] std::byte* room_across(const Reduce& reduce, int64_t part, std::string_view label);
  struct Sums {
    std::span<const void* const> sources;
    kernels::Format format;
  };
  [[nodiscard]] Sums exchange_across(const Reduce& reduce, int64_t part, std::string_view label);
  void end_across(const Reduce& reduce);
  [[nodiscard]] RankGroups duplicate_levels(std::string_view name);
  [[nodiscard]] const std::shared_ptr<const int>& family() const { return family_; }
  // Sum of the group's slices at `offset` of the window, in float32, to `sum`, and to the reduce's
  // origin; flat: of its first element.
  void sum_in_group(const Reduce& reduce, size_t offset, int64_t flat, bool is_first, void* sum,
                    std::string_view label);

 private:
  [[nodiscard]] std::array<Communicator*, 3> parts() const {
    return {&inner(), group_.get(), across_.get()};
  }
  [[noreturn]] void failed(const Communicator& part, const Error& error);
  static bool has_failed(const Communicator& part) noexcept;
  [[nodiscard]] const char* name_of(const Communicator& part) const {
    return &part == group_.get() ? name_of_group() : name_of_across();
  }
  // A culprit of one of the three, by its number among all.
  [[nodiscard]] int32_t culprit_of(const Communicator& part, int32_t culprit) const;
  void agree(OnAll& on_all, std::string_view label);

  const std::unique_ptr<Communicator> group_, across_;
  const std::shared_ptr<const int> family_;
  std::atomic<bool> cancelled_{false};
  ReusedWindow sums_, blocks_;  // of `across`: sums of each group's slices, and as what they go
};

template <typename Body>
auto TwoLevels::within(const Communicator& part, bool is_first, const Body& body)
    -> decltype(body()) {
  struct Elsewhere {
    Communicator& all;
    explicit Elsewhere(Communicator& c) : all(c) { all.set_elsewhere(true); }
    ~Elsewhere() { all.set_elsewhere(false); }
  };
  const Elsewhere scope(inner());  // while it looks for whom to name, too
  const Watching whole(inner());
  try {
    return body();
  } catch (const Error& error) {
    const int32_t status = error.status();
    if (status == OTR_E_ARGUMENT || status == OTR_E_UNSUPPORTED || status == OTR_E_STATE) throw;
    if (status == OTR_E_INTERRUPTED && is_first && !has_failed(part)) throw;
    failed(part, error);
  }
}

// Duplicates of the three, which fit each other: each rank of `group` and of `across` is where it
// belongs. Throws on all ranks. Collective.
[[nodiscard]] RankGroups make_levels(Communicator& all, Communicator& group, Communicator& across);

}  // namespace outrigger::comm

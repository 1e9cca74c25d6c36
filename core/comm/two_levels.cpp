// SPDX-License-Identifier: Apache-2.0
#include "core/comm/two_levels.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/wait.h"

namespace outrigger::comm {
using kernels::Format;

// What has ended the group, if anything has.
static std::optional<Error> failure_of(const Group& group) {
  try {
    group.check();
    return {};
  } catch (const Error& error) {
    return error;
  }
}

// ---- Failures -----------------------------------------------------------------------------------

int32_t TwoLevels::culprit_of(const Communicator& part, int32_t culprit) const {
  if (culprit == -1) return rank();
  if (culprit < 0) return rank_outside(culprit);
  if (&part == group_.get()) return first_here() + culprit;
  return &part == across_.get() ? culprit * group_->size() + group_->rank() : culprit;
}

void TwoLevels::failed(const Communicator& part, const Error& error) {
  const bool told = is_told(error.status());
  const int32_t culprit = culprit_of(part, error.culprit());
  std::string text = format_text("rank {} of all, ", culprit);
  if (std::string_view(error.what()).starts_with(text)) {  // told by another rank
    text = error.what();
  } else {
    text += format_text("as rank {} saw it {}: {}", rank(), name_of(part), error.what());
  }
  const Error mine(told ? error.status() : OTR_E_ABORTED, text, culprit);
  if (cancelled_) throw Error(mine);  // of this rank alone; the others see it leave
  // Who waits for a rank that waits itself leaves it to that one to name whom it waits for.
  constexpr auto kPatience = std::chrono::seconds(1);
  const bool is_late = error.status() == OTR_E_TIMEOUT && culprit < size() && culprit != rank();
  for (const auto until = Clock::now() + kPatience;
       is_late && inner().is_elsewhere(culprit) && !failure_of(inner()) && Clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // All ranks say what the first one has found. Even if that was another one, who waits for this
  // rank in one of its two groups knows of it by this rank only.
  inner().post(mine);
  const Error first = failure_of(inner()).value_or(mine);
  for (Communicator* level : {group_.get(), across_.get()}) {
    level->post(
        Error(first.status(), first.what(), rank_outside(culprit_of(inner(), first.culprit()))));
  }
  // Its own trouble, as it was; or what made the caller's functions fail.
  const bool is_first = text.starts_with(first.what());
  if (error.status() == OTR_E_INTERRUPTED || (!told && is_first)) throw Error(error);
  throw Error(first);
}

bool TwoLevels::has_failed(const Communicator& part) noexcept {
  return failure_of(part).has_value();
}

std::string TwoLevels::waiting() const {
  if (std::string text = inner().waiting(); !text.empty()) return text;
  for (const Communicator* part : {group_.get(), across_.get()}) {
    const std::string text = part->waiting();
    if (!text.empty()) return format_text("{}: {}", name_of(*part), text);
  }
  return {};
}

// ---- What is made -------------------------------------------------------------------------------

RankGroups TwoLevels::duplicate_levels(std::string_view name) {
  RankGroups made;
  made.all = inner().duplicate(name);
  OnAll on_all(rank());
  within(*group_, false, [&] { on_all.attempt([&] { made.group = group_->duplicate(name); }); });
  within(*across_, false, [&] { on_all.attempt([&] { made.across = across_->duplicate(name); }); });
  agree(on_all, name);
  return made;
}

std::unique_ptr<Communicator> TwoLevels::duplicate(std::string_view name) {
  return remake(duplicate_levels(name), family_);
}

std::shared_ptr<Window> TwoLevels::create_window(WindowKind kind, size_t bytes,
                                                 std::string_view label) {
  return std::make_shared<GroupsWindow>(create_on_all(*group_, kind, bytes, label), rank(),
                                        group_->rank(), family_.get());
}

std::shared_ptr<Window> TwoLevels::create_on_all(Communicator& part, WindowKind kind, size_t bytes,
                                                 std::string_view label) {
  OnAll on_all(rank());
  std::shared_ptr<Window> window;
  within(part, true,
         [&] { on_all.attempt([&] { window = part.create_window(kind, bytes, label); }); });
  agree(on_all, label);
  return window;
}

void TwoLevels::agree(OnAll& on_all, std::string_view label) {
  try {
    on_all.agree(inner(), label);
  } catch (const Error& error) {  // half made: it cannot be called again
    if (error.status() == OTR_E_INTERRUPTED) abort(error.what());
    throw;
  }
}

Window& TwoLevels::own(const Window& window, std::string_view label) const {
  const auto* made = dynamic_cast<const GroupsWindow*>(&window);
  if (made == nullptr || made->maker() != family_.get()) {
    fail(OTR_E_ARGUMENT, "'{}' needs a window that this communicator made", label);
  }
  return made->of_group();
}

// ---- What moves ---------------------------------------------------------------------------------

std::span<const void* const> TwoLevels::exchange(const Window& window, size_t offset,
                                                 size_t slice_bytes, std::string_view label) {
  if (across_->size() > 1) {
    fail(OTR_E_UNSUPPORTED, "exchange '{}': {} go sums, not the slices of each rank", label,
         name_of_across());
  }
  const Window& mine = own(window, label);
  return within(*group_, true, [&] { return group_->exchange(mine, offset, slice_bytes, label); });
}

void TwoLevels::wait_drained(uint64_t ticket, std::string_view label) {
  within(*group_, true, [&] { group_->wait_drained(ticket, label); });
}

void TwoLevels::sum_in_group(const Reduce& reduce, size_t offset, int64_t flat, bool is_first,
                             void* sum, std::string_view label) {
  const Window& window = own(reduce.window, label);
  const auto slices = within(*group_, is_first, [&] {
    return group_->exchange(window, offset, reduce.slice_bytes, label);
  });
  const device::SliceFold slice{slices, reduce.fold.source_format, sum, Format::float32,
                                false,  reduce.fold.count,         flat};
  device::Nonfinite found = fold(reduce.device, slice, label).origin;
  if (found.rank >= 0) found.rank += first_here();
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, found);
}

std::byte* TwoLevels::room_across(const Reduce& reduce, int64_t part, std::string_view label) {
  const auto groups = static_cast<size_t>(across_->size());
  const auto make = [&](size_t bytes) {
    return create_on_all(*across_, WindowKind::per_rank, bytes, label);
  };
  const auto drain = [&](uint64_t ticket) {
    within(*across_, true, [&] { across_->wait_drained(ticket, label); });
  };
  if (reduce.in_blocks) blocks_.room(groups * bytes_in_blocks(part), make, drain);
  const size_t bytes = static_cast<size_t>(part) * sizeof(float);
  return sums_.room(groups * bytes, make, drain).block(across_->rank());
}

TwoLevels::Sums TwoLevels::exchange_across(const Reduce& reduce, int64_t part,
                                           std::string_view label) {
  Window* window = &*sums_;
  size_t bytes = static_cast<size_t>(part) * sizeof(float);
  if (reduce.in_blocks) {
    const int32_t place = across_->rank();
    to_blocks(reduce.device, (*blocks_).block(place), window->block(place), Format::float32, part,
              static_cast<size_t>(across_->size()));
    window = &*blocks_;
    bytes = bytes_in_blocks(part);
  }
  return {within(*across_, false, [&] { return across_->exchange(*window, 0, bytes, label); }),
          reduce.in_blocks ? Format::block8 : Format::float32};
}

void TwoLevels::end_across(const Reduce& reduce) {
  (reduce.in_blocks ? blocks_ : sums_).exchanged(across_->end_exchange());
}

void TwoLevels::fold_across(const Reduce& reduce, std::string_view label) {
  const Sums sums = exchange_across(reduce, reduce.fold.count, label);
  fold_sums(reduce, sums.sources, sums.format, label);
  end_across(reduce);
}

}  // namespace outrigger::comm

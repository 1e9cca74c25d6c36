// SPDX-License-Identifier: Apache-2.0
#include "core/comm/hierarchical_impl.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

int32_t Hierarchical::culprit_of(const Communicator& part, int32_t culprit) const {
  if (culprit == -1) return rank();
  if (culprit < 0) return rank_outside(culprit);
  if (&part == host_.get()) return first_here() + culprit;
  return &part == across_.get() ? culprit * host_->size() + host_->rank() : culprit;
}

void Hierarchical::failed(const Communicator& part, const Error& error) {
  constexpr int32_t kTold[] = {OTR_E_PEER_DEAD, OTR_E_TIMEOUT, OTR_E_MISMATCH, OTR_E_ABORTED};
  const bool told = std::ranges::find(kTold, error.status()) != std::end(kTold);
  const int32_t culprit = culprit_of(part, error.culprit());
  std::string text = format_text("rank {} of all, ", culprit);
  if (std::string_view(error.what()).starts_with(text)) {  // told by another rank
    text = error.what();
  } else {
    text += format_text("as rank {} saw it {}: {}", rank(), name_of(part), error.what());
  }
  const Error mine(told ? error.status() : OTR_E_ABORTED, text, culprit);
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
  for (Communicator* level : {host_.get(), across_.get()}) {
    level->post(
        Error(first.status(), first.what(), rank_outside(culprit_of(inner(), first.culprit()))));
  }
  // Its own trouble, as it was; or what made the caller's functions fail.
  const bool is_first = text.starts_with(first.what());
  if (error.status() == OTR_E_INTERRUPTED || (!told && is_first)) throw Error(error);
  throw Error(first);
}

template <typename Body>
auto Hierarchical::within(const Communicator& part, bool is_first, const Body& body)
    -> decltype(body()) {
  struct Elsewhere {
    Communicator& all;
    explicit Elsewhere(Communicator& c) : all(c) { all.set_elsewhere(true); }
    ~Elsewhere() { all.set_elsewhere(false); }
  };
  const Elsewhere scope(inner());  // while it looks for whom to name, too
  try {
    return body();
  } catch (const Error& error) {
    const int32_t status = error.status();
    if (status == OTR_E_ARGUMENT || status == OTR_E_UNSUPPORTED || status == OTR_E_STATE) throw;
    if (status == OTR_E_INTERRUPTED && is_first && !failure_of(part)) throw;
    failed(part, error);
  }
}

std::string Hierarchical::waiting() const {
  if (std::string text = inner().waiting(); !text.empty()) return text;
  for (const Communicator* part : {host_.get(), across_.get()}) {
    const std::string text = part->waiting();
    if (!text.empty()) return format_text("{}: {}", name_of(*part), text);
  }
  return {};
}

// ---- What is made -------------------------------------------------------------------------------

std::unique_ptr<Communicator> Hierarchical::duplicate(std::string_view name) {
  Levels made;
  made.all = inner().duplicate(name);
  OnAll on_all(rank());
  within(*host_, false, [&] { on_all.attempt([&] { made.host = host_->duplicate(name); }); });
  within(*across_, false, [&] { on_all.attempt([&] { made.across = across_->duplicate(name); }); });
  agree(on_all, name);
  return std::make_unique<Hierarchical>(std::move(made), family_);
}

std::shared_ptr<Window> Hierarchical::create_window(WindowKind kind, size_t bytes,
                                                    std::string_view label) {
  if (kind == WindowKind::common) {
    fail(OTR_E_UNSUPPORTED, "create_window '{}': ranks of several hosts have no common window",
         label);
  }
  return std::make_shared<HostsWindow>(create_on_all(*host_, bytes, label), rank(), host_->rank(),
                                       family_.get());
}

std::shared_ptr<Window> Hierarchical::create_on_all(Communicator& part, size_t bytes,
                                                    std::string_view label) {
  OnAll on_all(rank());
  std::shared_ptr<Window> window;
  within(part, true, [&] {
    on_all.attempt([&] { window = part.create_window(WindowKind::per_rank, bytes, label); });
  });
  agree(on_all, label);
  return window;
}

void Hierarchical::agree(OnAll& on_all, std::string_view label) {
  try {
    on_all.agree(inner(), label);
  } catch (const Error& error) {  // half made: it cannot be called again
    if (error.status() == OTR_E_INTERRUPTED) abort(error.what());
    throw;
  }
}

// ---- What moves ---------------------------------------------------------------------------------

const HostsWindow& Hierarchical::checked(const Window& window, std::string_view label) const {
  const auto* own = dynamic_cast<const HostsWindow*>(&window);
  if (own == nullptr || own->maker() != family_.get()) {
    fail(OTR_E_ARGUMENT, "'{}' needs a window that this communicator made", label);
  }
  return *own;
}

void Hierarchical::make_sums(size_t bytes, std::string_view label) {
  if (sums_ && sums_->bytes() >= bytes) {
    if (sums_used_) within(*across_, true, [&] { across_->wait_drained(sums_ticket_, label); });
    return;
  }
  sums_ = create_on_all(*across_, bytes, label);
  sums_used_ = false;
}

uint64_t Hierarchical::sum_on_host(const Reduce& reduce, std::byte* sums, device::Nonfinite& origin,
                                   std::string_view label) {
  const Window& window = checked(reduce.window, label).of_host();
  const auto each = static_cast<size_t>(host_->size());
  uint64_t ticket = 0;
  for (int32_t h = 0; h < across_->size(); ++h) {
    const size_t offset = reduce.offset + static_cast<size_t>(h) * each * reduce.slice_bytes;
    const auto slices = within(
        *host_, h == 0, [&] { return host_->exchange(window, offset, reduce.slice_bytes, label); });
    const int64_t apart = int64_t{h - across_->rank()} * host_->size();  // from my slice, in slices
    const device::SliceFold slice{slices,
                                  reduce.fold.source_format,
                                  sums + static_cast<size_t>(h * reduce.fold.count) * sizeof(float),
                                  Format::float32,
                                  false,
                                  reduce.fold.count,
                                  reduce.fold.flat + apart * reduce.fold.count};
    device::Nonfinite found = fold(reduce.device, slice, label).origin;
    if (found.rank >= 0) found.rank += first_here();
    device::keep_first(origin, found);
    ticket = host_->end_exchange();
  }
  return ticket;
}

uint64_t Hierarchical::fold_across(const Reduce& reduce, device::Nonfinite& origin,
                                   std::string_view label) {
  const size_t bytes = static_cast<size_t>(reduce.fold.count) * sizeof(float);
  device::SliceFold slice = reduce.fold;
  slice.sources =
      within(*across_, false, [&] { return across_->exchange(*sums_, 0, bytes, label); });
  slice.source_format = Format::float32;
  const Folded folded = fold(reduce.device, slice, label);
  if (reduce.norm != nullptr) kernels::merge(*reduce.norm, folded.norm);
  device::keep_first(origin, {folded.origin.flat, -1});  // of hosts, not of ranks
  return across_->end_exchange();
}

std::span<const void* const> Hierarchical::exchange(const Window& window, size_t offset,
                                                    size_t slice_bytes, std::string_view label) {
  if (hosts() > 1) {
    fail(OTR_E_UNSUPPORTED, "exchange '{}': between hosts go sums, not the slices of each rank",
         label);
  }
  const Window& own = checked(window, label).of_host();
  return within(*host_, true, [&] { return host_->exchange(own, offset, slice_bytes, label); });
}

void Hierarchical::wait_drained(uint64_t ticket, std::string_view label) {
  within(*host_, true, [&] { host_->wait_drained(ticket, label); });
}

uint64_t Hierarchical::reduce(const Reduce& reduce, std::string_view label) {
  if (hosts() == 1) return Communicator::reduce(reduce, label);
  make_sums(static_cast<size_t>(hosts()) * static_cast<size_t>(reduce.fold.count) * sizeof(float),
            label);
  device::Nonfinite origin;
  const uint64_t ticket = sum_on_host(reduce, sums_->block(across_->rank()), origin, label);
  sums_ticket_ = fold_across(reduce, origin, label);
  sums_used_ = true;
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, origin);
  return ticket;
}

// First what the ranks at this place have, then what the host's ranks have got.
void Hierarchical::all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                     std::string_view label) {
  Window& own = checked(window, label).of_host();
  const auto each = static_cast<size_t>(host_->size());
  std::byte* const mine = own.block(host_->rank()) + offset;
  std::vector<Part> slices;
  for (int32_t h = 0; h < across_->size(); ++h) {
    const size_t owner = static_cast<size_t>(h) * each + static_cast<size_t>(host_->rank());
    slices.push_back({h, {mine + owner * slice_bytes, slice_bytes}});
  }
  within(*across_, true, [&] { across_->all_gather_parts(slices, label); });
  for (int32_t h = 0; h < across_->size(); ++h) {
    const size_t first = offset + static_cast<size_t>(h) * each * slice_bytes;
    within(*host_, false, [&] { host_->all_gather_window(own, first, slice_bytes, label); });
  }
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/hierarchical.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/forwarding.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

using kernels::Format;

class HostsWindow final : public Window {
 public:
  HostsWindow(std::shared_ptr<Window> window, int32_t rank, int32_t on_host, const void* maker)
      : window_(std::move(window)), rank_(rank), on_host_(on_host), maker_(maker) {}
  std::byte* block(int32_t rank) const override {
    return rank == rank_ ? window_->block(on_host_) : nullptr;
  }
  size_t bytes() const override { return window_->bytes(); }
  [[nodiscard]] Window& of_host() const { return *window_; }
  [[nodiscard]] const void* maker() const { return maker_; }

 private:
  const std::shared_ptr<Window> window_;
  const int32_t rank_, on_host_;  // this rank's numbers
  const void* const maker_;       // the family of communicators that it belongs to; never followed
};

// What moves no gradients goes through the group of all ranks: subgroups of it have one level.
class Hierarchical final : public Forwarding {
 public:
  Hierarchical(std::unique_ptr<Communicator> all, std::unique_ptr<Communicator> host,
               std::unique_ptr<Communicator> across, std::shared_ptr<const int> family)
      : Forwarding(std::move(all)),
        host_(std::move(host)),
        across_(std::move(across)),
        family_(std::move(family)) {}

  std::string_view provider() const override { return "hierarchical"; }
  bool shares_memory() const override { return false; }
  int32_t hosts() const override { return across_->size(); }

  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    auto all = Forwarding::duplicate(name);
    auto host = within(*host_, false, [&] { return host_->duplicate(name); });
    auto across = within(*across_, false, [&] { return across_->duplicate(name); });
    return std::make_unique<Hierarchical>(std::move(all), std::move(host), std::move(across),
                                          family_);
  }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED, "create_window '{}': ranks of several hosts have no common window",
           label);
    }
    return std::make_shared<HostsWindow>(create_on_all(*host_, bytes, label), rank(), host_->rank(),
                                         family_.get());
  }

  uint64_t reduce(const Reduce& reduce, std::string_view label) override;
  // One host has one level.
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    if (hosts() > 1) {
      fail(OTR_E_UNSUPPORTED, "exchange '{}': between hosts go sums, not the slices of each rank",
           label);
    }
    const Window& own = checked(window, label).of_host();
    return within(*host_, true, [&] { return host_->exchange(own, offset, slice_bytes, label); });
  }
  uint64_t end_exchange() override { return host_->end_exchange(); }
  bool is_drained(uint64_t ticket) const override { return host_->is_drained(ticket); }
  void wait_drained(uint64_t ticket, std::string_view label) override {
    within(*host_, true, [&] { host_->wait_drained(ticket, label); });
  }
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override;

  void abort(std::string_view reason) noexcept override {
    for (Communicator* each : parts()) each->abort(reason);
  }
  void cancel() noexcept override {
    for (Communicator* each : parts()) each->cancel();
  }
  void give_up(int32_t culprit) noexcept override {
    inner().give_up(culprit);
    const bool is_here = culprit >= first_here() && culprit < first_here() + host_->size();
    host_->give_up(is_here ? culprit - first_here() : host_->rank());
    const bool is_across = culprit % host_->size() == host_->rank();
    across_->give_up(is_across ? culprit / host_->size() : across_->rank());
  }
  void check() const override {
    inner().check();
    host_->check();
    across_->check();
  }
  uint64_t completed() const override {
    return inner().completed() + host_->completed() + across_->completed();
  }
  std::string waiting() const override {
    for (const Communicator* each : parts()) {
      if (std::string text = each->waiting(); !text.empty()) return text;
    }
    return {};
  }

 private:
  [[nodiscard]] std::array<Communicator*, 3> parts() const {
    return {&inner(), host_.get(), across_.get()};
  }
  [[nodiscard]] int32_t first_here() const { return across_->rank() * host_->size(); }

  // A part of an operation, among the ranks of `part`, which is one of the two. Its failure is told
  // to all, and names the rank by its number among all. Before anything has moved (`is_first`), an
  // interrupt is no failure.
  template <typename Body>
  auto within(const Communicator& part, bool is_first, const Body& body) -> decltype(body());
  [[noreturn]] void failed(const Communicator& part, const Error& error);
  std::shared_ptr<Window> create_on_all(Communicator& part, size_t bytes, std::string_view label);
  [[nodiscard]] const HostsWindow& checked(const Window& window, std::string_view label) const;
  // This host's sums of the slices that the ranks at this place own, one for each host.
  uint64_t sum_on_host(const Reduce& reduce, std::byte* sums, device::Nonfinite& origin,
                       std::string_view label);
  uint64_t fold_across(const Reduce& reduce, device::Nonfinite& origin, std::string_view label);
  void make_sums(size_t bytes, std::string_view label);

  const std::unique_ptr<Communicator> host_, across_;
  const std::shared_ptr<const int> family_;  // whose windows its duplicates take, too
  std::shared_ptr<Window> sums_;             // of `across`
  uint64_t sums_ticket_ = 0;
  bool sums_used_ = false;
};

void Hierarchical::failed(const Communicator& part, const Error& error) {
  inner().check();  // who found it first has posted it
  const bool on_host = &part == host_.get();
  const int32_t c = error.culprit();
  const int32_t culprit = c < 0     ? rank()
                          : on_host ? first_here() + c
                                    : c * host_->size() + host_->rank();
  constexpr int32_t kTold[] = {OTR_E_PEER_DEAD, OTR_E_TIMEOUT, OTR_E_MISMATCH, OTR_E_ABORTED};
  const bool told = std::ranges::find(kTold, error.status()) != std::end(kTold);
  const Error named(
      told ? error.status() : OTR_E_ABORTED,
      format_text("rank {} of all, as rank {} saw it {}: {}", culprit, rank(),
                  on_host ? "among the ranks of its host" : "across hosts", error.what()),
      culprit);
  inner().post(named);
  host_->give_up(host_->rank());
  across_->give_up(across_->rank());
  inner().check();  // another rank may have come first
  throw Error(named);
}

template <typename Body>
auto Hierarchical::within(const Communicator& part, bool is_first, const Body& body)
    -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    const int32_t status = error.status();
    if (status == OTR_E_ARGUMENT || status == OTR_E_UNSUPPORTED || status == OTR_E_STATE) throw;
    if (status == OTR_E_INTERRUPTED && is_first) throw;
    failed(part, error);
  }
}

// On all ranks, or on none.
std::shared_ptr<Window> Hierarchical::create_on_all(Communicator& part, size_t bytes,
                                                    std::string_view label) {
  FirstVerdict first;
  std::shared_ptr<Window> window;
  within(part, true, [&] {
    try {
      window = part.create_window(WindowKind::per_rank, bytes, label);
    } catch (const Error& error) {
      if (error.status() != OTR_E_OUT_OF_MEMORY) throw;
      first.set(rank(), error.status(), error.what());
    }
  });
  try {
    combine_value(inner(), first, merge_first, label);
  } catch (const Error& error) {  // half made: it cannot be called again
    if (error.status() == OTR_E_INTERRUPTED) abort(error.what());
    throw;
  }
  first.require(format_text("'{}'", label));
  return window;
}

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

struct Place {
  int32_t rank = -1;  // the first that has another place than it should, and what it has
  int32_t host_rank = 0, host_size = 0, across_rank = 0, across_size = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical(std::unique_ptr<Communicator> all,
                                                std::unique_ptr<Communicator> host,
                                                std::unique_ptr<Communicator> across) {
  Place place{-1, host->rank(), host->size(), across->rank(), across->size()};
  const int32_t rank = all->rank(), each = host->size();
  const bool fits = int64_t{each} * across->size() == all->size() && host->rank() == rank % each &&
                    across->rank() == rank / each;
  if (!fits) place.rank = rank;
  combine_value(
      *all, place,
      [](Place& into, const Place& from) {
        if (into.rank < 0 && from.rank >= 0) into = from;
      },
      "make a hierarchical communicator");
  if (place.rank >= 0) {
    fail(OTR_E_ARGUMENT,
         "rank {} of {} is rank {} of {} on its host, and rank {} of {} across hosts; legal are "
         "hosts of as many consecutive ranks each: rank r is rank r % L of L on its host, and rank "
         "r / L across them",
         place.rank, all->size(), place.host_rank, place.host_size, place.across_rank,
         place.across_size);
  }
  return std::make_unique<Hierarchical>(std::move(all), std::move(host), std::move(across),
                                        std::make_shared<const int>(0));
}

}  // namespace outrigger::comm

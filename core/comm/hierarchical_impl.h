// SPDX-License-Identifier: Apache-2.0
// The two levels of a communicator, and what a rank tells the others of one of them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/forwarding.h"
#include "core/comm/hierarchical.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {

// A rank's groups.
struct Levels {
  std::unique_ptr<Communicator> all, host, across;
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
  Hierarchical(Levels levels, std::shared_ptr<const int> family)
      : Forwarding(std::move(levels.all)),
        host_(std::move(levels.host)),
        across_(std::move(levels.across)),
        family_(std::move(family)) {}

  std::string_view provider() const override { return "hierarchical"; }
  bool shares_memory() const override { return false; }
  int32_t hosts() const override { return across_->size(); }

  std::unique_ptr<Communicator> duplicate(std::string_view name) override;
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override;
  uint64_t reduce(const Reduce& reduce, std::string_view label) override;
  // One host has one level.
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override;
  uint64_t end_exchange() override { return host_->end_exchange(); }
  bool is_drained(uint64_t ticket) const override { return host_->is_drained(ticket); }
  void wait_drained(uint64_t ticket, std::string_view label) override;
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
    for (Communicator* part : {host_.get(), across_.get()}) {
      part->give_up(culprit == rank() ? part->rank() : rank_outside(culprit));
    }
  }
  void check() const override {
    inner().check();
    host_->check();
    across_->check();
  }
  uint64_t completed() const override {
    return inner().completed() + host_->completed() + across_->completed();
  }
  std::string waiting() const override;

 private:
  [[nodiscard]] std::array<Communicator*, 3> parts() const {
    return {&inner(), host_.get(), across_.get()};
  }
  [[nodiscard]] int32_t first_here() const { return across_->rank() * host_->size(); }

  // A part of an operation, among the ranks of `part`, which is one of the two. Its failure ends
  // this object for all ranks of all hosts, with one text, which names the rank by its number among
  // all. Before anything has moved (`is_first`), an interrupt is no failure.
  template <typename Body>
  auto within(const Communicator& part, bool is_first, const Body& body) -> decltype(body());
  [[noreturn]] void failed(const Communicator& part, const Error& error);
  [[nodiscard]] const char* name_of(const Communicator& part) const {
    return &part == host_.get() ? "among the ranks of its host" : "across hosts";
  }
  // A culprit of one of the three, by its number among all.
  [[nodiscard]] int32_t culprit_of(const Communicator& part, int32_t culprit) const;
  void agree(OnAll& on_all, std::string_view label);
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

}  // namespace outrigger::comm

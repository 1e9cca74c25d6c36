// SPDX-License-Identifier: Apache-2.0
// The communicator of one host: self, threads and shm are this class over different memory and
// liveness.
//
// Every operation is one or more steps. A step is: say that I came (Slot::arrived), wait until all
// have. Data that does not lie in a window goes through the staging area, a part a rank, written
// before the step and read after it; two halves in turn make one wait a step enough, because
// whoever comes to step s has finished reading step s − 1.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/control.h"
#include "core/comm/failure.h"
#include "core/comm/member.h"
#include "core/comm/region.h"
#include "core/comm/region_exchange.h"
#include "core/comm/wait.h"

namespace outrigger::comm {

class HostWindow;

class HostCommunicator final : public Communicator {
 public:
  // `region` holds `channel`.
  HostCommunicator(std::shared_ptr<Member> member, std::shared_ptr<Region> region,
                   ChannelBlock& channel, std::string_view name);
  ~HostCommunicator() override;

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return world_; }
  std::string_view provider() const override { return member_->provider; }
  uint64_t identity() const override;

  std::unique_ptr<Communicator> duplicate(std::string_view name) override;
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override;
  void barrier(std::string_view label) override;
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override;
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override;
  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override;
  void watch(const std::function<bool()>& ready, std::string_view label) override;
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override;
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override;
  uint64_t end_exchange() override;
  bool is_drained(uint64_t ticket) const override;
  void wait_drained(uint64_t ticket, std::string_view label) override;
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override;
  void abort(std::string_view reason) noexcept override { abort(nullptr, reason); }
  void abort_for(const Error& error, std::string_view reason) noexcept override {
    abort(&error, reason);
  }
  void post(const Error& error) noexcept override;
  void cancel() noexcept override;
  void give_up(int32_t culprit) noexcept override;
  void set_elsewhere(bool elsewhere) noexcept override;
  bool is_elsewhere(int32_t rank) const override;
  void check() const override;
  uint64_t completed() const override { return current_.number - (interrupted_ ? 1 : 0); }
  std::string waiting() const override;

 private:
  using Counter = std::atomic<uint64_t> Slot::*;

  [[nodiscard]] Slot& my_slot() const { return channel_.slot(rank_); }
  [[nodiscard]] std::byte* staging(int32_t rank, uint64_t step) const {
    return channel_.staging(world_, rank, step);
  }

  void abort(const Error* error, std::string_view reason) noexcept;
  void check_failures() const;
  // Throws OTR_E_STATE in a forked child, and the job's failure if there is one.
  void require_usable() const;
  // The operation's first step; afterwards all ranks are known to make the same call. After an
  // interrupt in it, the same operation goes on waiting: what it staged is there already.
  void begin(OperationKind kind, uint64_t bytes, std::string_view label, int32_t root = 0,
             uint64_t offset = 0, RegionId window = {});
  void step();
  void compare_calls();

  [[nodiscard]] bool all_reached(Counter counter, uint64_t target) const;
  void wait_for_all(Counter counter, uint64_t target, std::string_view drain_label);
  // One look of a waiting rank at the others: throws if it is of no use to wait on.
  void look_around(Counter counter, uint64_t target, std::string_view drain_label,
                   Clock::time_point now, bool overdue);
  // The host wants the wait to end.
  [[noreturn]] void interrupt(Counter counter, const std::string& text);
  // "rank 1 has begun no operation here; rank 2 last began …", the first few.
  [[nodiscard]] std::string describe(const std::vector<int32_t>& ranks) const;
  // The operation that a rank began last. Any thread.
  [[nodiscard]] Operation last_operation(int32_t rank) const;
  // No operation of this object sees this rank any more.
  void go(Gone why) noexcept;
  // A rank has left this object only: so do all.
  [[noreturn]] void fail_here(int32_t culprit, const std::string& text);
  // Posts this failure and throws whichever came first.
  [[noreturn]] void fail_job(int32_t status, int32_t culprit, std::string_view text);

  // Throws OTR_E_ARGUMENT unless the slices lie in a per_rank window of this job.
  [[nodiscard]] const HostWindow& checked(const Window& window, size_t offset, size_t slice_bytes,
                                          std::string_view label) const;
  // A region of `bytes`, made by rank 0, mapped by all, populated by each rank's `populate`; or
  // every rank throws the first rank's OTR_E_OUT_OF_MEMORY and the communicator goes on.
  [[nodiscard]] std::shared_ptr<Region> share_region(size_t bytes,
                                                     const std::function<void(Region&)>& populate);
  // Throws on every rank what the first rank with a status other than OTR_OK says.
  void agree_on(int32_t status, std::string_view trouble);

  const std::shared_ptr<Member> member_;
  const std::shared_ptr<Region> region_;  // holds channel_
  ChannelBlock& channel_;
  const int32_t rank_, world_;
  const std::string name_;

  std::atomic<bool> cancelled_{false};
  FailureBoard here_;  // of this channel
  Operation current_;
  uint64_t digest_ = 0;  // of current_
  uint64_t step_ = 0;
  uint64_t watches_ = 0;      // that were begun
  bool meeting_ = false;      // current_ waits for ranks to come to it: its first step
  bool interrupted_ = false;  // … and the host has ended that wait
  Spin spin_;
  std::vector<const void*> slices_;  // what exchange returns
};

}  // namespace outrigger::comm

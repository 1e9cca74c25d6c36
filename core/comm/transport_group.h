// SPDX-License-Identifier: Apache-2.0
// A group of ranks over a transport, and its duplicates: what ended them, and what ranks tell each
// other beside operations.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/fate.h"
#include "core/comm/operation.h"
#include "core/comm/transport_job.h"

namespace outrigger::comm {

// What a rank knows of a channel's ranks; guarded by its group's mutex.
struct ChannelNews {
  struct Gone {
    int32_t rank;
    uint64_t number;  // the last operation it came to
    int32_t culprit;
  };
  struct Answer {
    uint64_t number = 0;
    std::string text;
    bool is_there = false;
  };
  std::optional<Error> failure;
  std::vector<Gone> gone;
  std::vector<Answer> answers;  // by rank; empty: nobody was asked
  uint64_t number = 0;          // of this rank's own operation
};

class TransportGroup final : public TransportJob::Listener {
 public:
  // members: by rank, their ranks in the job.
  TransportGroup(std::shared_ptr<TransportJob> job, uint64_t id, std::vector<int32_t> members,
                 int32_t rank);
  ~TransportGroup();
  TransportGroup(const TransportGroup&) = delete;
  TransportGroup& operator=(const TransportGroup&) = delete;

  [[nodiscard]] TransportJob& job() const { return *job_; }
  [[nodiscard]] const std::shared_ptr<TransportJob>& shared_job() const { return job_; }
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(members_.size()); }
  [[nodiscard]] bool is_one_host() const { return is_one_host_; }
  [[nodiscard]] std::string name_of(int32_t rank) const {
    return job_->name_of(members_[static_cast<size_t>(rank)], rank);
  }
  [[nodiscard]] int32_t member(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }
  // Ranks whose processes are known to have ended, but this one, in the order of the job's.
  [[nodiscard]] std::vector<int32_t> ended() const;
  [[nodiscard]] Fate& fate() { return fate_; }
  [[nodiscard]] const Fate& fate() const { return fate_; }

  // A channel's news, while it lives.
  [[nodiscard]] std::shared_ptr<ChannelNews> add(uint64_t channel);
  void remove(uint64_t channel);
  template <typename Body>
  auto with(ChannelNews& news, const Body& body) {
    const std::lock_guard lock(mutex_);
    return body(news);
  }

  // What this rank waits in, for who asks; "" once it does not.
  void set_place(std::string text);

  // To all other ranks. channel 0: of the group.
  void tell(TransportMessage message) noexcept;
  // To as many that one of those who wait hears of it: those at distances 1, 2, 4, …
  void tell_neighbours(TransportMessage message) noexcept;
  void take(const TransportMessage& message) override;

 private:
  void send(int32_t to, TransportMessage message) noexcept;
  void answer(const TransportMessage& question);
  void pass_on(const TransportMessage& message) noexcept;

  const std::shared_ptr<TransportJob> job_;
  const uint64_t id_;
  const std::vector<int32_t> members_;
  const int32_t rank_;
  bool is_one_host_ = true;
  Fate fate_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<ChannelNews>> channels_;
  std::deque<std::pair<uint64_t, ChannelNews::Gone>> early_;  // of channels not made here yet
  std::string place_;
};

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// What one rank's channels of a transport have in common: the plugin, messages beside operations,
// and who is alive.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/fate.h"
#include "core/comm/settings.h"
#include "core/comm/unique_fd.h"
#include "core/comm/wait.h"
#include "core/device/transport.h"

namespace outrigger::comm {

// Trivially copyable: it crosses processes.
struct TransportMessage {
  enum Kind : uint32_t {
    failure,   // of the channel, or of the group if channel is 0
    left,      // `from` comes to no operation of the channel beyond `number`, because of culprit
    question,  // who is in operation `number` of the channel?
    answer,    // `from` has begun `number` operations of the channel; text: where it waits now
  };
  uint64_t group = 0, channel = 0, number = 0;
  Kind kind = failure;
  int32_t from = 0;  // of the group
  int32_t status = 0, culprit = -1;
  std::array<char, OTR_PLUGIN_MESSAGE_BYTES - 40> text = {};

  void set_text(std::string_view value);
  [[nodiscard]] std::string_view text_view() const;
};
static_assert(sizeof(TransportMessage) == OTR_PLUGIN_MESSAGE_BYTES);

class TransportJob {
 public:
  // A group that messages are for.
  class Listener {
   public:
    virtual void take(const TransportMessage& message) = 0;

   protected:
    ~Listener() = default;
  };

  // Collective.
  TransportJob(const device::TransportPlugin& plugin, const void* group, const Settings& settings);
  TransportJob(const TransportJob&) = delete;
  TransportJob& operator=(const TransportJob&) = delete;

  [[nodiscard]] const otr_transport_plugin& plugin() const { return plugin_.table; }
  [[nodiscard]] otr_plugin_channel* channel() const { return channel_; }  // for messages
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world() const { return world_; }
  [[nodiscard]] double timeout() const { return timeout_; }
  [[nodiscard]] Clock::duration spin() const { return spin_; }
  [[nodiscard]] bool is_on_this_host(int32_t rank) const;
  // "rank 3 (process 42 of n07)", by its number in a group.
  [[nodiscard]] std::string name_of(int32_t rank, int32_t number) const;

  // Throws the plugin's error.
  void check(int32_t status, std::string_view what) const;
  // Until the request is over; what is not kept by owner. Throws OTR_E_TIMEOUT.
  void finish(otr_plugin_request* request, std::string_view what,
              std::shared_ptr<const void> owner) const;

  // Whose processes have ended, as the kernel of this host or the library knows; in the order in
  // which it was noticed.
  [[nodiscard]] std::vector<int32_t> ended() const;
  // Never throws: who cannot be told is not.
  void send(int32_t to, const TransportMessage& message) noexcept;
  // Hands over what has come.
  void poll() noexcept;
  void add(uint64_t group, Listener& listener);
  void remove(uint64_t group);

 private:
  struct Identity {
    uint64_t host = 0;  // and its namespace of processes
    int64_t process = 0;
    std::array<char, 48> name = {};  // of the host
  };
  void meet();

  const device::TransportPlugin plugin_;
  const double timeout_;
  Clock::duration spin_{};
  otr_plugin_channel* channel_ = nullptr;  // never closed: messages may still be on their way
  int32_t rank_ = 0, world_ = 1;
  uint64_t id_ = 0;
  std::vector<Identity> identities_;
  struct Process {
    int32_t rank;
    UniqueFd descriptor;
  };
  std::vector<Process> processes_;  // of the other ranks on this host, where the kernel has pidfds

  mutable std::mutex ended_mutex_;  // guards the next
  mutable std::vector<int32_t> ended_;
  std::mutex mutex_;  // guards what is below
  std::map<uint64_t, Listener*> groups_;
};

// What a failed call has left to the library stays as long as the process does.
void keep_for_ever(std::shared_ptr<const void> owner);

}  // namespace outrigger::comm

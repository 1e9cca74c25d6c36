// SPDX-License-Identifier: Apache-2.0
// One sequence of operations over a transport's channel.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/channel.h"
#include "core/comm/transport_group.h"

namespace outrigger::comm {

class TransportChannel final : public Channel {
 public:
  // Takes over the plugin's channel.
  TransportChannel(std::shared_ptr<TransportGroup> group, otr_plugin_channel* channel, uint64_t id,
                   std::string_view name);
  ~TransportChannel() override;
  TransportChannel(const TransportChannel&) = delete;
  TransportChannel& operator=(const TransportChannel&) = delete;

  int32_t rank() const override { return group_->rank(); }
  int32_t size() const override { return group_->size(); }
  std::string_view provider() const override { return group_->job().plugin().name; }
  uint64_t identity() const override { return id_; }
  bool is_one_host() const override { return group_->is_one_host(); }
  const void* fate() const override { return &group_->fate(); }
  std::string text() const override { return current_.text(); }
  uint64_t completed() const override { return current_.number - (meeting_ != nullptr ? 1 : 0); }
  std::string waiting() const override;

  bool gathers_in_place() const override { return true; }
  void all_gather(const void* mine, size_t bytes, void* all, const Owner& owner) override;
  bool has_broadcast() const override { return true; }
  void broadcast(std::span<std::byte> data, int32_t root) override;
  void all_to_all(const std::byte* parts, size_t bytes, std::byte* received,
                  const Owner& owner) override;
  bool has_pairs() const override { return true; }
  void send(std::span<const std::byte> data, int32_t to) override;
  void receive(std::span<std::byte> data, int32_t from) override;
  std::unique_ptr<Channel> duplicate(std::string_view name) override;
  std::unique_ptr<Channel> split(const std::vector<int32_t>& groups,
                                 const std::vector<int32_t>& places, int32_t rank, int32_t size,
                                 std::string_view name) override;

  void abort(std::string_view reason) noexcept override;
  void post(const Error& error) noexcept override;
  void cancel() noexcept override { cancelled_ = true; }
  void give_up(int32_t culprit) noexcept override;
  void check() const override;

 private:
  using Request = otr_plugin_request*;
  struct Meeting {
    std::array<uint64_t, 2> hashes;  // the smallest of all ranks' hash, and of its complement
  };

  void meet(Operation operation) override;
  void compare();  // throws where ranks call different things
  [[nodiscard]] const otr_transport_plugin& plugin() const { return group_->job().plugin(); }
  [[nodiscard]] std::string waited_in() const;
  [[nodiscard]] uint64_t child_id(uint64_t salt) const;
  [[nodiscard]] std::byte* staging(size_t bytes);

  // Begins something of the current operation, and waits until it is over.
  void run(const Owner& owner, const std::function<int32_t(Request*)>& begin);
  template <typename Byte, typename Begin>
  void staged(std::span<Byte> data, const Begin& begin);
  // Throws; then owner stays for ever, unless an interrupted meeting goes on.
  void wait(Request request, const Owner& owner);
  void look_around(Clock::time_point now, Clock::time_point deadline);
  [[nodiscard]] std::optional<ChannelNews::Gone> goner() const;
  void look_for_the_gone();  // ranks that come to no operation of this channel any more
  void look_for_the_dead();  // … whose processes have ended
  [[noreturn]] void request_failed(int32_t status, const std::string& text);
  [[noreturn]] void deadline_passed();
  [[noreturn]] void fail_job(int32_t status, int32_t culprit, const std::string& text);
  [[noreturn]] void fail_here(int32_t culprit, const std::string& text);
  void publish_number();
  [[nodiscard]] uint64_t published_number() const;  // any thread

  const std::shared_ptr<TransportGroup> group_;
  otr_plugin_channel* const channel_;
  const uint64_t id_;
  const std::string name_;
  const pid_t process_;
  const std::shared_ptr<ChannelNews> news_;
  Operation current_;
  Spin spin_;
  std::shared_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
  // Of the operation that has begun here and to which not all ranks have come; with its request.
  std::shared_ptr<Meeting> meeting_;
  Request meeting_request_ = nullptr;
  std::atomic<bool> is_over_{true};  // the current operation, on this rank
  std::atomic<bool> cancelled_{false}, left_{false};
};

}  // namespace outrigger::comm

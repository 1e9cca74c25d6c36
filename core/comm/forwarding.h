// SPDX-License-Identifier: Apache-2.0
// A communicator over another one, which makes all calls that a subclass does not make itself.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"

namespace outrigger::comm {

class Forwarding : public Communicator {
 public:
  explicit Forwarding(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int32_t rank() const override { return inner_->rank(); }
  int32_t size() const override { return inner_->size(); }
  std::string_view provider() const override { return inner_->provider(); }
  uint64_t identity() const override { return inner_->identity(); }
  void follow(std::shared_ptr<const Moment> moment) override { inner_->follow(std::move(moment)); }
  bool shares_memory() const override { return inner_->shares_memory(); }
  bool is_one_host() const override { return inner_->is_one_host(); }
  int32_t slices() const override { return inner_->slices(); }
  int32_t slice() const override { return inner_->slice(); }
  int32_t rank_of_slice(int32_t slice) const override { return inner_->rank_of_slice(slice); }
  int32_t groups() const override { return inner_->groups(); }
  Levels levels() const override { return inner_->levels(); }

  // Without what the subclass adds.
  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    return inner_->duplicate(name);
  }
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override {
    return inner_->subgroup(members);
  }

  void barrier(std::string_view label) override { inner_->barrier(label); }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    inner_->broadcast(data, root, label);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    inner_->all_gather(mine, all, label);
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    inner_->all_gather_parts(parts, label);
  }
  void watch(const std::function<bool()>& ready, std::string_view label) override {
    inner_->watch(ready, label);
  }
  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    inner_->combine(value, merge, label);
  }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    return inner_->create_window(kind, bytes, label);
  }
  // reduce() is the base's: by the subclass's exchange().
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    return inner_->exchange(window, offset, slice_bytes, label);
  }
  uint64_t end_exchange() override { return inner_->end_exchange(); }
  bool is_drained(uint64_t ticket) const override { return inner_->is_drained(ticket); }
  void wait_drained(uint64_t ticket, std::string_view label) override {
    inner_->wait_drained(ticket, label);
  }
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    inner_->all_gather_window(window, offset, slice_bytes, label);
  }

  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void abort_for(const Error& error, std::string_view reason) noexcept override {
    inner_->abort_for(error, reason);
  }
  void post(const Error& error) noexcept override { inner_->post(error); }
  void cancel() noexcept override { inner_->cancel(); }
  void give_up(int32_t culprit) noexcept override { inner_->give_up(culprit); }
  void set_elsewhere(bool elsewhere) noexcept override { inner_->set_elsewhere(elsewhere); }
  bool is_elsewhere(int32_t rank) const override { return inner_->is_elsewhere(rank); }
  void check() const override { inner_->check(); }
  uint64_t completed() const override { return inner_->completed(); }
  std::string waiting() const override { return inner_->waiting(); }

 protected:
  [[nodiscard]] Communicator& inner() const { return *inner_; }

 private:
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/staged.h"

#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

class DeviceMemory {
 public:
  DeviceMemory(device::Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(bytes == 0 ? nullptr : device.allocate(bytes)) {}
  ~DeviceMemory() {
    if (data_ != nullptr) device_.release(data_, bytes_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  device::Device& device_;
  size_t bytes_;
  std::byte* data_;
};

class DeviceWindow final : public Window {
 public:
  DeviceWindow(device::Device& device, int32_t rank, size_t bytes)
      : rank_(rank), memory_(device, bytes) {}
  std::byte* block(int32_t rank) const override { return rank == rank_ ? memory_.data() : nullptr; }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  int32_t rank_;
  DeviceMemory memory_;
};

class Staged final : public Communicator {
 public:
  Staged(std::unique_ptr<Communicator> host, device::Device& device, size_t staging_bytes,
         size_t received_bytes)
      : host_(std::move(host)), device_(device) {
    if (size() == 1) return;
    staging_ = host_->create_window(WindowKind::per_rank, staging_bytes, "device staging");
    if (staging_bytes > 0) device_.pin(staging_->block(rank()), staging_bytes);
    received_ = allocate(received_bytes, "device staging");
  }
  ~Staged() override {
    if (staging_ && staging_->bytes() > 0) device_.unpin(staging_->block(rank()));
  }

  int32_t rank() const override { return host_->rank(); }
  int32_t size() const override { return host_->size(); }
  std::string_view provider() const override { return host_->provider(); }
  bool shares_memory() const override { return false; }

  std::unique_ptr<Communicator> duplicate(std::string_view) override { refuse("duplicated"); }
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>&) override { refuse("split"); }

  void barrier(std::string_view label) override { host_->barrier(label); }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    host_->broadcast(data, root, label);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    host_->all_gather(mine, all, label);
  }

  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    host_->all_gather_parts(parts, label);
  }

  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    host_->combine(value, merge, label);
  }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED, "create_window '{}': devices have no common window", label);
    }
    return allocate(bytes, label);
  }

  // The slices are in the order of the device's own stream.
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    std::byte* from = window.block(rank()) + offset;
    slices_.assign(static_cast<size_t>(size()), from);
    if (size() == 1) {
      host_->barrier(label);
      return slices_;
    }
    std::byte* staged = next_staging(label);
    device_.download_now(staged, from, slice_bytes * slices_.size());
    const auto on_host = host_->exchange(*staging_, 0, slice_bytes, label);
    try {
      for (size_t r = 0; r < slices_.size(); ++r) {
        std::byte* to = received_->block(rank()) + r * slice_bytes;
        device_.upload(to, on_host[r], slice_bytes, device_.own_stream());
        slices_[r] = to;
      }
    } catch (const std::exception& error) {
      abort(format_text("its upload of '{}' threw: {}", label, error.what()));
      throw;
    }
    return slices_;
  }
  // After work that has waited for the device.
  uint64_t end_exchange() override {
    if (size() > 1) ticket_ = host_->end_exchange();
    return 0;
  }
  // The bytes were copied out before exchange returned.
  bool is_drained(uint64_t) const override { return true; }
  void wait_drained(uint64_t, std::string_view) override { host_->check(); }

  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    if (size() == 1) {
      host_->barrier(label);
      return;
    }
    std::byte* all = window.block(rank()) + offset;
    std::byte* staged = next_staging(label);
    const size_t mine = static_cast<size_t>(rank()) * slice_bytes;
    device_.download_now(staged + mine, all + mine, slice_bytes);
    host_->all_gather_window(*staging_, 0, slice_bytes, label);
    device_.upload_now(all, staged, slice_bytes * static_cast<size_t>(size()));
  }

  void abort(std::string_view reason) noexcept override { host_->abort(reason); }
  void post(const Error& error) noexcept override { host_->post(error); }
  void cancel() noexcept override { host_->cancel(); }
  void give_up(int32_t culprit) noexcept override { host_->give_up(culprit); }
  void check() const override { host_->check(); }
  uint64_t completed() const override { return host_->completed(); }
  std::string waiting() const override { return host_->waiting(); }

 private:
  [[noreturn]] void refuse(const char* what) const {
    fail(OTR_E_UNSUPPORTED, "a staged communicator cannot be {}: use the one behind it", what);
  }

  // Everybody has read what was staged last.
  std::byte* next_staging(std::string_view label) {
    if (ticket_) host_->wait_drained(*ticket_, label);
    ticket_.reset();
    return staging_->block(rank());
  }

  // On all ranks, or on none.
  std::shared_ptr<Window> allocate(size_t bytes, std::string_view label) {
    FirstVerdict first;
    std::shared_ptr<Window> window;
    try {
      window = std::make_shared<DeviceWindow>(device_, rank(), bytes);
    } catch (const Error& error) {
      first.set(rank(), error.status(), error.what());
    }
    combine_value(*host_, first, merge_first, label);
    first.require(format_text("'{}'", label));
    return window;
  }

  std::unique_ptr<Communicator> host_;
  device::Device& device_;
  std::shared_ptr<Window> staging_, received_;
  std::vector<const void*> slices_;
  std::optional<uint64_t> ticket_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host,
                                          device::Device& device, size_t staging_bytes,
                                          size_t received_bytes) {
  return std::make_unique<Staged>(std::move(host), device, staging_bytes, received_bytes);
}

}  // namespace outrigger::comm

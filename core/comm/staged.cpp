// SPDX-License-Identifier: Apache-2.0
#include "core/comm/staged.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/between_devices.h"
#include "core/comm/device_window.h"

namespace outrigger::comm {
namespace {

class Staged final : public BetweenDevices {
 public:
  Staged(std::unique_ptr<Communicator> host, device::Device& device, device::Device& cpu,
         const Lock& lock, size_t staging_bytes, size_t received_bytes)
      : BetweenDevices(std::move(host)), device_(device), cpu_(cpu) {
    if (size() == 1) return;
    staging_ = inner().create_window(WindowKind::per_rank, staging_bytes, "device staging");
    // Own bytes come down to it, and other ranks' go up from where they lie.
    for (int32_t i = 0; i < size() && staging_bytes > 0; ++i) {
      std::byte* const block = staging_->block((rank() + i) % size());
      if (block != nullptr) locked_.push_back(lock({block, staging_bytes}));
    }
    received_ = allocate(received_bytes, "device staging");
    if (has_levels()) sum_.resize(received_bytes / sizeof(float));
  }

  uint64_t reduce(const Reduce& reduce, std::string_view label) override {
    return has_levels() ? reduce_levels(reduce, label) : Communicator::reduce(reduce, label);
  }
  // The slices are in the order of the device's own stream.
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    std::byte* from = window.block(rank()) + offset;
    slices_.assign(static_cast<size_t>(slices()), from);
    if (slices() == 1) {
      inner().barrier(label);
      return slices_;
    }
    std::byte* staged = next_staging(label);
    device_.download_now(staged, from, slice_bytes * slices_.size());
    const auto on_host = inner().exchange(*staging_, 0, slice_bytes, label);
    try {
      for (size_t r = 0; r < slices_.size(); ++r) {
        std::byte* to = received_->block(rank()) + r * slice_bytes;
        device_.upload(to, on_host[r], slice_bytes, device_.own_stream());
        slices_[r] = to;
      }
    } catch (const std::exception& error) {
      abort_because(error, format_text("its upload of '{}' threw: {}", label, error.what()));
      throw;
    }
    return slices_;
  }
  // After work that has waited for the device.
  uint64_t end_exchange() override {
    if (slices() > 1) ticket_ = inner().end_exchange();
    return 0;
  }
  // The bytes were copied out before exchange returned.
  bool is_drained(uint64_t) const override { return true; }
  void wait_drained(uint64_t, std::string_view) override { inner().check(); }

  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    if (slices() == 1) {
      inner().barrier(label);
      return;
    }
    std::byte* all = window.block(rank()) + offset;
    std::byte* staged = next_staging(label);
    const size_t mine = static_cast<size_t>(slice()) * slice_bytes;
    device_.download_now(staged + mine, all + mine, slice_bytes);
    inner().all_gather_window(*staging_, 0, slice_bytes, label);
    device_.upload_now(all, staged, slice_bytes * static_cast<size_t>(slices()));
  }

  void all_gather_runs(Window& window, std::span<const SliceRun> runs,
                       std::string_view label) override;

 private:
  // What moves between the levels are sums: they are made on the host, and come back as one source.
  [[nodiscard]] bool has_levels() const { return groups() > 1; }
  uint64_t reduce_levels(const Reduce& reduce, std::string_view label);

  // Everybody has read what was staged last.
  std::byte* next_staging(std::string_view label) {
    if (ticket_) inner().wait_drained(*ticket_, label);
    ticket_.reset();
    return staging_->block(rank());
  }

  std::shared_ptr<Window> allocate(size_t bytes, std::string_view label) override {
    return create_device_window(inner(), device_, bytes, label);
  }

  device::Device& device_;
  device::Device& cpu_;
  std::shared_ptr<Window> staging_, received_;
  std::vector<std::shared_ptr<void>> locked_;  // ends before what it locks
  std::vector<float> sum_;
  std::vector<const void*> slices_;
  std::optional<uint64_t> ticket_;
};

uint64_t Staged::reduce_levels(const Reduce& reduce, std::string_view label) {
  std::byte* staged = next_staging(label);
  const size_t bytes = reduce.slice_bytes * static_cast<size_t>(slices());
  device_.download_now(staged, reduce.window.block(rank()) + reduce.offset, bytes);
  Reduce on_host{*staging_, 0, reduce.slice_bytes, cpu_, reduce.fold, nullptr, reduce.origin};
  on_host.fold.accumulator = sum_.data();
  on_host.fold.accumulator_format = device::Format::float32;
  on_host.fold.add = false;
  ticket_ = inner().reduce(on_host, label);
  std::byte* const there = received_->block(rank());
  try {
    const size_t sum_bytes = static_cast<size_t>(reduce.fold.count) * sizeof(float);
    device_.upload(there, sum_.data(), sum_bytes, device_.own_stream());
  } catch (const std::exception& error) {
    abort_because(error, format_text("its upload of '{}' threw: {}", label, error.what()));
    throw;
  }
  const void* const source = there;
  fold_sums(reduce, {&source, 1}, device::Format::float32, label);
  return 0;
}

// While one run is exchanged, the next come down and those before go up.
void Staged::all_gather_runs(Window& window, std::span<const SliceRun> runs,
                             std::string_view label) {
  const auto world = static_cast<size_t>(slices()), own = static_cast<size_t>(slice());
  if (world == 1) return Communicator::all_gather_runs(window, runs, label);
  size_t most = 0;
  for (const SliceRun& run : runs) most = std::max(most, run.slice_bytes * world);
  const size_t places = most == 0 ? 0 : std::min(runs.size(), staging_->bytes() / most);
  if (places < 2) return Communicator::all_gather_runs(window, runs, label);
  std::byte* const all = window.block(rank());
  std::byte* const staged = next_staging(label);
  const device::Stream down = device_.download_stream(), up = device_.upload_stream();
  const device::Event before = device_.record(device_.own_stream());
  device_.wait(down, before);
  device_.wait(up, before);
  std::vector<device::Event> came(places), gone(places);
  const auto download = [&](size_t i) {
    const SliceRun& run = runs[i];
    const size_t mine = own * run.slice_bytes;
    device_.synchronize(std::exchange(gone[i % places], {}));
    device_.download(staged + i % places * most + mine, all + run.offset + mine, run.slice_bytes,
                     down);
    came[i % places] = device_.record(down);
  };
  size_t begun = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (; begun < runs.size() && begun + 1 < i + places; ++begun) download(begun);
    const SliceRun& run = runs[i];
    std::byte* const place = staged + i % places * most;
    device_.synchronize(came[i % places]);
    inner().all_gather_window(*staging_, static_cast<size_t>(place - staged), run.slice_bytes,
                              label);
    const size_t mine = own * run.slice_bytes, after = mine + run.slice_bytes;
    device_.upload(all + run.offset, place, mine, up);
    device_.upload(all + run.offset + after, place + after, world * run.slice_bytes - after, up);
    gone[i % places] = device_.record(up);
  }
  const device::Event end = device_.record(up);
  device_.wait(device_.own_stream(), end);
  device_.synchronize(end);
}

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host,
                                          device::Device& device, device::Device& cpu,
                                          const Lock& lock, size_t staging_bytes,
                                          size_t received_bytes) {
  return std::make_unique<Staged>(std::move(host), device, cpu, lock, staging_bytes,
                                  received_bytes);
}

}  // namespace outrigger::comm

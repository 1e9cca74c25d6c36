// SPDX-License-Identifier: Apache-2.0
// The host as a device: kernels split over an engine's workers.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/device/neighbours.h"
#include "core/threads/workers.h"

namespace outrigger::device {

// Zero-filled, 64-byte aligned; data is null if there is none. From a MiB on with pages of its own,
// huge ones where the system gives them, returned when freed; a large array begins where it does
// not disturb the others (device/neighbours.h).
struct HostMemory {
  std::byte* data = nullptr;
  std::byte* begin = nullptr;  // of the mapping
  size_t mapped = 0;           // 0: no pages of its own
};
[[nodiscard]] HostMemory allocate_host(size_t bytes,
                                       std::span<const Neighbour> others = {}) noexcept;
void release_host(const HostMemory& memory) noexcept;

inline constexpr int64_t kTaskElements = 256 * kernels::kLeaf;  // of one worker's task

class Host : public Device {
 public:
  // workers null: on the calling thread.
  explicit Host(Workers* workers) : workers_(workers) {}

  otr_device id() const override { return {OTR_DEVICE_CPU, 0}; }
  std::string name() const override { return "the host"; }
  Abilities abilities() const override { return {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}; }
  std::byte* allocate(size_t bytes, Stream) override;
  void release(std::byte* data, size_t bytes, Stream) noexcept override;
  void drain() noexcept override {}
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}

  Stream own_stream() const override { return 0; }
  std::shared_ptr<const Stream> make_stream() override { return std::make_shared<const Stream>(0); }
  Stream download_stream() const override { return 0; }
  Stream upload_stream() const override { return 0; }
  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  void synchronize(Stream) override {}
  void synchronize(const Event&) override {}
  bool is_done(const Event&) override { return true; }

  void download(void* host, const void* from, size_t bytes, Stream stream) override {
    copy(host, from, bytes, stream);
  }
  void upload(void* to, const void* host, size_t bytes, Stream stream) override {
    copy(to, host, bytes, stream);
  }
  void copy(void* to, const void* from, size_t bytes, Stream) override;
  void zero(void* data, size_t bytes, Stream) override;
  void read(void* to, Format to_format, const tensor::View& from, float factor, Stream) override;
  void write(const tensor::View& to, const void* from, Format from_format, Stream) override;
  void convert(void* to, Format to_format, const void* from, Format from_format, float factor,
               int64_t count, Stream) override;
  void add(void* to, Format to_format, const void* from, Format from_format, int64_t count,
           Stream) override;
  void to_blocks(void* blocks, const void* values, Format from, int64_t count) override;
  void to_integers(void* integers, const void* values, Format from, int64_t count) override;
  void from_integers(void* values, Format to, const void* integers, int64_t count) override;

  kernels::NormSum fold(const SliceFold& slice, Nonfinite& origin) override;
  kernels::NormSum norm(const void* data, Format format, int64_t count, int64_t flat) override;
  kernels::UpdateCount update(std::span<const kernels::Update> pieces) override;
  std::unique_ptr<Updating> begin_update(std::span<const kernels::Update> pieces) override;

  std::vector<LambNorms> lamb_norms(std::span<const kernels::Update> pieces) override;
  void muon_direction(const kernels::Update& piece, float* direction) override;
  void multiply(const kernels::Product& product, Symmetric symmetric) override;
  void transpose(float* to, const float* from, int64_t rows, int64_t columns) override;

  // The norm of many arrays together; `nonfinite`: the first that has an Inf or NaN, or −1.
  struct Array {
    const void* data;
    Format format;
    int64_t count;
  };
  kernels::NormSum norm(std::span<const Array> arrays, int64_t& nonfinite);

 private:
  // Runs body(begin, count, worker) over [0, count); few elements on the calling thread.
  template <typename Body>
  void run_chunks(int64_t count, const Body& body) {
    if (count <= kTaskElements) {
      if (count > 0) body(0, count, 0);
      return;
    }
    run_over(count, (count + kTaskElements - 1) / kTaskElements, [&](int64_t task, int32_t worker) {
      const int64_t begin = task * kTaskElements;
      body(begin, std::min(kTaskElements, count - begin), worker);
    });
  }
  // Runs body(begin, count, norm of the worker, worker) over [0, count) and merges the norms.
  template <typename Body>
  kernels::NormSum over_chunks(int64_t count, const Body& body);
  [[nodiscard]] size_t threads() const {
    return workers_ == nullptr ? 1 : static_cast<size_t>(workers_->size());
  }
  void run(int64_t tasks, const Task& task);
  // The same, on the calling thread where there are few elements in all.
  void run_over(int64_t elements, int64_t tasks, const Task& task);
  Workers* workers_;
};

}  // namespace outrigger::device

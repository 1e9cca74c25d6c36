// SPDX-License-Identifier: Apache-2.0
// Where memory lies and kernels run: the host (host.h), or what a plugin drives (plugin.h). The
// engine keeps parameters and gradients on one, accumulators and states on the same or the other.
//
// Work is done in the order of a stream, numbered as DLPack does; on the host at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"
#include "kernels/kernels.h"
#include "outrigger.h"

namespace outrigger::device {

using kernels::Format;
using Stream = uint64_t;
// Memory that belongs to no stream.
inline constexpr Stream kNoStream = UINT64_MAX;

// A point in a stream. Empty: there is nothing to wait for.
using Event = std::shared_ptr<void>;

// The first element (as the caller counts) whose sum over ranks is not finite, and the rank whose
// contribution was not; −1 where only the sum was not.
struct Nonfinite {
  int64_t flat = -1;
  int32_t rank = -1;
};
// Of the same element, the lowest rank that is named.
void keep_first(Nonfinite& into, const Nonfinite& other);

// The sum over ranks of one slice; see kernels::Fold.
struct SliceFold {
  std::span<const void* const> sources;  // one for each rank, in rank order
  Format source_format;
  void* accumulator;
  Format accumulator_format;
  bool add;
  int64_t count;
  int64_t flat;  // of element 0
};

// What a device can update by, and keep: a bit for each kernels::Rule, Format and Rounding.
struct Abilities {
  uint64_t rules = 0, weight_formats = 0, moment_formats = 0, roundings = 0;

  template <typename Enum>
  [[nodiscard]] static constexpr bool has(uint64_t bits, Enum value) {
    return (bits >> static_cast<uint32_t>(value) & 1U) != 0;
  }
};

// to = round(from × factor)
struct Conversion {
  void* to;
  Format to_format;
  const void* from;
  Format from_format;
  float factor;
  int64_t count;
};

// Of LAMB's first part.
struct LambNorms {
  kernels::NormSum weights, directions;
};

// An update that was given to a device. The object's end waits for it.
class Updating {
 public:
  virtual ~Updating() = default;
  Updating(const Updating&) = delete;
  Updating& operator=(const Updating&) = delete;
  [[nodiscard]] virtual kernels::UpdateCount wait() = 0;

 protected:
  Updating() = default;
};

class Decider;

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual otr_device id() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // of who drives it
  [[nodiscard]] virtual Abilities abilities() const = 0;
  [[nodiscard]] bool is_host() const { return id().device_type == OTR_DEVICE_CPU; }

  // kNoStream: zero-filled, and for all streams at once; else uninitialised, for work that comes
  // after in that stream. Throws OTR_E_OUT_OF_MEMORY.
  [[nodiscard]] virtual std::byte* allocate(size_t bytes, Stream stream) = 0;
  // kNoStream: waits for the work given before. Else the memory goes when the work that was given
  // to that stream is done, and nothing waits; a stream that is gone has none.
  virtual void release(std::byte* data, size_t bytes, Stream stream) noexcept = 0;
  // Waits for all work of all streams, whatever became of it.
  virtual void drain() noexcept = 0;
  // Page-locks host memory, so that copies run beside the host. Throws what the device refuses
  // with; of the host as device there is nothing to lock.
  virtual void pin(void* data, size_t bytes) = 0;
  virtual void unpin(void* data) noexcept = 0;

  // Streams for this device's work that no caller knows; the same for the object's life. Kernels go
  // to the first; what goes beside them, to the host and from it, has one each.
  [[nodiscard]] virtual Stream own_stream() const = 0;
  [[nodiscard]] virtual Stream download_stream() const = 0;
  [[nodiscard]] virtual Stream upload_stream() const = 0;
  // Another one, of the caller's alone; it goes with the result, which waits for its work. The
  // device outlives it.
  [[nodiscard]] virtual std::shared_ptr<const Stream> make_stream() = 0;
  [[nodiscard]] virtual Event record(Stream stream) = 0;
  virtual void wait(Stream stream, const Event& event) = 0;  // the stream waits
  virtual void synchronize(Stream stream) = 0;               // the host waits
  virtual void synchronize(const Event& event) = 0;
  [[nodiscard]] virtual bool is_done(const Event& event) = 0;  // nobody waits

  virtual void download(void* host, const void* from, size_t bytes, Stream stream) = 0;
  virtual void upload(void* to, const void* host, size_t bytes, Stream stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, Stream stream) = 0;
  virtual void zero(void* data, size_t bytes, Stream stream) = 0;

  // Download and upload, done when they return.
  void download_now(void* host, const void* from, size_t bytes) {
    download(host, from, bytes, own_stream());
    synchronize(record(own_stream()));
  }
  void upload_now(void* to, const void* host, size_t bytes) {
    upload(to, host, bytes, own_stream());
    synchronize(record(own_stream()));
  }

  // Row-major `to` ← view × factor, and view ← row-major `from`, as in tensor.h.
  virtual void read(void* to, Format to_format, const tensor::View& from, float factor,
                    Stream stream) = 0;
  virtual void write(const tensor::View& to, const void* from, Format from_format,
                     Stream stream) = 0;
  // to = round(from × factor); to = round(to + from)
  virtual void convert(void* to, Format to_format, const void* from, Format from_format,
                       float factor, int64_t count, Stream stream) = 0;
  // All of a list, of which none writes what another one reads or writes.
  virtual void convert_all(std::span<const Conversion> list, Stream stream) {
    for (const Conversion& c : list) {
      convert(c.to, c.to_format, c.from, c.from_format, c.factor, c.count, stream);
    }
  }
  virtual void add(void* to, Format to_format, const void* from, Format from_format, int64_t count,
                   Stream stream) = 0;

  // Values on their way between ranks as Format::block8, rounded to nearest, or as 8-bit integers
  // (kernels::to_integers), with the scales behind the codes. Host only: a plugin has no functions
  // for it, and throws OTR_E_UNSUPPORTED.
  virtual void to_blocks(void* blocks, const void* values, Format from, int64_t count) = 0;
  virtual void to_integers(void* integers, const void* values, Format from, int64_t count) = 0;
  virtual void from_integers(void* values, Format to, const void* integers, int64_t count) = 0;

  // These return when their work is done, on the own stream.
  virtual kernels::NormSum fold(const SliceFold& slice, Nonfinite& origin) = 0;
  [[nodiscard]] virtual kernels::NormSum norm(const void* data, Format format, int64_t count,
                                              int64_t flat) = 0;
  [[nodiscard]] virtual kernels::UpdateCount update(std::span<const kernels::Update> pieces) = 0;
  // The same update beside the host. The host as device is done when this returns.
  [[nodiscard]] virtual std::unique_ptr<Updating> begin_update(
      std::span<const kernels::Update> pieces) = 0;
  // kernels::lamb_norms of each piece.
  [[nodiscard]] virtual std::vector<LambNorms> lamb_norms(
      std::span<const kernels::Update> pieces) = 0;

  // These are done in the own stream's order. kernels::muon_direction:
  virtual void muon_direction(const kernels::Update& piece, float* direction) = 0;
  // A whole product. Of one that is symmetric, half may be computed and mirrored.
  enum class Symmetric : uint8_t { no, yes };
  virtual void multiply(const kernels::Product& product, Symmetric symmetric) = 0;
  // to (columns × rows) = the transpose of from (rows × columns).
  virtual void transpose(float* to, const float* from, int64_t rows, int64_t columns) = 0;

  // Null: the host decides about steps (decider.h).
  [[nodiscard]] virtual Decider* decider() { return nullptr; }
};

}  // namespace outrigger::device

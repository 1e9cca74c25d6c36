// SPDX-License-Identifier: Apache-2.0
// What moves a device's memory between ranks without the host: one rank's end of a communicator
// that a plugin drives (NCCL). Its operations are begun by one thread at a time, in one order on
// all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/device/device.h"
#include "outrigger_plugin.h"

namespace outrigger::device {

struct CollectivePlugin {
  otr_collective_plugin table;  // what an older one lacks is 0
  std::string path;
};

// As load_plugin.
[[nodiscard]] CollectivePlugin load_collective_plugin(const std::string& name);

// Bytes of a device that go to a rank, or come from it.
struct DeviceTransfer {
  int32_t peer;
  std::byte* data;
  size_t bytes;
};

class Collective {
 public:
  using Id = std::array<unsigned char, OTR_PLUGIN_ID_BYTES>;
  // Of one rank, for all.
  [[nodiscard]] static Id make_id(const CollectivePlugin& plugin);

  // Begins to meet the other ranks; is_ready says when that is done. The device outlives it.
  Collective(CollectivePlugin plugin, Device& device, const Id& id, int32_t rank, int32_t world);
  ~Collective();  // local; ends what is under way
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // What was begun last is in its stream. Waits for nothing; throws what went wrong since.
  [[nodiscard]] bool is_ready();
  // Ends what is under way; streams go on. Any thread.
  void abort() noexcept;

  // Begun in a stream's order, while is_ready; sizes are the same on all ranks.
  void exchange(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives,
                Stream stream);
  void all_gather(const std::byte* mine, std::byte* all, size_t bytes, Stream stream);
  // In the library's order and precision.
  void reduce_scatter(const std::byte* all, std::byte* mine, int64_t count, Format format,
                      Stream stream);
  // Tells the library of memory that operations use, until the result's end; null: it cannot.
  [[nodiscard]] std::shared_ptr<void> registered(std::byte* data, size_t bytes);

 private:
  void check(int32_t status, const char* what) const;
  const CollectivePlugin plugin_;
  otr_plugin_collective* collective_ = nullptr;
};

}  // namespace outrigger::device

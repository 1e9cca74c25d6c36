// SPDX-License-Identifier: Apache-2.0
// A communicator whose windows are a device's memory, which the devices exchange without the host
// (NCCL). The ranks come to each operation over a host communicator first, so what is begun on a
// device waits for no rank's host; how it goes on is watched over that one, too, with its deadline.
#pragma once

#include <memory>
#include <optional>

#include "core/comm/communicator.h"
#include "core/device/collective.h"

namespace outrigger::comm {

// What moves the memory of all communicators of an engine, whose operations all ranks begin in one
// order, one at a time.
class DirectRanks {
 public:
  // Collective. The device outlives it. Throws on all ranks where one of them cannot.
  DirectRanks(Group& group, const device::CollectivePlugin& plugin, device::Device& device);
  [[nodiscard]] device::Collective& collective() { return *collective_; }
  [[nodiscard]] device::Device& device() const { return device_; }
  // Of the exchanges alone: two engines on one device that begin theirs in another order on another
  // rank do not wait for each other.
  [[nodiscard]] device::Stream stream() const { return *stream_; }

 private:
  device::Device& device_;
  const std::shared_ptr<const device::Stream> stream_;
  std::optional<device::Collective> collective_;  // ends first, and with it what is in the stream
};

// How sums are made: of all ranks' slices, folded by the device in rank order, with the bits of
// other communicators; or by the library, in its own order and in the precision of what it sums.
enum class Sums : uint8_t { ranked, library };

// host: of one level. received_bytes: the most that the slices of one reduce have, all ranks'.
[[nodiscard]] std::unique_ptr<Communicator> make_direct(std::unique_ptr<Communicator> host,
                                                        std::shared_ptr<DirectRanks> ranks,
                                                        Sums sums, size_t received_bytes);

}  // namespace outrigger::comm

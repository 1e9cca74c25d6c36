// SPDX-License-Identifier: Apache-2.0
// Memory of a device that lies in host memory for a while, so that others can use the device.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config/config.h"
#include "core/device/device.h"
#include "core/engine/movable.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"

namespace outrigger::engine {

class Away {
 public:
  // Host memory for what is kept. Throws OTR_E_OUT_OF_MEMORY. The device and the ledger outlive
  // this.
  Away(device::Device& device, memory::Ledger& ledger, config::Pin pin, std::vector<Movable> all);

  // Copies it there, and gives the device's memory back. Nothing else uses it from now on.
  void leave();
  // The device's memory again. Throws OTR_E_OUT_OF_MEMORY; what is there then is to be given up.
  void take_room();
  void give_up_room() noexcept;
  // Copies it back. The object's end gives the host's memory back.
  void come_back();

 private:
  struct Item {
    Movable what;
    memory::Block copy;
    memory::Pinned pinned;
  };
  device::Device& device_;
  std::vector<Item> items_;
};

}  // namespace outrigger::engine

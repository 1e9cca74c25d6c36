// SPDX-License-Identifier: Apache-2.0
// What exchanges between devices over a communicator of their hosts have in common.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/comm/forwarding.h"

namespace outrigger::comm {

class BetweenDevices : public Forwarding {
 public:
  using Forwarding::Forwarding;

  bool shares_memory() const final { return false; }
  std::unique_ptr<Communicator> duplicate(std::string_view) final { refuse("duplicated"); }
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>&) final { refuse("split"); }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) final {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED, "create_window '{}': devices have no common window", label);
    }
    return allocate(bytes, label);
  }

 protected:
  // A window of which each rank has a block in its device's memory. Collective.
  [[nodiscard]] virtual std::shared_ptr<Window> allocate(size_t bytes, std::string_view label) = 0;

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail(OTR_E_UNSUPPORTED, "a device's communicator cannot be {}: use the one behind it", what);
  }
};

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// What a look at all of a checkpoint finds damaged, in one error. Private to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace outrigger::checkpoint {

// "tensor 'w/master' of rank-00000.safetensors"
[[nodiscard]] std::string tensor_in(std::string_view file, std::string_view tensor);

class Damage {
 public:
  // Damages that are named; the rest is counted.
  static constexpr int64_t kNamed = 20;

  // False: look() failed as what is damaged does. Other failures go through.
  template <typename Look>
  bool look(const std::string& at, const Look& look) {
    try {
      look();
      return true;
    } catch (const Error& error) {
      if (!is_damage(error.status())) throw;
      note(at, error);
    }
    return false;
  }
  // Throws with the first one's status and text, and the names of the others.
  void require_none() const;

 private:
  [[nodiscard]] static bool is_damage(int32_t status);
  void note(const std::string& at, const Error& error);

  int64_t count_ = 0;
  std::optional<Error> first_;
  std::string others_;
};

}  // namespace outrigger::checkpoint

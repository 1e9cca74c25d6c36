// SPDX-License-Identifier: Apache-2.0
// A port of this host that no one else has.
#pragma once

namespace outrigger::tools {

// The socket stays open and bound, but does not listen, so the system gives the number to no other
// program, while rank 0 may still listen on it with SO_REUSEADDR.
class ReservedPort {
 public:
  ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ~ReservedPort();

  [[nodiscard]] int number() const noexcept { return port_; }

 private:
  int socket_, port_ = 0;
};

}  // namespace outrigger::tools

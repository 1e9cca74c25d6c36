// SPDX-License-Identifier: Apache-2.0
#include "relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "say.h"
#include "text.h"

namespace outrigger::tools {

Relay::Relay(int descriptor, int rank)
    : descriptor_(descriptor), prefix_(format_text("[rank {}] ", rank)) {
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

Relay::Relay(Relay&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      prefix_(std::move(other.prefix_)),
      pending_(std::move(other.pending_)) {}

Relay::~Relay() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Relay::pump() {
  constexpr size_t longest_line = size_t{1} << 16;
  std::array<char, 4096> buffer;
  // Bounded, so that a worker that floods its output cannot keep the launcher from its other
  // duties.
  for (int round = 0; round < 64 && descriptor_ >= 0; round++) {
    const ssize_t got = read(descriptor_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      close(descriptor_);
      descriptor_ = -1;
    } else {
      pending_.append(buffer.data(), static_cast<size_t>(got));
    }
    write_lines(descriptor_ < 0 || pending_.size() > longest_line);
  }
}

void Relay::write_lines(bool all) {
  size_t begin = 0;
  for (size_t end = 0; (end = pending_.find('\n', begin)) != pending_.npos; begin = end + 1) {
    say("{}{}\n", prefix_, std::string_view(pending_).substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (all && !pending_.empty()) {
    say("{}{}\n", prefix_, pending_);
    pending_.clear();
  }
}

}  // namespace outrigger::tools

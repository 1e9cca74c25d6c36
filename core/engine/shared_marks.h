// SPDX-License-Identifier: Apache-2.0
// How far each of the ranks that share the published parameters has come with its updates, in
// memory that they share: who waits for a parameter sees when all of it is new, and nobody waits to
// say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/comm/communicator.h"

namespace outrigger::engine {

class SharedMarks {
 public:
  // Of the ranks that together have all slices. Collective.
  explicit SharedMarks(comm::Communicator& comm);

  // Parts that this rank has updated since the beginning, in an order that all ranks keep; what it
  // wrote before is seen by who reads the mark.
  void set(uint64_t parts) noexcept;
  [[nodiscard]] uint64_t mine() const noexcept;
  // … and every one of the ranks. Any thread.
  [[nodiscard]] uint64_t all() const noexcept;

 private:
  [[nodiscard]] uint64_t& of(int32_t slice) const noexcept;

  const int32_t slices_, slice_;
  std::shared_ptr<comm::Window> window_;
  std::byte* data_;
};

}  // namespace outrigger::engine

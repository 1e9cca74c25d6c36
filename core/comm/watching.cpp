// SPDX-License-Identifier: Apache-2.0
#include "core/comm/watching.h"

#include <utility>

#include "core/base/error.h"

namespace outrigger::comm {

static thread_local const Watching* current = nullptr;

Watching::Watching(const Group& whole) : whole_(whole), outer_(std::exchange(current, this)) {}

Watching::~Watching() { current = outer_; }

void Watching::check() {
  for (const Watching* each = current; each != nullptr; each = each->outer_) {
    try {
      each->whole_.check();
    } catch (const Error& error) {
      if (error.culprit() < 0) throw;
      throw Error(error.status(), error.what(), rank_outside(error.culprit()));
    }
  }
}

}  // namespace outrigger::comm

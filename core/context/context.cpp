// SPDX-License-Identifier: Apache-2.0
#include "core/context/context.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/base/error.h"
#include "core/threads/cores.h"

namespace outrigger {
namespace {

// This rank's share of the cores. Unless they are its own, the ranks of this host divide what they
// all see.
int32_t default_workers() {
  const int32_t cores = usable_cores();
  if (has_cores_of_its_own()) return cores;
  const char* local = std::getenv("LOCAL_WORLD_SIZE");
  const int32_t ranks = local == nullptr ? 1 : std::max(1, std::atoi(local));
  return std::max(1, cores / ranks);
}

}  // namespace

Context::Context(const otr_context_options& options) : options_(options) {
  if (options.workers < 0 || options.workers > 1024) {
    fail(OTR_E_ARGUMENT,
         "workers = {}; legal is 1 to 1024, or 0 for this rank's share of the cores",
         options.workers);
  }
  if (options.log_level < OTR_LOG_ERROR || options.log_level > OTR_LOG_DEBUG) {
    fail(OTR_E_ARGUMENT, "log_level = {}; legal is OTR_LOG_ERROR ({}) to OTR_LOG_DEBUG ({})",
         options.log_level, static_cast<int>(OTR_LOG_ERROR), static_cast<int>(OTR_LOG_DEBUG));
  }
  workers_ = options.workers != 0 ? options.workers : default_workers();
}

std::shared_ptr<observe::FlightRecorder> Context::flight_recorder() {
  {
    const std::lock_guard lock(flight_mutex_);
    if (auto there = flight_recorder_.lock()) return there;
  }
  auto made = own_flight_recorder();
  const std::lock_guard lock(flight_mutex_);
  flight_recorder_ = made;
  return made;
}

std::shared_ptr<observe::FlightRecorder> Context::own_flight_recorder() {
  const observe::FlightPlace place = observe::flight_place();
  if (place.folder.empty()) return nullptr;
  std::shared_ptr<observe::FlightRecorder> made;
  std::string trouble;
  try {
    made = std::make_shared<observe::FlightRecorder>(place);
  } catch (const Error& error) {
    if (place.is_stated || error.status() != OTR_E_IO) throw;
    trouble = error.what();
  }
  const std::lock_guard lock(flight_mutex_);
  if (std::exchange(has_swept_, true)) return made;
  if (!trouble.empty()) log(OTR_LOG_WARNING, trouble);
  if (!place.is_stated) observe::sweep_flights(place.folder);
  return made;
}

void Context::log(int32_t level, const std::string& text) const {
  if (!logs(level)) return;
  const std::lock_guard lock(log_mutex_);
  options_.log_callback(level, text.c_str(), options_.log_user_data);
}

}  // namespace outrigger

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/transport_job.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/comm/identity.h"
#include "core/comm/watch.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

// Equal where one kernel counts the processes alike, and the host has one name.
uint64_t host_id() {
  std::string text = host_name();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  text += boot;
  std::array<char, 64> space{};
  const ssize_t n = readlink("/proc/self/ns/pid", space.data(), space.size());
  text.append(space.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

void TransportMessage::set_text(std::string_view value) {
  const size_t n = std::min(value.size(), text.size() - 1);
  std::memcpy(text.data(), value.data(), n);
  text[n] = '\0';
}

std::string_view TransportMessage::text_view() const {
  return {text.data(), strnlen(text.data(), text.size())};
}

void keep_for_ever(std::shared_ptr<const void> owner) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(owner));
}

TransportJob::TransportJob(const device::TransportPlugin& plugin, const void* group,
                           const Settings& settings)
    : plugin_(plugin), timeout_(settings.timeout) {
  otr_plugin_request* request = nullptr;
  check(plugin_.table.attach(group, &channel_, &request), "attach");
  finish(request, "attach", nullptr);
  check(plugin_.table.place(channel_, &rank_, &world_), "attach");
  meet();
  const auto here = std::ranges::count(identities_, identities_[static_cast<size_t>(rank_)].host,
                                       &Identity::host);
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  spin_ = choose_spin(settings.spin, static_cast<int32_t>(here), cores);
}

// Ranks learn the job's number and each other's hosts and processes.
void TransportJob::meet() {
  struct Board {
    uint64_t id;
    std::vector<Identity> all;
  };
  const auto ranks = static_cast<size_t>(world_);
  const auto board = std::make_shared<Board>(Board{0, std::vector<Identity>(ranks)});
  otr_plugin_request* request = nullptr;
  if (rank_ == 0) board->id = new_identity();
  check(plugin_.table.broadcast(channel_, &board->id, sizeof board->id, 0, &request), "attach");
  finish(request, "attach", board);
  Identity& mine = board->all[static_cast<size_t>(rank_)];
  mine.host = host_id();
  mine.process = current_process();
  const std::string name = host_name();
  std::copy_n(name.data(), std::min(name.size(), mine.name.size() - 1), mine.name.data());
  check(plugin_.table.all_gather(channel_, &mine, board->all.data(), sizeof mine, &request),
        "attach");
  finish(request, "attach", board);
  id_ = board->id;
  identities_ = board->all;
  for (int32_t r = 0; r < world_; ++r) {
    const Identity& other = identities_[static_cast<size_t>(r)];
    if (other.host != mine.host || other.process == mine.process) continue;
    UniqueFd opened(
        static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(other.process), 0)));
    if (opened) processes_.push_back({r, std::move(opened)});
  }
}

bool TransportJob::is_on_this_host(int32_t rank) const {
  return identities_[static_cast<size_t>(rank)].host ==
         identities_[static_cast<size_t>(rank_)].host;
}

std::string TransportJob::name_of(int32_t rank, int32_t number) const {
  const Identity& who = identities_[static_cast<size_t>(rank)];
  return format_text("rank {} (process {} of {})", number, who.process,
                     std::string_view(who.name.data(), strnlen(who.name.data(), who.name.size())));
}

void TransportJob::check(int32_t status, std::string_view what) const {
  if (status == OTR_OK) return;
  const char* reason = plugin_.table.last_error();
  fail(status, "{}: {}", what, reason == nullptr ? "" : reason);
}

void TransportJob::finish(otr_plugin_request* request, std::string_view what,
                          std::shared_ptr<const void> owner) const {
  const Clock::time_point deadline = deadline_in(timeout_);
  const auto ready = [&] {
    int32_t done = 0;
    const int32_t status = plugin_.table.test(request, &done);
    if (status != OTR_OK) keep_for_ever(owner);
    check(status, what);
    return done != 0;
  };
  watch_until(ready, [&](Clock::time_point now) {
    const bool late = now >= deadline;
    if (!late && !interrupted(now)) return;
    keep_for_ever(owner);
    if (late) {
      fail(OTR_E_TIMEOUT,
           "'{}': not all ranks came within {} s; look what holds them up, or raise the timeout",
           what, timeout_);
    }
    fail(OTR_E_ABORTED,
         "'{}' was interrupted by the host while ranks were meeting; they cannot meet again: start "
         "all ranks anew",
         what);
  });
}

std::vector<int32_t> TransportJob::ended() const {
  std::vector<int32_t> ranks;
  for (const Process& other : processes_) {
    pollfd process{other.descriptor.get(), POLLIN, 0};
    if (::poll(&process, 1, 0) == 1) ranks.push_back(other.rank);
  }
  std::array<int32_t, 64> dead{};
  int64_t count = 0;
  if (plugin_.table.failed(channel_, dead.data(), dead.size(), &count) == OTR_OK) {
    ranks.insert(ranks.end(), dead.begin(), dead.begin() + count);
  }
  const std::lock_guard lock(ended_mutex_);
  for (const int32_t rank : ranks) {
    if (std::ranges::find(ended_, rank) == ended_.end()) ended_.push_back(rank);
  }
  return ended_;
}

void TransportJob::send(int32_t to, const TransportMessage& message) noexcept {
  static_cast<void>(plugin_.table.send_message(channel_, to, &message));
}

void TransportJob::poll() noexcept {
  constexpr int kAtATime = 100;
  for (int i = 0; i < kAtATime; ++i) {
    TransportMessage message;
    int32_t has = 0;
    if (plugin_.table.receive_message(channel_, &message, &has) != OTR_OK || has == 0) return;
    const std::lock_guard lock(mutex_);
    const auto group = groups_.find(message.group);
    if (group == groups_.end()) continue;
    try {
      group->second->take(message);
    } catch (const std::bad_alloc&) {  // then it is not heard
    }
  }
}

void TransportJob::add(uint64_t group, Listener& listener) {
  const std::lock_guard lock(mutex_);
  groups_[group] = &listener;
}

void TransportJob::remove(uint64_t group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
}

}  // namespace outrigger::comm

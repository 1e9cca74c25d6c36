// SPDX-License-Identifier: Apache-2.0
#include "core/comm/transport_channel.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/process.h"
#include "core/comm/channel_communicator.h"
#include "core/comm/identity.h"
#include "core/comm/transport.h"

namespace outrigger::comm {
namespace {

// Of the caller's memory, which MPI must not touch after a failure: bytes that go through memory of
// the channel's own at a time.
constexpr size_t kStaged = size_t{4} << 20;

}  // namespace

TransportChannel::TransportChannel(std::shared_ptr<TransportGroup> group,
                                   otr_plugin_channel* channel, uint64_t id, std::string_view name)
    : group_(std::move(group)),
      channel_(channel),
      id_(id),
      name_(name),
      process_(current_process()),
      news_(group_->add(id)),
      spin_(group_->job().spin()) {}

TransportChannel::~TransportChannel() {
  if (current_process() != process_) return;
  if (meeting_ != nullptr) keep_for_ever(meeting_);
  give_up(rank());
  group_->remove(id_);
  plugin().close(channel_);
}

std::string TransportChannel::waited_in() const {
  return format_text("{} (operation {} of '{}')", current_.text(), current_.number, name_);
}

std::string TransportChannel::waiting() const {
  return meeting_ == nullptr ? "" : format_text("{} waits", waited_in());
}

// The same on all ranks of what an operation makes.
uint64_t TransportChannel::child_id(uint64_t salt) const {
  return child_of(id_, current_.number, salt);
}

std::byte* TransportChannel::staging(size_t bytes) {
  if (staging_bytes_ < bytes) {
    staging_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

void TransportChannel::publish_number() {
  group_->with(*news_, [&](ChannelNews& news) { news.number = current_.number; });
}

uint64_t TransportChannel::published_number() const {
  return group_->with(*news_, [](const ChannelNews& news) { return news.number; });
}

void TransportChannel::meet(Operation operation) {
  check();
  if (meeting_ != nullptr) {
    operation.number = current_.number;
    if (!operation.same_call(current_)) {
      fail(OTR_E_STATE,
           "{} was interrupted on rank {} while it waited, and {} is called: make the interrupted "
           "call again first",
           waited_in(), rank(), operation.text());
    }
  } else {
    operation.number = current_.number + 1;
    current_ = operation;
    is_over_ = false;
    publish_number();
    if (size() > 1) {
      const uint64_t hash = XXH3_64bits(&current_, sizeof current_);
      meeting_ = std::make_shared<Meeting>(Meeting{{hash, ~hash}});
      const int32_t status =
          plugin().smallest(channel_, meeting_->hashes.data(), 2, &meeting_request_);
      if (status != OTR_OK) request_failed(status, plugin().last_error());
    }
  }
  if (meeting_ != nullptr) {
    wait(meeting_request_, meeting_);
    const Meeting met = *meeting_;
    meeting_ = nullptr;
    if (met.hashes[0] != ~met.hashes[1]) compare();
  }
  is_over_ = true;  // but for data, which others may still need: see run
}

void TransportChannel::compare() {
  std::vector<Operation> calls(static_cast<size_t>(size()));
  all_gather(&current_, sizeof current_, calls.data(), nullptr);
  for (size_t r = 1; r < calls.size(); ++r) {
    if (calls[r].number == calls[0].number && calls[r].same_call(calls[0])) continue;
    const auto other = static_cast<int32_t>(r);
    group_->fate().fail_with(Error(
        OTR_E_MISMATCH, disagreement(current_.number, name_, calls[0], other, calls[r]), other));
  }
  fail(OTR_E_INTERNAL, "'{}': ranks have different hashes of equal calls", name_);
}

void TransportChannel::run(const Owner& owner, const std::function<int32_t(Request*)>& begin) {
  is_over_ = false;
  Request request = nullptr;
  const int32_t status = begin(&request);
  if (status != OTR_OK) {
    keep_for_ever(owner);
    request_failed(status, plugin().last_error());
  }
  wait(request, owner);
  is_over_ = true;
}

void TransportChannel::all_gather(const void* mine, size_t bytes, void* all, const Owner& owner) {
  if (owner != nullptr && bytes <= plugin().most_bytes) {
    run(owner, [&](Request* r) { return plugin().all_gather(channel_, mine, all, bytes, r); });
    return;
  }
  const auto ranks = static_cast<size_t>(size()), own = static_cast<size_t>(rank());
  const size_t most = std::min({bytes, std::max(kStaged / ranks, size_t{1}), plugin().most_bytes});
  std::byte* const stage = staging(ranks * most);
  for (size_t done = 0; done < bytes; done += most) {
    const size_t n = std::min(most, bytes - done);
    std::memcpy(stage + own * n, static_cast<const std::byte*>(mine) + done, n);
    run(staging_,
        [&](Request* r) { return plugin().all_gather(channel_, stage + own * n, stage, n, r); });
    for (size_t i = 0; i < ranks; ++i) {
      std::memcpy(static_cast<std::byte*>(all) + i * bytes + done, stage + i * n, n);
    }
  }
}

// The caller's bytes go through memory of the channel's own, a piece at a time: out of the caller's
// memory if that is const, else into it.
template <typename Byte, typename Begin>
void TransportChannel::staged(std::span<Byte> data, const Begin& begin) {
  const size_t most = std::min({data.size(), kStaged, plugin().most_bytes});
  std::byte* const stage = staging(most);
  for (size_t done = 0; done < data.size(); done += most) {
    const auto piece = data.subspan(done, std::min(most, data.size() - done));
    if constexpr (std::is_const_v<Byte>) std::memcpy(stage, piece.data(), piece.size());
    run(staging_, [&](Request* r) { return begin(stage, piece.size(), r); });
    if constexpr (!std::is_const_v<Byte>) std::memcpy(piece.data(), stage, piece.size());
  }
}

void TransportChannel::broadcast(std::span<std::byte> data, int32_t root) {
  const auto begin = [&](std::byte* stage, size_t n, Request* r) {
    return plugin().broadcast(channel_, stage, n, root, r);
  };
  root == rank() ? staged(std::span<const std::byte>(data), begin) : staged(data, begin);
}

void TransportChannel::all_to_all(const std::byte* parts, size_t bytes, std::byte* received,
                                  const Owner& owner) {
  if (owner != nullptr && bytes <= plugin().most_bytes) {
    run(owner,
        [&](Request* r) { return plugin().all_to_all(channel_, parts, received, bytes, r); });
    return;
  }
  const auto ranks = static_cast<size_t>(size());
  const size_t most =
      std::min({bytes, std::max(kStaged / 2 / ranks, size_t{1}), plugin().most_bytes});
  std::byte* const stage = staging(2 * ranks * most);
  std::byte* const come = stage + ranks * most;
  for (size_t done = 0; done < bytes; done += most) {
    const size_t n = std::min(most, bytes - done);
    for (size_t r = 0; r < ranks; ++r) std::memcpy(stage + r * n, parts + r * bytes + done, n);
    run(staging_, [&](Request* r) { return plugin().all_to_all(channel_, stage, come, n, r); });
    for (size_t r = 0; r < ranks; ++r) std::memcpy(received + r * bytes + done, come + r * n, n);
  }
}

void TransportChannel::send(std::span<const std::byte> data, int32_t to) {
  staged(data, [&](std::byte* stage, size_t n, Request* r) {
    const otr_plugin_transfer one{sizeof one, to, stage, n};
    return plugin().exchange(channel_, &one, 1, nullptr, 0, r);
  });
}

void TransportChannel::receive(std::span<std::byte> data, int32_t from) {
  staged(data, [&](std::byte* stage, size_t n, Request* r) {
    const otr_plugin_transfer one{sizeof one, from, stage, n};
    return plugin().exchange(channel_, nullptr, 0, &one, 1, r);
  });
}

std::unique_ptr<Channel> TransportChannel::duplicate(std::string_view name) {
  otr_plugin_channel* made = nullptr;
  run(nullptr, [&](Request* r) { return plugin().duplicate(channel_, &made, r); });
  return std::make_unique<TransportChannel>(group_, made, child_id(0), name);
}

std::unique_ptr<Channel> TransportChannel::split(const std::vector<int32_t>& groups,
                                                 const std::vector<int32_t>& places, int32_t place,
                                                 int32_t count, std::string_view name) {
  const int32_t color = groups[static_cast<size_t>(rank())];
  otr_plugin_channel* made = nullptr;
  run(nullptr, [&](Request* r) {
    return plugin().split(channel_, color, places[static_cast<size_t>(rank())], &made, r);
  });
  if (made == nullptr) return nullptr;
  std::vector<int32_t> members(static_cast<size_t>(count));
  for (size_t r = 0; r < groups.size(); ++r) {
    if (groups[r] == color) {
      members[static_cast<size_t>(places[r])] = group_->member(static_cast<int32_t>(r));
    }
  }
  const uint64_t id = child_id(static_cast<uint64_t>(color) + 1);
  auto group =
      std::make_shared<TransportGroup>(group_->shared_job(), id, std::move(members), place);
  return std::make_unique<TransportChannel>(std::move(group), made, id, name);
}

std::unique_ptr<Communicator> make_transport(const device::TransportPlugin& plugin,
                                             const void* handle, const Settings& settings) {
  auto job = std::make_shared<TransportJob>(plugin, handle, settings);
  std::vector<int32_t> members(static_cast<size_t>(job->world()));
  for (size_t r = 0; r < members.size(); ++r) members[r] = static_cast<int32_t>(r);
  otr_plugin_channel* first = nullptr;
  otr_plugin_request* request = nullptr;
  job->check(plugin.table.duplicate(job->channel(), &first, &request), "attach");
  job->finish(request, "attach", nullptr);
  auto group = std::make_shared<TransportGroup>(job, job->id(), std::move(members), job->rank());
  auto made = make_over(std::make_unique<TransportChannel>(group, first, job->id(), "main"));
  made->barrier("attach");
  return made;
}

}  // namespace outrigger::comm

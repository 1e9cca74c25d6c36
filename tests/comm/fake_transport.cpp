// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/fake_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/communicator.h"

namespace outrigger::comm::test {
namespace {

using Message = std::array<std::byte, OTR_PLUGIN_MESSAGE_BYTES>;

// Of the ranks of a channel.
struct Mail {
  explicit Mail(int32_t ranks)
      : boxes(static_cast<size_t>(ranks)), data(boxes.size() * boxes.size()) {}
  std::mutex mutex;
  std::vector<std::deque<Message>> boxes;
  std::vector<std::deque<std::vector<std::byte>>> data;  // by sender, then by receiver
};

thread_local std::string reason;

}  // namespace
}  // namespace outrigger::comm::test

struct otr_plugin_channel {
  std::unique_ptr<outrigger::comm::Communicator> group;
  std::shared_ptr<outrigger::comm::test::Mail> mail;
  std::atomic<int> open{0};  // requests that are not over
};
struct otr_plugin_request {
  std::future<void> done;
  otr_plugin_channel* channel;
};

namespace outrigger::comm::test {
namespace {

// What failures leave behind stays, and is no leak.
class Kept {
 public:
  void add(void* object) {
    const std::lock_guard lock(mutex_);
    objects_.insert(object);
  }
  void remove(void* object) {
    const std::lock_guard lock(mutex_);
    objects_.erase(object);
  }

 private:
  std::mutex mutex_;
  std::set<void*> objects_;
};
Kept& kept() {
  static Kept& all = *new Kept;
  return all;
}

int32_t begin(otr_plugin_channel* channel, otr_plugin_request** out, std::function<void()> body) {
  if (channel != nullptr) ++channel->open;
  std::packaged_task<void()> task(std::move(body));
  *out = new otr_plugin_request{task.get_future(), channel};
  kept().add(*out);
  std::thread(std::move(task)).detach();
  return OTR_OK;
}

// The group's first rank hands its mail to all.
std::shared_ptr<Mail> share_mail(Communicator& group) {
  std::shared_ptr<Mail>* mine = nullptr;
  if (group.rank() == 0) mine = new std::shared_ptr<Mail>(std::make_shared<Mail>(group.size()));
  auto* shared = mine;
  group.broadcast(std::as_writable_bytes(std::span(&shared, 1)), 0, "mail");
  std::shared_ptr<Mail> mail = *shared;
  group.barrier("mail");
  delete mine;
  return mail;
}

int32_t make(otr_plugin_channel** out, otr_plugin_request** out_request,
             std::function<std::unique_ptr<Communicator>()> divide) {
  auto* made = new otr_plugin_channel;
  kept().add(made);
  *out = made;
  return begin(nullptr, out_request, [made, divide = std::move(divide)] {
    made->group = divide();
    made->mail = share_mail(*made->group);
  });
}

int32_t attach(const void* group, otr_plugin_channel** out, otr_plugin_request** out_request) {
  auto* const given = static_cast<Communicator*>(const_cast<void*>(group));
  return make(out, out_request, [given] { return given->duplicate("attach"); });
}
int32_t duplicate(otr_plugin_channel* c, otr_plugin_channel** out,
                  otr_plugin_request** out_request) {
  return make(out, out_request, [c] { return c->group->duplicate("duplicate"); });
}
// As MPI's, it blocks.
int32_t split_channel(otr_plugin_channel* c, int32_t color, int32_t key, otr_plugin_channel** out,
                      otr_plugin_request** out_request) {
  *out = nullptr;
  auto group = split(*c->group, color, key);
  if (group == nullptr) return begin(nullptr, out_request, [] {});
  return make(out, out_request,
              [made = group.release()] { return std::unique_ptr<Communicator>(made); });
}
int32_t place(otr_plugin_channel* c, int32_t* out_rank, int32_t* out_world) {
  *out_rank = c->group->rank();
  *out_world = c->group->size();
  return OTR_OK;
}
// What is not over keeps its memory, and its thread ends by the group's end.
void close(otr_plugin_channel* c) {
  if (c->open == 0) {
    kept().remove(c);
    delete c;
  } else {
    c->group->cancel();
  }
}

std::span<const std::byte> bytes_at(const void* data, size_t n) {
  return {static_cast<const std::byte*>(data), n};
}
std::span<std::byte> bytes_at(void* data, size_t n) { return {static_cast<std::byte*>(data), n}; }

int32_t all_gather(otr_plugin_channel* c, const void* mine, void* all, size_t bytes,
                   otr_plugin_request** out) {
  return begin(c, out, [=] {
    const auto given = bytes_at(mine, bytes);
    const std::vector<std::byte> copy(given.begin(), given.end());
    c->group->all_gather(copy, bytes_at(all, bytes * static_cast<size_t>(c->group->size())),
                         "fake");
  });
}
int32_t broadcast(otr_plugin_channel* c, void* data, size_t bytes, int32_t root,
                  otr_plugin_request** out) {
  return begin(c, out, [=] { c->group->broadcast(bytes_at(data, bytes), root, "fake"); });
}
int32_t all_to_all(otr_plugin_channel* c, const void* parts, void* received, size_t bytes,
                   otr_plugin_request** out) {
  return begin(c, out, [=] {
    const auto ranks = static_cast<size_t>(c->group->size()),
               own = static_cast<size_t>(c->group->rank());
    std::vector<std::byte> all(ranks * ranks * bytes);
    c->group->all_gather(bytes_at(parts, ranks * bytes), all, "fake");
    for (size_t r = 0; r < ranks; ++r) {
      std::memcpy(static_cast<std::byte*>(received) + r * bytes,
                  all.data() + (r * ranks + own) * bytes, bytes);
    }
  });
}
int32_t smallest(otr_plugin_channel* c, uint64_t* numbers, int64_t count,
                 otr_plugin_request** out) {
  return begin(c, out, [=] {
    const auto n = static_cast<size_t>(count);
    std::vector<uint64_t> all(n * static_cast<size_t>(c->group->size()));
    c->group->all_gather(std::as_bytes(std::span(numbers, n)),
                         std::as_writable_bytes(std::span(all)), "fake");
    for (size_t i = 0; i < all.size(); ++i) numbers[i % n] = std::min(numbers[i % n], all[i]);
  });
}
int32_t exchange(otr_plugin_channel* c, const otr_plugin_transfer* sends, int64_t send_count,
                 const otr_plugin_transfer* receives, int64_t receive_count,
                 otr_plugin_request** out) {
  const std::vector<otr_plugin_transfer> to(sends, sends + send_count),
      from(receives, receives + receive_count);
  return begin(c, out, [=] {
    const auto ranks = static_cast<size_t>(c->group->size()),
               own = static_cast<size_t>(c->group->rank());
    for (const auto& one : to) {
      const auto data = bytes_at(one.data, one.bytes);
      const std::lock_guard lock(c->mail->mutex);
      c->mail->data[own * ranks + static_cast<size_t>(one.peer)].emplace_back(data.begin(),
                                                                              data.end());
    }
    for (const auto& one : from) {
      auto& queue = c->mail->data[static_cast<size_t>(one.peer) * ranks + own];
      for (std::vector<std::byte> come; come.empty(); std::this_thread::yield()) {
        c->group->check();
        const std::lock_guard lock(c->mail->mutex);
        if (queue.empty()) continue;
        come = std::move(queue.front());
        queue.pop_front();
        std::memcpy(one.data, come.data(), one.bytes);
      }
    }
  });
}
int32_t test(otr_plugin_request* request, int32_t* out_done) {
  *out_done = request->done.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 1 : 0;
  if (*out_done == 0) return OTR_OK;
  const std::unique_ptr<otr_plugin_request> over(request);
  kept().remove(request);
  if (over->channel != nullptr) --over->channel->open;
  try {
    over->done.get();
    return OTR_OK;
  } catch (const Error& error) {
    reason = error.what();
    return OTR_E_SYSTEM;
  }
}
int32_t send_message(otr_plugin_channel* c, int32_t to, const void* message) {
  const std::lock_guard lock(c->mail->mutex);
  std::memcpy(c->mail->boxes[static_cast<size_t>(to)].emplace_back().data(), message,
              OTR_PLUGIN_MESSAGE_BYTES);
  return OTR_OK;
}
int32_t receive_message(otr_plugin_channel* c, void* message, int32_t* out_has) {
  const std::lock_guard lock(c->mail->mutex);
  auto& box = c->mail->boxes[static_cast<size_t>(c->group->rank())];
  *out_has = box.empty() ? 0 : 1;
  if (box.empty()) return OTR_OK;
  std::memcpy(message, box.front().data(), OTR_PLUGIN_MESSAGE_BYTES);
  box.pop_front();
  return OTR_OK;
}
int32_t failed(otr_plugin_channel*, int32_t*, int64_t, int64_t* out_count) {
  *out_count = 0;
  return OTR_OK;
}

}  // namespace

device::TransportPlugin fake_transport() {
  otr_transport_plugin table{};
  table.struct_size = sizeof table;
  table.version = OTR_TRANSPORT_PLUGIN_VERSION;
  table.name = "transport";
  table.most_bytes = 100000;
  table.last_error = [] { return reason.c_str(); };
  table.attach = attach;
  table.duplicate = duplicate;
  table.split = split_channel;
  table.place = place;
  table.close = close;
  table.all_gather = all_gather;
  table.broadcast = broadcast;
  table.all_to_all = all_to_all;
  table.smallest = smallest;
  table.exchange = exchange;
  table.test = test;
  table.send_message = send_message;
  table.receive_message = receive_message;
  table.failed = failed;
  return {table, "fake"};
}

}  // namespace outrigger::comm::test

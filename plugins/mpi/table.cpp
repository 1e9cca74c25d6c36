// SPDX-License-Identifier: Apache-2.0
// The plugin's table: C functions over the channels.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/common/guard.h"
#include "plugins/mpi/channel.h"

using outrigger::mpi::Channel;
using outrigger::plugins::last_error;

struct otr_plugin_channel {
  std::shared_ptr<Channel> channel;
};
struct otr_plugin_request {
  Channel::Begun request;
};

namespace {

using outrigger::plugins::guard;

int32_t describe(char* text, size_t size) {
  return guard([&] {
    const std::string whole = outrigger::mpi::version();
    const size_t n = std::min(whole.size(), size - 1);
    std::memcpy(text, whole.data(), n);
    text[n] = '\0';
  });
}

template <typename Make>
int32_t make(otr_plugin_channel** out_channel, otr_plugin_request** out_request,
             const Make& begin) {
  *out_channel = nullptr;
  *out_request = nullptr;
  return guard([&] {
    auto channel = std::make_unique<otr_plugin_channel>();
    auto request = std::make_unique<otr_plugin_request>();
    std::tie(channel->channel, request->request) = begin();
    if (channel->channel != nullptr) *out_channel = channel.release();
    *out_request = request.release();
  });
}

int32_t attach(const void* group, otr_plugin_channel** out_channel,
               otr_plugin_request** out_request) {
  return make(out_channel, out_request, [&] { return outrigger::mpi::attach(group); });
}
int32_t duplicate(otr_plugin_channel* c, otr_plugin_channel** out_channel,
                  otr_plugin_request** out_request) {
  return make(out_channel, out_request, [&] { return c->channel->duplicate(); });
}
int32_t split(otr_plugin_channel* c, int32_t color, int32_t key, otr_plugin_channel** out_channel,
              otr_plugin_request** out_request) {
  return make(out_channel, out_request, [&] { return c->channel->split(color, key); });
}
int32_t place(otr_plugin_channel* c, int32_t* out_rank, int32_t* out_world) {
  return guard([&] {
    *out_rank = c->channel->rank();
    *out_world = c->channel->world();
  });
}
void close(otr_plugin_channel* c) { delete c; }

template <typename Begin>
int32_t start(otr_plugin_request** out_request, const Begin& begin) {
  *out_request = nullptr;
  return guard([&] {
    auto request = std::make_unique<otr_plugin_request>();
    request->request = begin();
    *out_request = request.release();
  });
}

int32_t all_gather(otr_plugin_channel* c, const void* mine, void* all, size_t bytes,
                   otr_plugin_request** out_request) {
  return start(out_request, [&] { return c->channel->all_gather(mine, all, bytes); });
}
int32_t broadcast(otr_plugin_channel* c, void* data, size_t bytes, int32_t root,
                  otr_plugin_request** out_request) {
  return start(out_request, [&] { return c->channel->broadcast(data, bytes, root); });
}
int32_t all_to_all(otr_plugin_channel* c, const void* parts, void* received, size_t bytes,
                   otr_plugin_request** out_request) {
  return start(out_request, [&] { return c->channel->all_to_all(parts, received, bytes); });
}
int32_t smallest(otr_plugin_channel* c, uint64_t* numbers, int64_t count,
                 otr_plugin_request** out_request) {
  return start(out_request, [&] { return c->channel->smallest(numbers, count); });
}
int32_t exchange(otr_plugin_channel* c, const otr_plugin_transfer* sends, int64_t send_count,
                 const otr_plugin_transfer* receives, int64_t receive_count,
                 otr_plugin_request** out_request) {
  return start(out_request,
               [&] { return c->channel->exchange(sends, send_count, receives, receive_count); });
}

int32_t test(otr_plugin_request* request, int32_t* out_done) {
  *out_done = 0;
  bool done = false;
  const int32_t status = guard([&] { done = request->request->test(); });
  *out_done = done ? 1 : 0;
  if (done || status != OTR_OK) delete request;
  return status;
}

int32_t send_message(otr_plugin_channel* c, int32_t to, const void* message) {
  return guard([&] { c->channel->send_message(to, message); });
}
int32_t receive_message(otr_plugin_channel* c, void* message, int32_t* out_has) {
  *out_has = 0;
  return guard([&] { *out_has = c->channel->receive_message(message) ? 1 : 0; });
}
int32_t failed(otr_plugin_channel* c, int32_t* ranks, int64_t room, int64_t* out_count) {
  *out_count = 0;
  return guard([&] {
    const std::vector<int32_t> dead = c->channel->failed();
    *out_count = std::min(room, static_cast<int64_t>(dead.size()));
    std::copy_n(dead.begin(), *out_count, ranks);
  });
}

constexpr otr_transport_plugin kTable = {
    .struct_size = sizeof(otr_transport_plugin),
    .version = OTR_TRANSPORT_PLUGIN_VERSION,
    .name = "mpi",
    .most_bytes = size_t{1} << 30,  // MPI counts in int
    .last_error = last_error,
    .describe = describe,
    .attach = attach,
    .duplicate = duplicate,
    .split = split,
    .place = place,
    .close = close,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .all_to_all = all_to_all,
    .smallest = smallest,
    .exchange = exchange,
    .test = test,
    .send_message = send_message,
    .receive_message = receive_message,
    .failed = failed,
};

}  // namespace

extern "C" OTR_API const otr_transport_plugin* otr_transport_plugin_table(void) { return &kTable; }

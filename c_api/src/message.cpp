// SPDX-License-Identifier: Apache-2.0
// Tensors in one buffer.
#include "core/message/message.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c_api/src/call_info.h"
#include "c_api/src/checkpoint_arguments.h"
#include "c_api/src/handles.h"
#include "c_api/src/structs.h"
#include "core/base/text.h"

using namespace outrigger;
using namespace outrigger::c_api;

namespace {

otr_message_options message_defaults() {
  otr_message_options o{};
  o.struct_size = sizeof o;
  return o;
}

message::Notes notes_of(const otr_message_options& o) {
  message::Notes notes;
  notes.micro_batch = o.micro_batch;
  if (o.tag != nullptr) {
    notes.tag = tag_of(read_call_info(o.tag, 0, true));
  }
  required_count(o.attribute_count, o.attributes, "message_options.attributes");
  for (int64_t i = 0; i < o.attribute_count; ++i) {
    const otr_message_attribute& given = o.attributes[i];
    if (given.name == nullptr || given.text == nullptr) {
      fail(OTR_E_ARGUMENT, "message_options.attributes[{}]: its name or text is NULL", i);
    }
    if (!notes.attributes.emplace(given.name, given.text).second) {
      fail(OTR_E_ARGUMENT, "message_options.attributes[{}]: '{}' is there twice", i,
           printable(given.name));
    }
  }
  return notes;
}

std::vector<message::Tensor> tensors_of(const char* const* names, const otr_tensor* tensors,
                                        int64_t count) {
  required_count(count, names, "names");
  required_count(count, tensors, "tensors");
  std::vector<message::Tensor> all;
  all.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) fail(OTR_E_ARGUMENT, "names[{}] is NULL", i);
    all.push_back({names[i], tensors[i]});
  }
  return all;
}

// Written by pack and seal alone, whose memory is not const.
std::span<std::byte> bytes_of(const void* buffer, size_t size) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(buffer));
  if (bytes == nullptr) fail(OTR_E_ARGUMENT, "the message's memory is NULL");
  if (reinterpret_cast<uintptr_t>(bytes) % 8 != 0) {
    fail(OTR_E_ARGUMENT,
         "the message's memory is at {}, which is no multiple of 8: tensors would not be aligned; "
         "copy it",
         fmt::ptr(buffer));
  }
  return {bytes, size};
}

size_t required_index(int64_t index, size_t size, const char* what) {
  if (index < 0 || index >= static_cast<int64_t>(size)) {
    fail(OTR_E_NOT_FOUND, "{} {} of {}", what, index, size);
  }
  return static_cast<size_t>(index);
}

std::span<const int64_t> rows_of(const int64_t* rows, int32_t ranks, const char* what) {
  return {rows, static_cast<size_t>(required_count(ranks, rows, what))};
}

}  // namespace

int32_t otr_message_options_init(otr_message_options* options, size_t size) noexcept {
  return init_struct(options, size, message_defaults(), "options");
}

int32_t otr_message_pack(const char* const* names, const otr_tensor* tensors, int64_t count,
                         const otr_message_options* options, void* buffer,
                         size_t* inout_size) noexcept {
  return guard([&] {
    const otr_message_options read = read_struct(options, message_defaults(), "message_options");
    const message::Packed packed(tensors_of(names, tensors, count), notes_of(read));
    const size_t room = std::exchange(required(inout_size, "inout_size"), packed.bytes());
    if (buffer == nullptr) return;
    if (room < packed.bytes()) {
      fail(OTR_E_BUFFER_SIZE, "{} bytes are needed; the buffer has {}", packed.bytes(), room);
    }
    packed.write(bytes_of(buffer, room).data());
  });
}

int32_t otr_message_seal(void* buffer, size_t size) noexcept {
  return guard([&] { message::seal(bytes_of(buffer, size)); });
}

int32_t otr_message_unpack(const void* data, size_t size, uint32_t flags,
                           otr_message** out_message) noexcept {
  return guard([&] {
    required(out_message, "out_message") = nullptr;
    if ((flags & ~uint32_t{OTR_MESSAGE_UNCHECKED}) != 0) {
      fail(OTR_E_ARGUMENT, "flags = {}; legal is 0 or OTR_MESSAGE_UNCHECKED ({})", flags,
           uint32_t{OTR_MESSAGE_UNCHECKED});
    }
    *out_message = new otr_message(std::make_shared<message::Message>(
        bytes_of(data, size), (flags & OTR_MESSAGE_UNCHECKED) == 0));
  });
}

void otr_message_destroy(otr_message* message) noexcept { destroy(message); }

int32_t otr_message_get_info(const otr_message* message, otr_message_info* out_info) noexcept {
  return guard([&] {
    const message::Message& m = *get(message, "message");
    fill_output(&required(out_info, "out_info"), "out_info", [&](otr_message_info& full) {
      full.micro_batch = m.notes().micro_batch;
      full.tensor_count = static_cast<int64_t>(m.entries().size());
      full.attribute_count = static_cast<int64_t>(m.notes().attributes.size());
      full.bytes = static_cast<int64_t>(m.bytes());
    });
  });
}

int32_t otr_message_get_tensor(const otr_message* message, const char* name,
                               otr_tensor* out_part) noexcept {
  return guard([&] {
    required(out_part, "out_part") = otr_tensor{};
    *out_part = get(message, "message")->tensor(&required(name, "name"));
  });
}

int32_t otr_message_tensor_name(const otr_message* message, int64_t index,
                                const char** out_name) noexcept {
  return guard([&] {
    required(out_name, "out_name") = nullptr;
    const auto& entries = get(message, "message")->entries();
    *out_name = entries[required_index(index, entries.size(), "tensor")].name.c_str();
  });
}

int32_t otr_message_get_tag(const otr_message* message, otr_call_info* info) noexcept {
  return guard([&] {
    const tensor::Tag tag = get(message, "message")->notes().tag;
    required(info, "info");
    require_size<otr_call_info>(info->struct_size, "info");
    info->loss_scale = tag.loss_scale;
    info->accumulation = tag.accumulation;
    info->ranks = tag.ranks;
  });
}

int32_t otr_message_attribute_name(const otr_message* message, int64_t index,
                                   const char** out_name) noexcept {
  return guard([&] {
    required(out_name, "out_name") = nullptr;
    const message::Attributes& all = get(message, "message")->notes().attributes;
    const size_t place = required_index(index, all.size(), "attribute");
    *out_name = std::next(all.begin(), static_cast<std::ptrdiff_t>(place))->first.c_str();
  });
}

int32_t otr_message_get_attribute(const otr_message* message, const char* name,
                                  const char** out_text) noexcept {
  return guard([&] {
    required(out_text, "out_text") = nullptr;
    const message::Attributes& all = get(message, "message")->notes().attributes;
    const auto found = all.find(&required(name, "name"));
    if (found == all.end()) {
      fail(OTR_E_NOT_FOUND, "message has no attribute '{}' among its {}", printable(name),
           all.size());
    }
    *out_text = found->second.c_str();
  });
}

int32_t otr_message_routes(const int64_t* source_rows, int32_t source_ranks,
                           const int64_t* target_rows, int32_t target_ranks,
                           otr_message_route* routes, int64_t* inout_count) noexcept {
  return guard([&] {
    const auto all = message::routes(rows_of(source_rows, source_ranks, "source_rows"),
                                     rows_of(target_rows, target_ranks, "target_rows"));
    const auto size = static_cast<int64_t>(all.size());
    const int64_t room = std::exchange(required(inout_count, "inout_count"), size);
    if (routes == nullptr) return;
    if (room < size)
      fail(OTR_E_BUFFER_SIZE, "{} routes are needed; there is room for {}", size, room);
    std::ranges::transform(all, routes, [](const message::Route& r) {
      return otr_message_route{r.source, r.target, r.source_row, r.target_row, r.rows};
    });
  });
}

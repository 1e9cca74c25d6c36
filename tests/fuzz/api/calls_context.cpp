// SPDX-License-Identifier: Apache-2.0
// Contexts, and what needs no handle.
#include <atomic>

#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

void swallow(int32_t level, const char* text, void* user_data) {
  if (level < OTR_LOG_ERROR || level > OTR_LOG_DEBUG || text == nullptr || user_data == nullptr) {
    broken("the log callback got what it should not");
  }
}

// Now and then the host wants a wait to end.
int32_t wants_to_end(void* asked) {
  return static_cast<std::atomic<int32_t>*>(asked)->fetch_add(1) % 8 == 7 ? 1 : 0;
}

void create(Rank& rank, Bytes& bytes) {
  ContextPlace& place = rank.contexts.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  static int user_data;
  Roomy<otr_context_options> options;
  CALL(rank, otr_context_options_init, &options, sizeof(otr_context_options));
  options.workers = static_cast<int32_t>(bytes.below(3)) + 1;
  options.log_level = static_cast<int32_t>(bytes.below(5));
  if (bytes.one_in(2)) {
    options.log_callback = swallow;
    options.log_user_data = &user_data;
  }
  if (bytes.one_in(8)) {
    static std::atomic<int32_t> asked;
    options.interrupt_callback = wants_to_end;
    options.interrupt_user_data = &asked;
  }
  if (bytes.one_in(16)) options.workers = bytes.one_in(2) ? -1 : INT32_MAX;
  if (bytes.one_in(32)) options.mistake_size(bytes);
  Out<otr_context*> out(bytes);
  if (CALL(rank, otr_context_create, bytes.one_in(4) ? nullptr : &options, out) == OTR_OK) {
    place.handle = out.value;
  }
}

void destroy(Rank& rank, Bytes& bytes) { rank.drop(rank.contexts.pick(bytes)); }

template <typename Struct>
void init(Rank& rank, Bytes& bytes, const char* name, int32_t (*function)(Struct*, size_t)) {
  alignas(16) unsigned char room[4 * sizeof(Struct)];
  auto* out = reinterpret_cast<Struct*>(room);
  const size_t size = bytes.one_in(2) ? sizeof(Struct) : bytes.below(2 * sizeof(Struct));
  call(rank.trace, name, function, bytes.one_in(16) ? nullptr : out, size);
}

void structs(Rank& rank, Bytes& bytes) {
#define INIT(function) init(rank, bytes, #function, function)
  INIT(otr_call_info_init);
  INIT(otr_context_options_init);
  INIT(otr_comm_options_init);
  INIT(otr_comm_table_init);
  INIT(otr_param_options_init);
  INIT(otr_estimate_options_init);
  INIT(otr_offload_options_init);
  INIT(otr_shard_options_init);
#undef INIT
}

void tensor(Rank& rank, Bytes& bytes) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "float64",
                                    "int8",    "",         nullptr};
  int64_t shape[64] = {};
  for (int64_t& extent : shape) extent = static_cast<int64_t>(bytes.below(5)) - 1;
  const auto ndim = static_cast<int32_t>(bytes.below(67)) - 1;
  Out<otr_tensor> out(bytes);
  CALL(rank, otr_tensor_init, nullptr, bytes.pick(kNames), ndim,
       bytes.one_in(8) ? nullptr : &shape[0], out);
}

void static_texts(Rank&, Bytes& bytes) {
  if (otr_status_name(-static_cast<int32_t>(bytes.byte())) == nullptr ||
      otr_build_info() == nullptr || otr_version() == nullptr ||
      otr_abi_version() != OTR_ABI_VERSION) {
    broken("a static text is NULL");
  }
}

void config_check(Rank& rank, Bytes& bytes) {
  constexpr const char* kTexts[] = {nullptr,
                                    "",
                                    "{}",
                                    "{",
                                    R"({"zero_optimization": {"stage": 7}})",
                                    R"({"zero_optimization": {"stage": 2}})"};
  std::vector<char> buffer(bytes.one_in(2) ? 65536 : bytes.byte());
  size_t size = buffer.size();
  CALL(rank, otr_config_check, bytes.pick(kTexts), static_cast<int32_t>(bytes.below(4)),
       buffer.empty() || bytes.one_in(16) ? nullptr : buffer.data(),
       bytes.one_in(32) ? nullptr : &size);
}

void machine_info(Rank& rank, Bytes& bytes) {
  std::vector<char> buffer(bytes.one_in(2) ? 65536 : bytes.byte());
  size_t size = buffer.size();
  CALL(rank, otr_machine_info, buffer.empty() || bytes.one_in(16) ? nullptr : buffer.data(),
       bytes.one_in(32) ? nullptr : &size);
}

constexpr Call kCalls[] = {{"context create", Scope::local, 6, create},
                           {"context destroy", Scope::local, 2, destroy},
                           {"struct init", Scope::local, 1, structs},
                           {"tensor init", Scope::local, 1, tensor},
                           {"static texts", Scope::local, 1, static_texts},
                           {"config check", Scope::local, 1, config_check},
                           {"machine info", Scope::local, 1, machine_info}};

}  // namespace

std::span<const Call> context_calls() { return kCalls; }

}  // namespace otr_fuzz

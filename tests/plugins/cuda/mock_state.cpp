// SPDX-License-Identifier: Apache-2.0
#include "mock_state.h"

#include <unistd.h>

#include "mock.h"

namespace outrigger::cuda::mock {

State& state() {
  static auto* all = new State;  // never destroyed: a device is closed while the process ends
  return *all;
}

CUctx_st& context_of(int id) {
  const std::lock_guard lock(state().mutex);
  std::unique_ptr<CUctx_st>& context = state().contexts[id];
  if (!context) context = std::make_unique<CUctx_st>(CUctx_st{id, 0, nullptr});
  if (!context->device) {
    context->device = std::make_unique<simulated::Device>(id, state().pages);
  }
  return *context;
}

Stack& stack() {
  thread_local Stack contexts;
  return contexts;
}

Result turn_of(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.calls;
  if (s.process != 0 && s.process != getpid()) return kNotInitialized;
  const auto failing = s.failing.find(name);
  if (failing != s.failing.end()) return failing->second;
  if (s.fail_in == 0 || --s.fail_in > 0) return kSuccess;
  s.failed = name;
  return s.fail_with;
}

void end_work() {
  std::vector<simulated::Device*> devices;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& [id, context] : state().contexts) {
      if (context->device) devices.push_back(context->device.get());
    }
  }
  for (simulated::Device* device : devices) device->drain();
}

bool gives_back(std::string_view name) {
  for (const char* word : {"Destroy", "Free", "Unload", "Unregister", "Release"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

Result result_of(const plugins::Failure& failure) {
  switch (failure.status) {
    case OTR_E_OUT_OF_MEMORY:
      return kOutOfMemory;
    case OTR_E_DEVICE_FAULT: {
      const std::lock_guard lock(state().mutex);
      state().why_lost_ = "unspecified launch failure: " + failure.text;
      return kLaunchFailed;
    }
    case OTR_E_DEVICE:
      return kInvalidHandle;
    default:
      return kInvalidValue;
  }
}

uint64_t number_of(const CUctx_st& context, Stream stream) {
  if (reinterpret_cast<uintptr_t>(stream) <= kPerThreadStream) return 0;
  const std::lock_guard lock(state().mutex);
  if (!state().streams.contains(stream) || stream->context != &context) {
    plugins::fail(OTR_E_DEVICE, "no stream of this context");
  }
  return stream->number;
}

namespace {

thread_local std::string mock_text;

double held(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  const State& s = state();
  const auto of = [](const auto& all) { return static_cast<double>(all.size()); };
  if (name == "streams") return of(s.streams);
  if (name == "events") return of(s.events);
  if (name == "pools") return of(s.pools);
  if (name == "modules") return of(s.modules);
  if (name == "registrations") return static_cast<double>(s.pages->ranges());
  if (name == "calls") return static_cast<double>(s.calls);
  if (name == "most_blocks") return static_cast<double>(s.most_blocks);
  if (name == "depth") return of(stack());
  double contexts = 0;
  auto bytes = static_cast<double>(s.left_bytes);
  for (const auto& [id, context] : s.contexts) {
    contexts += context->retained;
    if (context->device) bytes += static_cast<double>(context->device->allocated_bytes());
  }
  return name == "contexts" ? contexts : name == "bytes" ? bytes : -1;
}

template <typename Body>
int32_t with_text(const Body& body) {
  try {
    body();
    return OTR_OK;
  } catch (const plugins::Failure& failure) {
    mock_text = failure.text;
    return failure.status;
  }
}

}  // namespace
}  // namespace outrigger::cuda::mock

using outrigger::cuda::mock::context_of;
using outrigger::cuda::mock::state;

extern "C" {

OTR_API bool otr_mock_cuda_set(const char* name, double value) {
  const std::lock_guard lock(state().mutex);
  const auto number = static_cast<int>(value);
  const std::string key = name;
  if (key == "fail_in") {
    state().fail_in = number;
    state().failed.clear();
    return true;
  }
  int* const to = key == "devices"        ? &state().devices
                  : key == "capability"   ? &state().capability
                  : key == "memory_pools" ? &state().memory_pools
                  : key == "version"      ? &state().version
                  : key == "fail_with"    ? &state().fail_with
                                          : nullptr;
  if (to != nullptr) *to = number;
  return to != nullptr;
}

OTR_API double otr_mock_cuda_get(const char* name) { return outrigger::cuda::mock::held(name); }

OTR_API void otr_mock_cuda_fail(const char* function, int result) {
  const std::lock_guard lock(state().mutex);
  if (result == 0) {
    state().failing.erase(function);
  } else {
    state().failing[function] = result;
  }
}

OTR_API const char* otr_mock_cuda_failed() { return state().failed.c_str(); }

OTR_API int32_t otr_mock_cuda_device_set(int32_t id, const char* name, double value) {
  return outrigger::cuda::mock::with_text([&] { context_of(id).device->set_value(name, value); });
}
OTR_API int32_t otr_mock_cuda_device_get(int32_t id, const char* name, double* out) {
  return outrigger::cuda::mock::with_text([&] { *out = context_of(id).device->value(name); });
}
OTR_API const char* otr_mock_cuda_text() { return outrigger::cuda::mock::mock_text.c_str(); }

}  // extern "C"

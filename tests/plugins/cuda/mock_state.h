// SPDX-License-Identifier: Apache-2.0
// What the mock driver's functions share.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/common/work.h"
#include "plugins/cuda/driver.h"
#include "plugins/simulated/device.h"

namespace outrigger::cuda {

struct CUstream_st {
  CUctx_st* context;
  uint64_t number;
  int priority;
};
struct CUevent_st {
  CUctx_st* context;
  std::shared_ptr<simulated::Recorded> at;  // null: not recorded yet
};
struct CUmemPoolHandle_st {
  CUctx_st* context;
};
struct CUfunc_st {
  int kernel;
};
struct CUmod_st {
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};
// A primary context, whether it is retained or not. Whoever retains it first has a new device.
struct CUctx_st {
  int id;
  int retained = 0;
  std::unique_ptr<simulated::Device> device;
};

namespace mock {

struct State {
  std::mutex mutex;  // guards all that follows
  std::shared_ptr<simulated::Pages> pages = std::make_shared<simulated::Pages>();
  std::map<int, std::unique_ptr<CUctx_st>> contexts;  // one for each device that was asked for
  std::set<Stream> streams;
  std::set<Event> events;
  std::set<Pool> pools;
  std::set<Module> modules;
  std::map<void*, size_t> host_memory;  // of cuMemHostAlloc
  int devices = 8, capability = 90, version = 13000, memory_pools = 1;
  int64_t calls = 0, fail_in = 0, most_blocks = 0;
  size_t left_bytes = 0;  // of memory that was not freed before its context's end
  Result fail_with = 0;
  std::string failed;
  std::map<std::string, Result> failing;
  int process = 0;        // which has initialised the driver
  std::string why_lost_;  // of a device, for cuGetErrorString
};
State& state();

CUctx_st& context_of(int id);
// A thread's contexts. No vector: a device is closed while the process ends, when those of the main
// thread's thread_local objects that have destructors are gone.
class Stack {
 public:
  [[nodiscard]] bool empty() const { return depth_ == 0; }
  [[nodiscard]] size_t size() const { return depth_; }
  [[nodiscard]] Context back() const { return contexts_[depth_ - 1]; }
  void push(Context context) { contexts_.at(depth_++) = context; }
  void pop() { --depth_; }

 private:
  std::array<Context, 64> contexts_{};
  size_t depth_ = 0;
};
Stack& stack();  // of this thread

// Counts the call and lets it fail if it is its turn; kSuccess: it is not.
Result turn_of(const char* name);
// A context that has ended writes nothing any more, which its host hears first: what was on its way
// is at its end.
void end_work();
bool gives_back(std::string_view name);
Result result_of(const plugins::Failure& failure);

// What gives something back does it, whatever it then tells.
template <typename Body>
Result called(const char* name, const Body& body) {
  const Result result = turn_of(name);
  if (result == kIllegalAddress || result == kLaunchFailed) end_work();
  if (result != kSuccess && !gives_back(name)) return result;
  try {
    const Result of_body = body();
    return result != kSuccess ? result : of_body;
  } catch (const plugins::Failure& failure) {
    return result_of(failure);
  }
}

// body(the current context)
template <typename Body>
Result called_in(const char* name, const Body& body) {
  return called(name, [&]() -> Result {
    if (stack().empty()) return kInvalidContext;
    return body(*stack().back());
  });
}

// Of a stream of this context, or of a default one; throws for another.
uint64_t number_of(const CUctx_st& context, Stream stream);

Result launch(CUctx_st& context, int kernel, unsigned blocks, unsigned threads, Stream stream,
              const void* arguments);

}  // namespace mock
}  // namespace outrigger::cuda

#define OTR_CUDA_DECLARE(symbol, ...) \
  extern "C" __attribute__((visibility("default"))) outrigger::cuda::Result symbol(__VA_ARGS__);
namespace outrigger::cuda {
OTR_CUDA_FUNCTIONS(OTR_CUDA_DECLARE)
}
#undef OTR_CUDA_DECLARE

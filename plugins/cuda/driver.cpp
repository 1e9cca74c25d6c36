// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "plugins/common/work.h"

namespace outrigger::cuda {
namespace {

constexpr const char* kVariable = "OTR_CUDA_DRIVER";
constexpr const char* kLibrary = "libcuda.so.1";

template <typename... Parameters>
void find(void* object, Entry<Parameters...>& entry, std::string& missing) {
  entry.at = reinterpret_cast<Result (*)(Parameters...)>(dlsym(object, entry.name));
  if (entry.at == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(entry.name);
}

std::unique_ptr<Driver> load() {
  const char* variable = std::getenv(kVariable);
  const bool is_named = variable != nullptr && *variable != '\0';
  auto loaded = std::make_unique<Driver>();
  loaded->path = is_named ? variable : kLibrary;
  void* object = dlopen(loaded->path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (object == nullptr) {
    const char* reason = dlerror();
    plugins::fail(OTR_E_NOT_FOUND,
                  std::string("there is no CUDA driver; tried: ") +
                      (reason == nullptr ? loaded->path : reason) + " (" + kVariable +
                      (is_named ? " names it" : " is not set, so it is the system's") +
                      "). Install NVIDIA's driver, or set " + kVariable +
                      " to the path of its libcuda.so.1");
  }
  std::string missing;
#define OTR_CUDA_FIND(symbol, ...) find(object, loaded->symbol, missing);
  OTR_CUDA_FUNCTIONS(OTR_CUDA_FIND)
#undef OTR_CUDA_FIND
  if (!missing.empty()) {
    plugins::fail(OTR_E_UNSUPPORTED, loaded->path + " has no " + missing +
                                         ": it is no CUDA driver, or one from before CUDA 11.2; "
                                         "install a driver of release 460 or later");
  }
  const auto require = [&](const char* call, Result result) {
    if (result != kSuccess) {
      plugins::fail(status_of(result), text_of(*loaded, call, result) + " (" + loaded->path + ")");
    }
  };
  require("cuInit", loaded->cuInit.at(0));
  require("cuDriverGetVersion", loaded->cuDriverGetVersion.at(&loaded->version));
  return loaded;
}

}  // namespace

const Driver& driver() {
  static std::mutex mutex;
  static const Driver* loaded = nullptr;  // guarded by the mutex, as the next is; never destroyed
  static pid_t process = 0;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    loaded = load().release();
    process = getpid();
  }
  if (process != getpid()) {
    plugins::fail(OTR_E_STATE,
                  "process " + std::to_string(process) +
                      " had initialised CUDA before it forked this one, which CUDA does not "
                      "allow: fork first, or start a new program");
  }
  return *loaded;
}

std::string text_of(const Driver& driver, const char* call, Result result) {
  const char *name = nullptr, *text = nullptr;
  static_cast<void>(driver.cuGetErrorName.at(result, &name));
  static_cast<void>(driver.cuGetErrorString.at(result, &text));
  return std::string(call) + ": " + (name == nullptr ? "an error without a name" : name) + " (" +
         std::to_string(result) + ")" + (text == nullptr ? "" : std::string(", ") + text);
}

bool is_final(Result result) {
  for (const Result each :
       {kEccUncorrectable, kNvlinkUncorrectable, kContained, kIllegalAddress, kLaunchTimeout,
        kContextIsDestroyed, kAssert, kHardwareStackError, kIllegalInstruction, kMisalignedAddress,
        kInvalidAddressSpace, kInvalidPc, kLaunchFailed, kUnknown}) {
    if (result == each) return true;
  }
  return false;
}

int32_t status_of(Result result) {
  if (is_final(result)) return OTR_E_DEVICE_FAULT;
  switch (result) {
    case kInvalidValue:
    case kInvalidDevice:
    case kInvalidHandle:
      return OTR_E_ARGUMENT;
    case kOutOfMemory:
      return OTR_E_OUT_OF_MEMORY;
    case kNoDevice:
      return OTR_E_NOT_FOUND;
    case kInvalidImage:
    case kNoBinaryForGpu:
    case kInvalidPtx:
    case kUnsupportedPtxVersion:
    case kNotSupported:
      return OTR_E_UNSUPPORTED;
    default:
      return OTR_E_SYSTEM;
  }
}

}  // namespace outrigger::cuda

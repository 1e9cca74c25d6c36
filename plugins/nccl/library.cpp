// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "plugins/common/work.h"

namespace outrigger::nccl {
namespace {

constexpr const char* kVariable = "OTR_NCCL_LIBRARY";
constexpr const char* kLibrary = "libnccl.so.2";

template <typename Function>
void find(void* object, const char* name, Function*& function, std::string& missing) {
  function = reinterpret_cast<Function*>(dlsym(object, name));
  if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
}

std::string text_of_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::unique_ptr<Library> load() {
  const char* variable = std::getenv(kVariable);
  const bool is_named = variable != nullptr && *variable != '\0';
  auto loaded = std::make_unique<Library>();
  loaded->path = is_named ? variable : kLibrary;
  void* object = dlopen(loaded->path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (object == nullptr) {
    const char* reason = dlerror();
    plugins::fail(OTR_E_NOT_FOUND,
                  std::string("there is no NCCL; tried: ") +
                      (reason == nullptr ? loaded->path : reason) + " (" + kVariable +
                      (is_named ? " names it" : " is not set, so it is the system's") +
                      "). Install NCCL 2.18 or later, or set " + kVariable +
                      " to the path of its libnccl.so.2; the Python package nvidia-nccl-cu13 has "
                      "one in nvidia/nccl/lib");
  }
  std::string missing, newer;
#define OTR_NCCL_FIND(symbol, ...) find(object, loaded->symbol.name, loaded->symbol.at, missing);
  OTR_NCCL_FUNCTIONS(OTR_NCCL_FIND)
#undef OTR_NCCL_FIND
#define OTR_NCCL_FIND(symbol, ...) find(object, loaded->symbol.name, loaded->symbol.at, newer);
  OTR_NCCL_NEWER_FUNCTIONS(OTR_NCCL_FIND)
#undef OTR_NCCL_FIND
  find(object, "ncclGetErrorString", loaded->error_string, missing);
  find(object, "ncclGetLastError", loaded->last_error, missing);
  if (!missing.empty()) {
    plugins::fail(OTR_E_UNSUPPORTED, loaded->path + " has no " + missing +
                                         ": it is no NCCL, or one from before 2.18; install NCCL "
                                         "2.18 or later");
  }
  const Result result = loaded->ncclGetVersion.at(&loaded->version);
  if (result != kSuccess) {
    plugins::fail(status_of(result),
                  text_of(*loaded, "ncclGetVersion", result, nullptr) + " (" + loaded->path + ")");
  }
  if (loaded->version < kLeastVersion) {
    plugins::fail(OTR_E_UNSUPPORTED, loaded->path + " is NCCL " + text_of_version(loaded->version) +
                                         "; install 2.18 or later");
  }
  return loaded;
}

}  // namespace

const Library& library() {
  static std::mutex mutex;
  static const Library* loaded = nullptr;  // guarded by the mutex; never destroyed
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = load().release();
  return *loaded;
}

std::string text_of(const Library& library, const char* call, Result result,
                    Communicator communicator) {
  const char* const what = library.error_string(result);
  const char* const more = library.last_error(communicator);
  return std::string(call) + ": " + (what == nullptr ? "an error without a name" : what) + " (" +
         std::to_string(result) + ")" +
         (more == nullptr || *more == '\0' ? "" : std::string(", ") + more);
}

int32_t status_of(Result result) {
  switch (result) {
    case kUnhandledCudaError:
      return OTR_E_DEVICE_FAULT;
    case kInvalidArgument:
    case kInvalidUsage:
      return OTR_E_ARGUMENT;
    case kRemoteError:
      return OTR_E_PEER_DEAD;
    default:
      return OTR_E_SYSTEM;
  }
}

}  // namespace outrigger::nccl

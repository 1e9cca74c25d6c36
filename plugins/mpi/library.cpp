// SPDX-License-Identifier: Apache-2.0
#include "plugins/mpi/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "plugins/common/work.h"

namespace outrigger::mpi {
namespace {

constexpr const char* kVariable = "OTR_MPI_LIBRARY";
constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr std::array kMpich = {"libmpi.so.12", "libmpich.so.12"};
constexpr std::array kStandard = {"libmpi_abi.so.1", "libmpi_abi.so.0"};

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// By name, first the one that fits the launcher.
std::vector<std::string> candidates() {
  std::vector<std::string> others(kStandard.begin(), kStandard.end());
  others.insert(others.end(), kMpich.begin(), kMpich.end());
  std::vector<std::string> all{kOpenMpi};
  const bool others_first = is_set("PMI_RANK") || is_set("PMI_SIZE");
  all.insert(others_first ? all.begin() : all.end(), others.begin(), others.end());
  return all;
}

struct Object {
  void* handle;
  std::string path;
};

Object named(void* handle, const std::string& asked_for) {
  const link_map* map = nullptr;
  const bool is_known =
      dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr && *map->l_name != '\0';
  return {handle, is_known ? map->l_name : asked_for};
}

template <typename Function>
Function* find(void* object, const char* name) {
  return reinterpret_cast<Function*>(dlsym(object, name));
}

bool is_initialised(void* object) {
  auto* const initialized = find<int(int*)>(object, "MPI_Initialized");
  int flag = 0;
  return initialized != nullptr && initialized(&flag) == 0 && flag != 0;
}

// What this process has loaded already: the program itself, or a library of the usual names, best
// one that is in use.
std::optional<Object> loaded_already() {
  void* const program = dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  if (is_initialised(program)) {
    Dl_info info{};
    const bool is_known = dladdr(dlsym(program, "MPI_Initialized"), &info) != 0;
    return Object{program, is_known && info.dli_fname != nullptr ? info.dli_fname : "the program"};
  }
  std::optional<Object> first;
  for (const std::string& name : candidates()) {
    void* const object = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
    if (object == nullptr) continue;
    if (is_initialised(object)) return named(object, name);
    if (!first) first = named(object, name);
  }
  return first;
}

Object open_library() {
  const bool is_named = is_set(kVariable);
  if (!is_named) {
    if (auto found = loaded_already()) return *found;
  }
  std::string tried;
  for (const std::string& name :
       is_named ? std::vector<std::string>{std::getenv(kVariable)} : candidates()) {
    void* const object = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object != nullptr) return named(object, name);
    const char* reason = dlerror();
    tried += (tried.empty() ? "" : "; ") + (reason == nullptr ? name : std::string(reason));
  }
  plugins::fail(
      OTR_E_NOT_FOUND,
      "there is no MPI library; tried: " + tried + " (" + kVariable +
          (is_named ? " names it" : " is not set, so they are the system's") +
          "). Install Open MPI or MPICH, or set " + kVariable +
          " to the path of the library that belongs to your launcher: libmpi.so.40 of Open MPI, "
          "libmpi.so.12 of MPICH and its kin, or libmpi_abi.so of any");
}

template <typename Handle>
Mpi<Handle> bind(const Object& object, const Constants<Handle>& constants) {
  Mpi<Handle> mpi;
  std::string missing;
#define OTR_MPI_FIND(symbol, ...)                              \
  mpi.symbol = find<int(__VA_ARGS__)>(object.handle, #symbol); \
  if (mpi.symbol == nullptr) missing += std::string(missing.empty() ? "" : ", ") + #symbol;
  OTR_MPI_FUNCTIONS(OTR_MPI_FIND)
#undef OTR_MPI_FIND
#define OTR_MPI_FIND(symbol, ...) mpi.symbol = find<int(__VA_ARGS__)>(object.handle, #symbol);
  OTR_MPI_FAILURE_FUNCTIONS(OTR_MPI_FIND)
#undef OTR_MPI_FIND
  if (!missing.empty()) {
    plugins::fail(OTR_E_UNSUPPORTED, object.path + " has no " + missing +
                                         ": it is no MPI, or one from before MPI 3; install "
                                         "Open MPI or MPICH");
  }
  mpi.constants = constants;
  mpi.path = object.path;
  return mpi;
}

bool is_standard(const std::string& path) {
  return path.substr(path.rfind('/') + 1).find("mpi_abi") != std::string::npos;
}

pid_t initialised_by = 0;  // the process in which this plugin called MPI_Init_thread
std::atomic<bool> unfinished{false};
std::atomic<const Library*> current{nullptr};  // never destroyed

std::atomic<void (*)()> farewell{nullptr};

void say_farewell() {
  if (void (*const once)() = farewell.exchange(nullptr)) once();
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first.
template <typename Handle>
void hear_of_finalize(const Mpi<Handle>& mpi) {
  int key = 0;
  const auto copied = [](Handle, int, void*, void*, void*, int* flag) { return *flag = 0; };
  const auto deleted = [](Handle, int, void*, void*) {
    say_farewell();
    return 0;
  };
  mpi.MPI_Comm_create_keyval(copied, deleted, &key, nullptr);
  mpi.MPI_Comm_set_attr(mpi.constants.comm_self, key, nullptr);
}

void finish() {
  if (initialised_by != getpid() || !is_running()) return;
  say_farewell();
  if (unfinished) return;
  std::visit([](const auto& mpi) { mpi.MPI_Finalize(); }, *current.load());
}

// Initialised, with a level of threads that an engine can work with.
template <typename Handle>
void make_ready(Mpi<Handle>& mpi) {
  int flag = 0;
  mpi.MPI_Finalized(&flag);
  if (flag != 0) {
    plugins::fail(OTR_E_STATE, "MPI_Finalize was called (" + mpi.path +
                                   "); create communicators before, and destroy them before it");
  }
  mpi.MPI_Initialized(&flag);
  int level = 0;
  if (flag == 0) {
    const int error = mpi.MPI_Init_thread(nullptr, nullptr, mpi.constants.multiple, &level);
    if (error != 0) {
      plugins::fail(OTR_E_SYSTEM,
                    "MPI_Init_thread of " + mpi.path + " returned " + std::to_string(error));
    }
    initialised_by = getpid();
    static_cast<void>(std::atexit(finish));  // a process that ends without it fails its job
  } else {
    mpi.MPI_Query_thread(&level);
  }
  if (level < mpi.constants.serialized) {
    plugins::fail(
        OTR_E_UNSUPPORTED,
        "MPI was initialised without threads (" + mpi.path +
            "), and an engine reduces gradients on a thread of its own: ask "
            "MPI_Init_thread for MPI_THREAD_MULTIPLE, or leave the initialisation to "
            "Outrigger (mpi4py: mpi4py.rc.thread_level = 'multiple', which is its default)");
  }
  mpi.takes_turns = level < mpi.constants.multiple;
  static std::mutex turns;
  mpi.turns = &turns;
  hear_of_finalize(mpi);
  std::array<char, 8192> text{};  // the longest of any library
  int length = 0;
  mpi.MPI_Get_library_version(text.data(), &length);
  mpi.version = text.data();
  mpi.version.resize(std::min(mpi.version.find_first_of("\n\r"), mpi.version.size()));
}

template <typename Handle>
std::unique_ptr<const Library> ready(Mpi<Handle> mpi) {
  make_ready(mpi);
  return std::make_unique<const Library>(std::move(mpi));
}

std::unique_ptr<const Library> load() {
  const Object object = open_library();
  if (dlsym(object.handle, "ompi_mpi_comm_world") != nullptr) {
    static void* library;
    library = object.handle;
    // Of its variables a program may have copies, which count (by copy relocation).
    return ready(bind(object, open_mpi_constants([](const char* name) {
                        void* const global = dlsym(RTLD_DEFAULT, name);
                        return global == nullptr ? dlsym(library, name) : global;
                      })));
  }
  if (is_standard(object.path)) return ready(bind(object, standard_constants()));
  return ready(bind(object, mpich_constants()));
}

}  // namespace

Constants<void*> open_mpi_constants(void* (*at)(const char* name)) {
  return {.comm_world = at("ompi_mpi_comm_world"),
          .comm_self = at("ompi_mpi_comm_self"),
          .byte = at("ompi_mpi_byte"),
          .uint64 = at("ompi_mpi_uint64_t"),
          .min = at("ompi_mpi_op_min"),
          .errors_return = at("ompi_mpi_errors_return"),
          .request_null = at("ompi_request_null"),
          .status_ignore = nullptr,
          .in_place = reinterpret_cast<void*>(1),
          .serialized = 2,
          .multiple = 3,
          .any_source = -1,
          .failed = 75,
          .failed_pending = 76};
}

Constants<void*> standard_constants() {
  const auto handle = [](uintptr_t value) { return reinterpret_cast<void*>(value); };
  return {.comm_world = handle(0x101),
          .comm_self = handle(0x102),
          .byte = handle(0x247),
          .uint64 = handle(0x259),
          .min = handle(0x22),
          .errors_return = handle(0x143),
          .request_null = handle(0x180),
          .status_ignore = nullptr,
          .in_place = handle(1),
          .serialized = 2048,
          .multiple = 4096,
          .any_source = -1,
          .failed = 58,  // MPI_ERR_PROC_ABORTED
          .failed_pending = 58};
}

Constants<int> mpich_constants() {
  return {.comm_world = 0x44000000,
          .comm_self = 0x44000001,
          .byte = 0x4c00010d,
          .uint64 = 0x4c00083e,
          .min = 0x58000002,
          .errors_return = 0x54000001,
          .request_null = 0x2c000000,
          .status_ignore = reinterpret_cast<void*>(1),
          .in_place = reinterpret_cast<void*>(-1),
          .serialized = 2,
          .multiple = 3,
          .any_source = -2,
          .failed = 101,
          .failed_pending = 102};
}

const Library& library() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (current == nullptr) current = load().release();
  return *current.load();
}

bool is_running() {
  const Library* const loaded = current;
  if (loaded == nullptr) return false;
  int finalized = 0;
  std::visit([&](const auto& mpi) { mpi.MPI_Finalized(&finalized); }, *loaded);
  return finalized == 0;
}

void set_farewell(void (*function)()) { farewell = function; }

bool is_unfinished() { return unfinished; }

void leave_unfinished() { unfinished = true; }

}  // namespace outrigger::mpi

// SPDX-License-Identifier: Apache-2.0
// A host that loads the library, uses it and closes it again, many times over: a plug-in manager, a
// notebook that reloads its modules.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "outrigger.h"

namespace {

size_t entries_of(const char* folder) {
  size_t count = 0;
  DIR* dir = opendir(folder);
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t mapped = 0, resident = 0;
  file >> mapped >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class Library {
 public:
  Library() : handle_(dlopen(OTR_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Library() { EXPECT_EQ(dlclose(handle_), 0) << dlerror(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  Function* find(const char* name, Function*) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

#define CALL(function) library.find(#function, decltype(&(function)){})
#define NEED(function, ...) ASSERT_EQ(CALL(function)(__VA_ARGS__), OTR_OK)

void use(const Library& library) {
  float values[600] = {};
  int64_t shape[1] = {600}, id = 0;
  otr_context* context = nullptr;
  otr_comm* comm = nullptr;
  otr_engine* engine = nullptr;
  otr_pass* pass = nullptr;
  otr_tensor tensor;
  otr_context_options options;
  NEED(otr_context_options_init, &options, sizeof options);
  options.workers = 3;
  NEED(otr_context_create, &options, &context);
  NEED(otr_comm_create_self, context, &comm);
  NEED(otr_engine_create, comm, "{\"zero_optimization\": {\"stage\": 2}}", &engine);
  NEED(otr_tensor_init, values, "float32", 1, shape, &tensor);
  NEED(otr_engine_add_parameter, engine, "w", &tensor, nullptr, &id);
  NEED(otr_engine_commit, engine);
  NEED(otr_pass_begin, engine, nullptr, 0, nullptr, &pass);
  NEED(otr_pass_add_grad, pass, id, &tensor, nullptr);
  NEED(otr_pass_end, pass);
  NEED(otr_engine_step_begin, engine);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  NEED(otr_engine_report, engine, -1, &report);
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  CALL(otr_pass_destroy)(pass);
  CALL(otr_engine_destroy)(engine);
  CALL(otr_comm_destroy)(comm);
  CALL(otr_context_destroy)(context);
}

TEST(Reload, AHundredTimes) {
  size_t threads = 0, files = 0;
  [[maybe_unused]] int64_t resident = 0;  // a sanitizer has memory of its own
  for (int i = 0; i < 100; ++i) {
    {
      const Library library;
      use(library);
    }
    if (i != 20) continue;  // the first ones fill caches, the C library's among them
    threads = entries_of("/proc/self/task");
    files = entries_of("/proc/self/fd");
    resident = resident_bytes();
  }
  for (int i = 0; i < 200 && entries_of("/proc/self/task") > threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // joined, but still listed
  }
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes() - resident, 1 << 20) << "80 more engines";
#endif
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// What tests of the NCCL plugin share: its table, the mock library behind it, and ranks as threads
// on a device each.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda_support.h"
#include "mock_nccl.h"
#include "outrigger_plugin.h"

namespace otr_test {

struct MockNccl {
  decltype(&otr_mock_nccl_set) set;
  decltype(&otr_mock_nccl_get) get;
  decltype(&otr_mock_nccl_failed) failed;
};
// Of the library that OTR_NCCL_LIBRARY names to the plugin.
const MockNccl& mock_nccl();
// Communicators, registrations and bytes that the library holds.
std::map<std::string, double> held_by_nccl();
void expect_nothing_held_by_nccl();

const otr_collective_plugin& nccl_table();

// One rank: device number `rank`, a stream, and its end of a communicator.
class NcclRank {
 public:
  NcclRank(int32_t rank, int32_t world, const std::vector<unsigned char>& id);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  // Device memory, freed at the end, with the stream's earlier work done before it is used.
  template <typename T>
  T* put(const std::vector<T>& values) {
    void* const data = allocate(values.size() * sizeof(T));
    upload(data, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(data);
  }
  template <typename T>
  std::vector<T> get(const T* data, size_t count) {
    std::vector<T> values(count);
    download(values.data(), data, count * sizeof(T));
    return values;
  }
  void* allocate(size_t bytes);
  // OTR_OK once it is ready; or what it fails with.
  int32_t ready() const;
  // … or throws.
  void need_ready() const;

  const int32_t rank, world;
  otr_plugin_device* device = nullptr;
  otr_plugin_collective* collective = nullptr;
  uint64_t stream = 0;

 private:
  void upload(void* to, const void* from, size_t bytes);
  void download(void* to, const void* from, size_t bytes);
  std::vector<void*> allocated_;
};

std::vector<unsigned char> new_id();
// A thread for each rank. What one throws fails the test.
void on_ranks(int32_t world, const std::function<void(NcclRank&)>& body);

}  // namespace otr_test

// SPDX-License-Identifier: Apache-2.0
#include "nccl_support.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace otr_test {
namespace {

void need_of(const char* what, int32_t status, const char* text) {
  if (status != OTR_OK) throw Refused(status, std::string(what) + ": " + text);
}
void need_cuda(const char* what, int32_t status) {
  need_of(what, status, cuda_table().last_error());
}

}  // namespace

const MockNccl& mock_nccl() {
  static const MockNccl kMock = [] {
    void* object = dlopen(OTR_MOCK_NCCL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object == nullptr) throw std::runtime_error(dlerror());
    MockNccl mock{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(object, name));
    };
    find(mock.set, "otr_mock_nccl_set");
    find(mock.get, "otr_mock_nccl_get");
    find(mock.failed, "otr_mock_nccl_failed");
    return mock;
  }();
  return kMock;
}

std::map<std::string, double> held_by_nccl() {
  std::map<std::string, double> all;
  if (std::getenv("OTR_CUDA_DRIVER") == nullptr) return all;  // NCCL on a GPU does not tell
  for (const char* what : {"communicators", "registrations", "bytes"}) {
    all[what] = mock_nccl().get(what);
  }
  return all;
}

void expect_nothing_held_by_nccl() {
  for (const auto& [what, count] : held_by_nccl()) EXPECT_EQ(count, 0) << what;
}

const otr_collective_plugin& nccl_table() {
  static const otr_collective_plugin* const kTable = [] {
    const std::string path = std::string(std::getenv("OTR_PLUGIN_PATH")) + "/liboutrigger_nccl.so";
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<otr_collective_plugin_function>(
        dlsym(object, OTR_COLLECTIVE_PLUGIN_SYMBOL))();
  }();
  return *kTable;
}

std::vector<unsigned char> new_id() {
  std::vector<unsigned char> id(OTR_PLUGIN_ID_BYTES);
  need_of("create_id", nccl_table().create_id(id.data()), nccl_table().last_error());
  return id;
}

NcclRank::NcclRank(int32_t rank_, int32_t world_, const std::vector<unsigned char>& id)
    : rank(rank_), world(world_) {
  need_cuda("open", cuda_table().open(rank, &device));
  need_cuda("stream", cuda_table().stream_create(device, &stream));
  otr_plugin_ranks ranks{};
  ranks.struct_size = sizeof ranks;
  ranks.device_id = rank;
  ranks.rank = rank;
  ranks.world = world;
  std::memcpy(ranks.id, id.data(), id.size());
  const int32_t status = nccl_table().create(&ranks, &collective);
  if (status != OTR_OK) {
    const std::string text = nccl_table().last_error();
    cuda_table().stream_destroy(device, stream);
    cuda_table().close(device);
    need_of("create", status, text.c_str());
  }
}

NcclRank::~NcclRank() {
  if (collective != nullptr) nccl_table().close(collective);
  for (void* data : allocated_) {
    static_cast<void>(cuda_table().release(device, data, OTR_PLUGIN_NO_STREAM));
  }
  cuda_table().stream_destroy(device, stream);
  cuda_table().close(device);
}

void* NcclRank::allocate(size_t bytes) {
  void* data = nullptr;
  need_cuda("allocate", cuda_table().allocate(device, bytes, OTR_PLUGIN_NO_STREAM, &data));
  allocated_.push_back(data);
  return data;
}

int32_t NcclRank::ready() const {
  int32_t is_ready = 0;
  for (;;) {
    const int32_t status = nccl_table().is_ready(collective, &is_ready);
    if (status != OTR_OK || is_ready != 0) return status;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void NcclRank::need_ready() const { need_of("is_ready", ready(), nccl_table().last_error()); }

void NcclRank::upload(void* to, const void* from, size_t bytes) {
  need_cuda("copy", cuda_table().copy(device, to, from, bytes, OTR_PLUGIN_HOST_TO_DEVICE, stream));
  need_cuda("synchronize", cuda_table().stream_synchronize(device, stream));
}
void NcclRank::download(void* to, const void* from, size_t bytes) {
  need_cuda("copy", cuda_table().copy(device, to, from, bytes, OTR_PLUGIN_DEVICE_TO_HOST, stream));
  need_cuda("synchronize", cuda_table().stream_synchronize(device, stream));
}

// OTR_NCCL_RANKS: how many GPUs there are, one for each rank; only as many ranks are run.
void on_ranks(int32_t world, const std::function<void(NcclRank&)>& body) {
  const char* most = std::getenv("OTR_NCCL_RANKS");
  if (most != nullptr && world > std::atoi(most)) return;
  const std::vector<unsigned char> id = new_id();
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        NcclRank own(rank, world, id);
        own.need_ready();
        body(own);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << rank;
}

}  // namespace otr_test

// SPDX-License-Identifier: Apache-2.0
#include "cuda_support.h"

#include <dlfcn.h>

namespace otr_test {

const MockCuda& mock_cuda() {
  static const MockCuda kMock = [] {
    void* object = dlopen(OTR_MOCK_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object == nullptr) throw std::runtime_error(dlerror());
    MockCuda mock{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(object, name));
    };
    find(mock.set, "otr_mock_cuda_set");
    find(mock.get, "otr_mock_cuda_get");
    find(mock.fail, "otr_mock_cuda_fail");
    find(mock.failed, "otr_mock_cuda_failed");
    find(mock.device_set, "otr_mock_cuda_device_set");
    find(mock.device_get, "otr_mock_cuda_device_get");
    return mock;
  }();
  return kMock;
}

void expect_nothing_held() {
  for (const char* what :
       {"streams", "events", "pools", "modules", "contexts", "registrations", "bytes", "depth"}) {
    EXPECT_EQ(mock_cuda().get(what), 0) << what;
  }
}

namespace {

void need(int32_t status) {
  if (status != OTR_OK) throw Refused(status, otr_last_error_message());
}

// there: null on the host.
std::vector<Values> trained_in(Engine& engine, otr_context* there) {
  constexpr int64_t kCounts[] = {3000, 257, 40};
  std::vector<int64_t> ids;
  for (const int64_t count : kCounts) {
    const Tensor initial({count}, dyadic(count, 3));
    int64_t id = 0;
    need(otr_engine_add_parameter(engine.get(), ("w" + std::to_string(count)).c_str(), &initial,
                                  nullptr, &id));
    ids.push_back(id);
  }
  need(otr_engine_commit(engine.get()));
  std::vector<Values> all;
  for (int step = 0; step < 3; ++step) {
    otr_pass* pass = nullptr;
    need(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
    const Owned<otr_pass> owned(pass);
    for (size_t i = ids.size(); i-- > 0;) {
      const Tensor here({kCounts[i]}, dyadic(kCounts[i], 10 * step + static_cast<int>(i)));
      if (there == nullptr) {
        need(otr_pass_add_grad(pass, ids[i], &here, nullptr));
        continue;
      }
      otr_tensor grad = here.get();
      grad.device = cuda();
      need(otr_device_allocate(there, OTR_DEVICE_CUDA, 0, static_cast<size_t>(4 * kCounts[i]),
                               &grad.data));
      const std::shared_ptr<void> freed(grad.data, [there](void* data) {
        static_cast<void>(otr_device_free(there, OTR_DEVICE_CUDA, 0, data));
      });
      need(otr_tensor_copy(there, &grad, &here));
      need(otr_pass_add_grad(pass, ids[i], &grad, nullptr));
    }
    need(otr_pass_end(pass));
    otr_step_report report = OTR_STEP_REPORT_INIT;
    need(otr_engine_step(engine.get(), &report));
    all.push_back({report.grad_norm, static_cast<double>(report.updates),
                   static_cast<double>(report.vanished)});
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED}) {
      const Tensor out = Tensor::filled({kCounts[i]}, 0);
      need(otr_engine_parameter_read(engine.get(), ids[i], value, &out));
      all.push_back(out.values());
    }
  }
  need(otr_engine_finalize(engine.get()));
  return all;
}

}  // namespace

std::vector<Values> trained_on_host(otr_comm* comm, const std::string& config) {
  Engine engine(comm, config);
  return trained_in(engine, nullptr);
}

std::vector<Values> trained_on_cuda(otr_context* context, otr_comm* comm,
                                    const std::string& config) {
  Engine engine(comm, config);
  need(otr_engine_set_device(engine.get(), OTR_DEVICE_CUDA, 0));
  return trained_in(engine, context);
}

}  // namespace otr_test

// SPDX-License-Identifier: Apache-2.0
#include "cuda_support.h"

#include <dlfcn.h>

#include <cstdlib>

#include "plugin_table.h"

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

std::map<std::string, double> held() {
  std::map<std::string, double> all;
  if (std::getenv("OTR_CUDA_DRIVER") == nullptr) return all;  // a GPU's driver does not tell
  for (const char* what :
       {"streams", "events", "pools", "modules", "contexts", "registrations", "bytes", "depth"}) {
    all[what] = mock_cuda().get(what);
  }
  return all;
}

namespace {

std::map<std::string, double>& accepted() {
  static std::map<std::string, double> all;
  return all;
}

}  // namespace

void expect_nothing_held() {
  for (const auto& [what, count] : held()) EXPECT_EQ(count, accepted()[what]) << what;
}
void accept_what_is_held() { accepted() = held(); }

const otr_device_plugin& cuda_table() { return outrigger::cuda::table(); }

namespace {

void need(int32_t status) {
  if (status != OTR_OK) throw Refused(status, otr_last_error_message());
}

// Where a rank's gradients are, and whose they are. context: null on the host.
struct Place {
  otr_context* context;
  int32_t device, rank;
};

// A tensor on the device, as long as the object lives.
std::shared_ptr<void> put_there(const Place& place, const Tensor& here, otr_tensor& out) {
  otr_context* const there = place.context;
  const int32_t id = place.device;
  out = here.get();
  out.device = cuda(id);
  const auto bytes = static_cast<size_t>(4 * count_of({out.shape, out.shape + out.ndim}));
  need(otr_device_allocate(there, OTR_DEVICE_CUDA, id, bytes, &out.data));
  const std::shared_ptr<void> owner(out.data, [there, id](void* data) {
    static_cast<void>(otr_device_free(there, OTR_DEVICE_CUDA, id, data));
  });
  need(otr_tensor_copy(there, &out, &here));
  return owner;
}

Values gradient_of(const Shape& shape, int step, size_t parameter, int32_t rank) {
  return dyadic(count_of(shape), 10 * step + static_cast<int>(parameter) + 1000 * rank);
}

void step_once(const Engine& engine, const Place& there, const std::vector<Shape>& shapes, int step,
               std::vector<Values>& all) {
  otr_pass* pass = nullptr;
  need(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  for (size_t i = shapes.size(); i-- > 0;) {
    const Tensor here(shapes[i], gradient_of(shapes[i], step, i, there.rank));
    otr_tensor grad = here.get();
    const auto owner = there.context == nullptr ? nullptr : put_there(there, here, grad);
    need(otr_pass_add_grad(pass, static_cast<int64_t>(i), &grad, nullptr));
  }
  need(otr_pass_end(pass));
  otr_step_report report = OTR_STEP_REPORT_INIT;
  need(otr_engine_step(engine.get(), &report));
  all.push_back({report.grad_norm, static_cast<double>(report.updates),
                 static_cast<double>(report.vanished)});
}

std::vector<Values> trained_in(const Engine& engine, const Place& there, int small) {
  std::vector<Shape> shapes{{70, 90}, {257}, {40}};  // products of several tiles
  for (int i = 0; i < small; ++i) shapes.push_back({3 + i});
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Tensor initial(shapes[i], dyadic(count_of(shapes[i]), 3 + static_cast<int>(i)));
    int64_t id = 0;
    need(otr_engine_add_parameter(engine.get(), ("w" + std::to_string(i)).c_str(), &initial,
                                  nullptr, &id));
  }
  need(otr_engine_commit(engine.get()));
  std::vector<Values> all;
  for (int step = 0; step < 3; ++step) step_once(engine, there, shapes, step, all);
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED}) {
      const Tensor out = Tensor::filled(shapes[i], 0);
      need(otr_engine_parameter_read(engine.get(), static_cast<int64_t>(i), value, &out));
      all.push_back(out.values());
    }
  }
  need(otr_engine_finalize(engine.get()));
  return all;
}

}  // namespace

std::vector<Values> trained_on_host(otr_comm* comm, const std::string& config, int small) {
  const Engine engine(comm, config);
  int32_t rank = 0;
  need(otr_comm_rank(comm, &rank));
  return trained_in(engine, {nullptr, 0, rank}, small);
}

std::vector<Values> trained_on_cuda(otr_context* context, otr_comm* comm, const std::string& config,
                                    int small) {
  const Engine engine(comm, config);
  int32_t rank = 0;
  need(otr_comm_rank(comm, &rank));
  need(otr_engine_set_device(engine.get(), OTR_DEVICE_CUDA, rank));
  return trained_in(engine, {context, rank, rank}, small);
}

}  // namespace otr_test

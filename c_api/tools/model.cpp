// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "command.h"
#include "fault.h"
#include "machine.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// Where parameters are gathered or copied to be used, one is, and the next one is on its way.
int64_t two_largest(const std::vector<NamedShape>& shapes) {
  int64_t first = 0, second = 0;
  for (const NamedShape& parameter : shapes) {
    const int64_t count = std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                          int64_t{1}, std::multiplies<>());
    if (count > first) {
      second = std::exchange(first, count);
    } else {
      second = std::max(second, count);
    }
  }
  return first + second;
}

}  // namespace

Model::Model(const std::string& config, const std::vector<NamedShape>& shapes,
             const Setting& setting)
    : setting_(setting) {
  const int world = setting.placement.world;
  const Json zero = Json::parse(effective_config(config, world))["zero_optimization"];
  stage_ = zero["stage"]["value"].get<int64_t>();
  const Json& offload = zero["offload_optimizer"];
  offloads_ = offload["device"]["value"] != "none" && offload["ratio"]["value"] == 1;
  offloads_parameters_ = zero["offload_param"]["device"]["value"] != "none";

  otr_context* context = nullptr;
  check(otr_context_create(nullptr, &context));
  context_.reset(context);
  otr_comm* comm = nullptr;
  check(otr_comm_create_self(context, &comm));
  comm_.reset(comm);
  otr_engine* engine = nullptr;
  check(otr_engine_create(comm, config_of_one_rank(config, world).c_str(), &engine));
  engine_.reset(engine);
  for (const NamedShape& parameter : shapes) {
    std::vector<int64_t> shape = parameter.shape;
    otr_tensor tensor;
    int64_t id = 0;
    check(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()), shape.data(),
                          &tensor));
    check(otr_engine_add_parameter(engine, parameter.name.c_str(), &tensor, nullptr, &id));
  }
  acquired_ = two_largest(shapes);
  size_t count = 0;
  const otr_estimate_options judged = options();  // on a device, which engine_ is not
  check(otr_engine_estimate(engine, &judged, nullptr, &count));
}

otr_estimate_options Model::options() const {
  otr_estimate_options options;
  check(otr_estimate_options_init(&options, sizeof options));
  options.world_size = setting_.placement.world;
  options.separate_memory = setting_.placement.hosts > 1 ? 1 : 0;  // over the caller's communicator
  options.on_device = setting_.on_device ? 1 : 0;
  options.acquired_elements = acquired_;
  return options;
}

Entries Model::estimate(otr_estimate_options options) const {
  size_t count = 0;
  check(otr_engine_estimate(engine_.get(), &options, nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries[0].struct_size = sizeof entries[0];
  check(otr_engine_estimate(engine_.get(), &options, entries.data(), &count));
  const auto there =
      entries.begin() + static_cast<ptrdiff_t>(setting_.on_device ? count / 2 : count);
  return {{entries.begin(), there}, {there, entries.end()}};
}

Entries Model::estimate(int32_t layout) const {
  otr_estimate_options wanted = options();
  wanted.layout = layout;
  return estimate(wanted);
}

namespace {

// The first rank of a host, and others with so much each.
int64_t bytes_of_host(int64_t first, int64_t other, int ranks) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(other, int64_t{ranks} - 1, &bytes) ||
      __builtin_add_overflow(bytes, first, &bytes)) {
    fail(OTR_E_ARGUMENT,
         "{} ranks of {} bytes each need more than 2^63 bytes of a host: place fewer ranks on one "
         "with --hosts",
         ranks, other);
  }
  return bytes;
}

int64_t peak_of(const std::vector<otr_memory_entry>& entries) {
  return entries.empty() ? 0 : entries.back().peak_bytes;
}

}  // namespace

Model::Peaks Model::start_peaks(int32_t way) const {
  otr_estimate_options wanted = options();
  wanted.start = way;
  wanted.initial_element_bytes = setting_.start.element_bytes;
  const Entries first = estimate(wanted);
  const Placement& placement = setting_.placement;
  if (way == OTR_START_GIVEN && placement.world > 1) wanted.rank = 1;  // which holds no values
  return {
      peak_of(first.host),
      bytes_of_host(peak_of(first.host), peak_of(estimate(wanted).host), placement.ranks_per_host),
      peak_of(first.device)};
}

Bytes Model::needed() const {
  const Entries training = estimate(OTR_LAYOUT_OUTRIGGER);
  const Peaks start = start_peaks(setting_.start.way);
  const int64_t of_rank = peak_of(training.host);
  return {std::max(bytes_of_host(of_rank, of_rank, setting_.placement.ranks_per_host), start.host),
          std::max(peak_of(training.device), start.device)};
}

}  // namespace outrigger::tools

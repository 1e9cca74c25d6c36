// SPDX-License-Identifier: Apache-2.0
#include "estimate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "files.h"
#include "outrigger.h"
#include "shapes.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

void check(int32_t status) {
  if (status == OTR_OK) return;
  throw std::runtime_error(
      fmt::format("{}: {}", otr_status_name(status), otr_last_error_message()));
}

template <typename Handle>
using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

// An engine that only declares.
class Model {
 public:
  Model(const std::string& config, const std::vector<NamedShape>& shapes) {
    otr_context* context = nullptr;
    check(otr_context_create(nullptr, &context));
    context_.reset(context);
    otr_comm* comm = nullptr;
    check(otr_comm_create_self(context, &comm));
    comm_.reset(comm);
    otr_engine* engine = nullptr;
    check(otr_engine_create(comm, config.c_str(), &engine));
    engine_.reset(engine);
    for (const NamedShape& parameter : shapes) {
      std::vector<int64_t> shape = parameter.shape;
      otr_tensor tensor;
      int64_t id = 0;
      check(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()), shape.data(),
                            &tensor));
      check(otr_engine_add_parameter(engine, parameter.name.c_str(), &tensor, nullptr, &id));
    }
  }

  [[nodiscard]] std::vector<otr_memory_entry> estimate(int32_t world, int32_t layout) const {
    otr_estimate_options options;
    check(otr_estimate_options_init(&options, sizeof options));
    options.world_size = world;
    options.layout = layout;
    size_t count = 0;
    check(otr_engine_estimate(engine_.get(), &options, nullptr, &count));
    std::vector<otr_memory_entry> entries(count);
    entries[0].struct_size = sizeof entries[0];
    check(otr_engine_estimate(engine_.get(), &options, entries.data(), &count));
    return entries;
  }

 private:
  Owned<otr_context> context_{nullptr, otr_context_destroy};
  Owned<otr_comm> comm_{nullptr, otr_comm_destroy};
  Owned<otr_engine> engine_{nullptr, otr_engine_destroy};
};

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

double free_gib() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  double kib = 0;
  while (in >> word && word != "MemAvailable:") {
  }
  in >> kib;
  return kib / (1 << 20);
}

struct Way {
  std::string name;
  Json change;
};
std::vector<Way> ways(int64_t stage) {
  std::vector<Way> all;
  for (int64_t s = stage + 1; s <= 3; ++s) {
    all.push_back({fmt::format("stage {}", s), {{"zero_optimization", {{"stage", s}}}}});
  }
  const Json low = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  for (int64_t s = std::max<int64_t>(1, stage); s <= 3; ++s) {
    all.push_back({fmt::format("stage {}, bf16", s),
                   {{"zero_optimization", {{"stage", s}}}, {"bf16", {{"enabled", true}}}}});
    all.push_back({fmt::format("stage {}, bf16 with bf16 master and states", s),
                   {{"zero_optimization", {{"stage", s}}}, {"bf16", low}}});
  }
  return all;
}

}  // namespace

int estimate(const EstimateRequest& request) {
  const std::string text = request.config.empty() ? "{}" : read_file(request.config);
  const std::vector<NamedShape> shapes = read_shapes(request.model);
  const Model model(text, shapes);
  int64_t parameters = 0;
  for (const NamedShape& p : shapes) {
    int64_t count = 1;
    for (const int64_t extent : p.shape) count *= extent;
    parameters += count;
  }
  const auto ours = model.estimate(request.world, OTR_LAYOUT_OUTRIGGER);
  const auto theirs = model.estimate(request.world, OTR_LAYOUT_DEEPSPEED);
  const int ranks = request.ranks_per_host > 0 ? request.ranks_per_host : request.world;
  const double available = request.host_gib > 0 ? request.host_gib : free_gib();
  const double needed = gib(ours.back().peak_bytes) * ranks;
  const bool fits = needed <= available;

  // With comments and old spellings the text stays the parser's business; other ways are tried on
  // plain JSON only.
  std::vector<std::pair<std::string, double>> fitting;
  Json config = Json::parse(text, nullptr, false);
  if (config.is_object()) {
    const auto zero = config.value("zero_optimization", Json::object());
    const int64_t stage =
        zero.is_object() && zero.contains("stage") && zero["stage"].is_number_integer()
            ? zero["stage"].get<int64_t>()
            : 0;
    for (const Way& way : ways(stage)) {
      Json changed = config;
      changed.erase("fp16");
      changed.merge_patch(way.change);
      try {
        const auto entries =
            Model(changed.dump(), shapes).estimate(request.world, OTR_LAYOUT_OUTRIGGER);
        const double host = gib(entries.back().peak_bytes) * ranks;
        if (host <= available && host < needed) fitting.emplace_back(way.name, host);
      } catch (const std::runtime_error&) {  // not legal beside the rest of the configuration
      }
    }
  }

  if (request.json) {
    Json out = {{"parameters", parameters},
                {"world_size", request.world},
                {"ranks_per_host", ranks},
                {"host_bytes_available", static_cast<int64_t>(available * (1 << 30))},
                {"fits", fits}};
    for (const auto& [name, entries] : {std::pair{"outrigger", &ours}, {"deepspeed", &theirs}}) {
      for (const otr_memory_entry& e : *entries) {
        out["rank"][name][e.purpose] = {{"resident_bytes", e.resident_bytes},
                                        {"peak_bytes", e.peak_bytes}};
      }
    }
    out["would_fit"] = Json::array();
    for (const auto& [name, host] : fitting) {
      out["would_fit"].push_back(
          {{"change", name}, {"host_bytes", static_cast<int64_t>(host * (1 << 30))}});
    }
    fmt::print("{}\n", out.dump(2));
    return fits ? 0 : 1;
  }

  fmt::print("{} tensors, {} parameters, {} ranks\n\n", shapes.size(), parameters, request.world);
  fmt::print("GiB a rank, resident / peak      Outrigger            DeepSpeed 0.19.8\n");
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].peak_bytes == 0 && theirs[i].peak_bytes == 0) continue;
    fmt::print("{:<28} {:>8.3f} / {:>8.3f}   {:>8.3f} / {:>8.3f}\n", ours[i].purpose,
               gib(ours[i].resident_bytes), gib(ours[i].peak_bytes), gib(theirs[i].resident_bytes),
               gib(theirs[i].peak_bytes));
  }
  fmt::print("\n{} ranks on a host need {:.2f} GiB; {:.2f} are {}: it {}.\n", ranks, needed,
             available, request.host_gib > 0 ? "given" : "free here",
             fits ? "fits" : "does not fit");
  fmt::print("Activations and the framework's own memory come on top.\n");
  if (!fits) {
    fmt::print("{}\n", fitting.empty() ? "No stage or bfloat16 form fits: use more hosts."
                                       : "What would fit:");
    for (const auto& [name, host] : fitting)
      fmt::print("  {:<44} {:>8.2f} GiB a host\n", name, host);
  }
  return fits ? 0 : 1;
}

}  // namespace outrigger::tools

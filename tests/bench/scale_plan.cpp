// SPDX-License-Identifier: Apache-2.0
// What one rank of a world of any size does before it trains, run for real: declarations,
// communicator, estimate, layout, commit, a step. scripts/scale/planner.py calls it.
//   bench_scale_plan SHAPES CONFIG WORLD RANK LIMIT commit|step
// SHAPES: a file with a line "name rows columns" for each parameter; CONFIG: a file, JSON. LIMIT:
// bytes that commit may take by the estimate; where it would take more, commit is not run. step:
// and a step after it, which sums a whole model's gradients. Prints JSON: for each phase seconds,
// and resident memory that it added and the most there was, as the kernel counts them; and what it
// asked the other ranks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/comm/shape.h"
#include "core/engine/plan.h"
#include "tests/bench/loopback.h"

namespace {

using nlohmann::json;
using outrigger::bench::Asked;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
};

[[noreturn]] void give_up(const std::string& text) { throw std::runtime_error(text); }

void require(int32_t status, const char* call) {
  if (status != OTR_OK) give_up(std::string(call) + ": " + otr_last_error_message());
}
#define TRY(call) require((call), #call)

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) give_up(path + " cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Tensor> tensors_of(const std::string& path) {
  std::istringstream lines(text_of(path));
  std::vector<Tensor> tensors;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Tensor tensor;
    int64_t rows = 0, columns = 0;
    if (!(words >> tensor.name >> rows >> columns) || rows < 1 || columns < 1) {
      give_up(path + ": \"" + line + "\" is not \"name rows columns\"");
    }
    tensor.shape = {rows, columns};
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Of /proc/self/status, bytes.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return 1024 * std::stoll(line.substr(key.size() + 1));
  }
  give_up("/proc/self/status has no " + key);
}

// Seconds, resident bytes added, and the most that were there meanwhile; what the world was asked.
class Phases {
 public:
  explicit Phases(const Asked& asked) : asked_(asked) {}

  template <typename Work>
  void run(const char* name, Work work) {
    std::ofstream("/proc/self/clear_refs") << 5;  // the most so far is what there is now
    const int64_t before = status_bytes("VmRSS");
    const Asked asked = asked_;
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    found_[name] = {{"seconds", took.count()},
                    {"added_bytes", status_bytes("VmRSS") - before},
                    {"most_bytes", status_bytes("VmHWM") - before},
                    {"calls", asked_.calls - asked.calls},
                    {"received_bytes", asked_.received - asked.received}};
  }
  [[nodiscard]] const json& found() const { return found_; }

 private:
  const Asked& asked_;
  json found_ = json::object();
};

// Of one rank: purpose, resident and peak bytes of a memory; device: of a device's.
json estimated(const otr_engine* engine, int32_t world, int32_t rank, bool device) {
  otr_estimate_options options;
  TRY(otr_estimate_options_init(&options, sizeof options));
  options.world_size = world;
  options.rank = rank;
  options.separate_memory = 1;
  options.on_device = device ? 1 : 0;
  size_t count = 0;
  TRY(otr_engine_estimate(engine, &options, nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries.front().struct_size = sizeof(otr_memory_entry);
  TRY(otr_engine_estimate(engine, &options, entries.data(), &count));
  json found = json::object();
  for (const otr_memory_entry& entry : entries) {
    if (std::string(entry.purpose) != "total") continue;
    const char* where = entry.device_type == OTR_DEVICE_CPU ? "host" : "device";
    found[where] = {{"resident_bytes", entry.resident_bytes}, {"peak_bytes", entry.peak_bytes}};
  }
  return found;
}

int64_t resident(const otr_engine* engine) {
  size_t count = 0;
  TRY(otr_engine_memory(engine, nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries.front().struct_size = sizeof(otr_memory_entry);
  TRY(otr_engine_memory(engine, entries.data(), &count));
  for (const otr_memory_entry& entry : entries) {
    if (std::string(entry.purpose) == "total") return entry.resident_bytes;
  }
  return 0;
}

// The layout that commit makes, made once more where its parts can be counted.
json counted(const std::vector<Tensor>& tensors, const std::string& config_text, int32_t world,
             int32_t rank, Phases& phases) {
  using namespace outrigger;
  layout::Model model;
  for (const Tensor& tensor : tensors) {
    layout::Parameter p;
    p.name = tensor.name;
    p.shape = tensor.shape;
    p.count = tensor.shape[0] * tensor.shape[1];
    model.add(p, "default", -1);
  }
  const config::EngineConfig config = config::parse_engine(config_text, world);
  comm::Shape shape{comm::Levels::one, 1, world, rank, false};
  if (const int32_t shard = config::shard_of(config, world); shard < world) {
    shape = comm::mesh_shape(rank, world, shard, config.divide_states);
  }
  std::vector<layout::Piece> pieces;
  int64_t buckets = 0, slice = 0, most_owners = 0;
  phases.run("layout", [&] {
    const layout::Layout layout(model, shape.slices,
                                engine::bucket_elements(model, config, shape.slices));
    pieces = layout.pieces_of_rank(model, shape.slice);
    buckets = static_cast<int64_t>(layout.buckets().size());
    slice = layout.largest_bucket() / shape.slices;
    for (int64_t id = 0; id < model.size(); ++id) {
      most_owners = std::max(most_owners, static_cast<int64_t>(layout.owners(model, id).size()));
    }
  });
  return {{"buckets", buckets},
          {"pieces", pieces.size()},
          {"largest_slice_elements", slice},
          {"most_owners_of_a_parameter", most_owners}};
}

json plan(const std::string& shapes, const std::string& config_path, int32_t world, int32_t rank,
          int64_t limit, bool with_step) {
  const std::vector<Tensor> tensors = tensors_of(shapes);
  const std::string config = text_of(config_path);
  Asked asked;
  Phases phases(asked);
  otr_context* context = nullptr;
  otr_comm* comm = nullptr;
  otr_engine* engine = nullptr;
  TRY(otr_context_create(nullptr, &context));
  phases.run("communicator",
             [&] { TRY(outrigger::bench::make_loopback(context, rank, world, asked, &comm)); });
  int64_t elements = 0;
  phases.run("declare", [&] {
    TRY(otr_engine_create(comm, config.c_str(), &engine));
    for (const Tensor& tensor : tensors) {
      std::vector<int64_t> shape = tensor.shape;
      otr_tensor initial;
      TRY(otr_tensor_init(nullptr, "float32", 2, shape.data(), &initial));
      int64_t id = 0;
      TRY(otr_engine_add_parameter(engine, tensor.name.c_str(), &initial, nullptr, &id));
      elements += tensor.shape[0] * tensor.shape[1];
    }
  });
  json memory;
  phases.run("estimate", [&] { memory = estimated(engine, world, rank, true); });
  const int64_t need = estimated(engine, world, rank, false)["host"]["peak_bytes"];
  json found = {{"tensors", tensors.size()},
                {"elements", elements},
                {"memory", memory},
                {"layout", counted(tensors, config, world, rank, phases)},
                {"commit_would_take", need}};
  if (need <= limit) {
    phases.run("commit", [&] { TRY(otr_engine_commit(engine)); });
    found["ledger_bytes"] = resident(engine);
  }
  if (need <= limit && with_step) {
    phases.run("step", [&] {
      otr_pass* pass = nullptr;
      TRY(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
      TRY(otr_pass_end(pass));
      otr_step_report report = OTR_STEP_REPORT_INIT;
      TRY(otr_engine_step(engine, &report));
      otr_pass_destroy(pass);
    });
  }
  found["phases"] = phases.found();
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string last = argc == 7 ? argv[6] : "";
  if (last != "commit" && last != "step") {
    std::fprintf(stderr, "usage: %s SHAPES CONFIG WORLD RANK LIMIT commit|step\n", argv[0]);
    return 2;
  }
  try {
    const json found =
        plan(argv[1], argv[2], static_cast<int32_t>(std::atoi(argv[3])),
             static_cast<int32_t>(std::atoi(argv[4])), std::atoll(argv[5]), last == "step");
    std::cout << found.dump() << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

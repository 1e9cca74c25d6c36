// SPDX-License-Identifier: Apache-2.0
// One model's training state on this rank. Follow one gradient through the files of this folder:
//   plan.h       how many bytes each block has; estimate.cpp: the same without an engine's memory
//   commit.cpp   declarations → layout, storage, rank 0's values
//   initial.cpp  first values after commit; start.h: what memory comes to until then
//   gather.cpp   parameters for the host: acquire, release; prefetch.h: ahead of that
//   pass.h       backward: scaled output gradients out, parameter gradients in
//   reduce*.cpp  sum over ranks and passes
//   step.cpp     agree on Inf/NaN and norm; joint.cpp: several engines as one
//   pending.h    the step beside the host
//   update.cpp   clip, update, make the new parameters visible; matrices.h: Muon's part of it
//   window.cpp   a window that the host updates itself, or drops
//   resume.cpp   progress.h: all that a run is besides tensors, taken and set
//   values.cpp   reading and writing parameters, states and gradients; location.h: where they lie
//   health.cpp   what a call requires, and what becomes of the engine after a failure
//   on_device.cpp  parameters and gradients on a device
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/bits.h"
#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/config/config.h"
#include "core/context/context.h"
#include "core/device/host.h"
#include "core/engine/gather.h"
#include "core/engine/matrices.h"
#include "core/engine/pending.h"
#include "core/engine/plan.h"
#include "core/engine/progress.h"
#include "core/engine/reduce.h"
#include "core/engine/start.h"
#include "core/engine/storage.h"
#include "core/layout/layout.h"
#include "core/layout/model.h"
#include "core/memory/ledger.h"
#include "core/optimizer/loss_scaler.h"
#include "core/optimizer/outliers.h"
#include "core/threads/workers.h"

namespace outrigger::engine {

class Pass;
struct Tag;

struct ParameterOptions {
  bool trainable = true;
  int64_t alias_of = -1;
  std::string group = "default";
  int32_t contributions = 1;
  int64_t held_bytes = 0;
};

// By purpose, and the total; of the host, and of the device where the engine is on one.
struct MemoryEntries {
  std::array<memory::Entry, memory::kPurposes + 1> host{}, device{};
};

// What the declared parameters would need.
struct Estimate {
  int32_t world = 1, rank = 0;
  bool shares_memory = true;
  bool deepspeed = false;  // DeepSpeed's layout instead of ours
  // What the host has at a time: elements of acquired parameters, of them as float32 copies, and of
  // output gradients; and whether it gives all gradients at once.
  int64_t acquired = 0, widened = 0, outputs = 0;
  bool grads_at_once = false;
  // Not the training's peaks, but those of the start, with first values that are given before
  // commit, or that the host holds whole, or a rank's share of them, in so many bytes an element.
  enum class Start : uint8_t { none, given, held, share };
  Start start = Start::none;
  int64_t initial_element_bytes = 4;
  int32_t hosts = 1;  // comm::Communicator::hosts
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::shared_ptr<Context> context, std::shared_ptr<comm::Communicator> comm,
         std::string_view config_json);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Life.
  // Before the first parameter: parameters and gradients are on this device from now on.
  void set_device(const otr_device& device);
  int64_t add_parameter(const std::string& name, const otr_tensor& initial,
                        const ParameterOptions& options);
  void commit();
  void finalize();
  void abort(const std::string& reason) noexcept;
  void check();
  [[nodiscard]] const Context& context() const { return *context_; }
  // No call but a pass's comes any more: leaves the group, so that no rank waits for this one.
  void leave() noexcept;

  // Parameters.
  [[nodiscard]] const layout::Model& model() const { return model_; }
  // Held around a use of model() by a call that any thread may make.
  [[nodiscard]] std::shared_lock<std::shared_mutex> lock_model() const {
    return std::shared_lock(life_mutex_);
  }
  void acquire(const int64_t* ids, int64_t count, bool as_float32, device::Stream stream,
               otr_tensor* out);
  void release(const int64_t* ids, int64_t count, device::Stream stream);
  void prefetch(const int64_t* ids, int64_t count);
  void set_initial(const int64_t* ids, int64_t count, const otr_tensor* values);
  void read_value(int64_t id, int32_t value, const otr_tensor& out);
  void write_value(int64_t id, int32_t value, const otr_tensor& source);
  // The elements of a parameter whose states lie on this rank, and their values.
  void local_range(int64_t id, int64_t& first, int64_t& count) const;
  void local_value(int64_t id, int32_t value, const otr_tensor& t, bool write, const char* call);

  // Hyperparameters, configuration, memory. group empty: all (set), "default" (get).
  void set_group_value(const std::string& group, const std::string& name, double value);
  [[nodiscard]] double group_value(const std::string& group, const std::string& name) const;
  [[nodiscard]] const config::EngineConfig& config() const { return config_; }
  // Where the host's tensors are.
  [[nodiscard]] otr_device device() const { return device_ ? device_->id() : tensor::kHost; }
  [[nodiscard]] bool on_host() const { return !device_; }
  [[nodiscard]] memory::Ledger& ledger() { return ledger_; }
  [[nodiscard]] const memory::Ledger& ledger() const { return ledger_; }
  [[nodiscard]] MemoryEntries estimate(const Estimate& wanted) const;

  // Backward and step.
  std::shared_ptr<Pass> begin_pass(const otr_tensor* output_grads, int64_t count, const Tag& tag,
                                   bool keep_dtype, device::Stream stream);
  void reduce(otr_step_report& report);
  void step(otr_step_report& report);
  void begin_step();
  // False: not over within so many seconds; negative: waits without end. Throws the step's failure.
  bool report(double seconds, otr_step_report& report);
  // One step of all of them, or of none; joint: a group of the ranks of all engines, or null if
  // every rank has them all.
  static void step_many(std::span<Engine* const> engines, comm::Group* joint,
                        std::span<otr_step_report> reports);
  // Between reduce and step: the step would update the parameter.
  [[nodiscard]] bool has_grad(int64_t id) const;
  // Drops the window's gradients.
  void discard();
  // Throws OTR_E_LOSS_SCALE if the last step overflowed at the smallest scale.
  void require_scalable() const;
  void set_boundary(int32_t boundary);
  [[nodiscard]] bool at_boundary() const;  // the next step ends the window
  [[nodiscard]] double loss_scale() const { return scaler_.scale(); }
  // Throws while a step is pending, which decides what is asked for.
  void require_not_pending(const char* call) const;
  void set_trainable(int64_t id, bool trainable);
  // With no window open.
  [[nodiscard]] Progress progress() const;
  void set_progress(std::string_view json);

  [[nodiscard]] int64_t live_passes() const { return live_passes_; }

 private:
  friend class Pass;
  enum class State : uint8_t { declared, committed, finalized };

  struct Initial {
    memory::Block values;  // commit distributes them; float32, on rank 0 only, empty if none given
    uint64_t hash = 0;     // of the values, for initial_values: verify
    memory::Charge held;   // what the host holds until the value is taken
  };

  // When a call that the host interrupted can be made again: never, while no operation of it was
  // complete, or at any moment, because its body knows how far it came.
  enum class Again : uint8_t { never, at_first, always };

  void require_healthy(const char* call) const;
  void require(State state, const char* call) const;
  void require_no_pass(const char* call) const;
  void poison(const Error& error) noexcept;
  void poison_with_current() noexcept;  // in a catch clause
  void log_commit() const;
  void log_step(const otr_step_report& report) const;
  void log_failure(const Error& error) const noexcept;
  // Runs a local part: a failure of the device in it poisons the engine.
  template <typename Body>
  auto on_device(const Body& body) -> decltype(body());
  // Runs a collective part of a call: a failure in it poisons the engine, an interrupt may leave
  // the call to be made again.
  // arguments: a hash of what the call was given, where it matters that it is made again with that.
  template <typename Body>
  void collective(const char* call, Again again, const Body& body, uint64_t arguments = 0);
  void require_same_arguments(const char* call, uint64_t arguments);
  // In its catch clause.
  void failed(const char* call, Again again, uint64_t completed) noexcept;
  [[nodiscard]] bool can_be_made_again(Again again, uint64_t completed) const noexcept;
  static bool is_usable(const comm::Group& group) noexcept;

  // commit.cpp
  void compare_over_ranks();
  [[nodiscard]] StartPeaks expected_start() const;
  void require_memory();
  void compare_initial_values();
  void distribute_initial_values();
  // initial.cpp
  struct First;
  void round_initial(float* values, int64_t count) const;
  void read_initial(const tensor::View& view, int64_t first, int64_t count, float* values);
  [[nodiscard]] const float* initial_part(const tensor::View& view, int64_t first, int64_t count,
                                          float* scratch);
  [[nodiscard]] uint64_t hash_initial(const tensor::View& view, float* scratch);
  [[nodiscard]] int64_t beyond_held(const std::vector<First>& firsts) const;
  [[nodiscard]] std::vector<bool> compare_firsts(const std::vector<First>& firsts);
  [[noreturn]] void refuse_differing(int64_t id, int32_t rank) const;
  void take(const First& first, bool from_rank0, float* scratch);
  void taken(int64_t root);
  void touch(int64_t root, int32_t value);
  void begin_training();
  // location.cpp, values.cpp
  struct Location;
  // A tensor for the whole parameter; what: for texts.
  [[nodiscard]] tensor::View view_for(const layout::Parameter& parameter, const otr_tensor& t,
                                      const char* what) const;
  [[nodiscard]] Location location_of(const layout::Parameter& root, int32_t value) const;
  [[nodiscard]] Location opened(const Location& location, const std::optional<layout::Piece>& piece,
                                memory::Block& values);
  void require_writable(int32_t value, const char* call) const;
  [[nodiscard]] std::optional<layout::Piece> local_piece(int64_t root) const;
  void write_piece(const Location& location, const layout::Piece& piece, const float* values);
  void copy_value(int64_t id, int32_t value, const otr_tensor& out);
  void access_local(int64_t id, int32_t value, const otr_tensor& t, bool write, const char* call);
  void put(device::Device& device, void* to, kernels::Format format, const float* values,
           int64_t count, double factor);
  // All elements of the tensor as float32, in host memory.
  void read_tensor(const tensor::View& from, float* values);
  // And back: into a tensor of the host or of the device.
  void write_tensor(const tensor::View& to, const void* values, kernels::Format format);
  void write_weight(const layout::Piece& piece, const float* values);
  void publish_local_writes();
  void read_part(const tensor::View& view, int64_t first, int64_t count, float* values);
  void replaced_gradient(const layout::Parameter& root);
  // From elements [first, first + count) of a root, float32, to all that this rank has of them:
  // the master and the published value.
  void store(int64_t root, int64_t first, int64_t count, const float* values);
  void store_published(int64_t root, int64_t first, int64_t count, const float* values);

  // The next step comes after what was given to this stream before it. Any thread.
  void note_stream(device::Stream stream);
  void drain() noexcept;
  void let_go() noexcept;
  void await_streams();

  // pass.cpp: what turns gradients with this tag into gradients of a pass of this engine.
  [[nodiscard]] double factor_for(const Tag& tag) const;

  // step.cpp
  struct Decision;
  struct Reduced;
  [[nodiscard]] int32_t mean_ranks() const;  // that the sum over ranks is divided by
  void require_step(const char* call);
  void do_step(otr_step_report& report);
  void agree_on_window();
  [[nodiscard]] Decision agree_on_gradients(const Summed& summed);
  const Decision& reduce_window(bool steps);
  void clear_window();
  void finish_step(otr_step_report& report, const Decision& decision);
  void report_decision(otr_step_report& report, const Decision& decision) const;
  void report_counts(otr_step_report& report) const;
  [[nodiscard]] bool is_updated(const Decision& decision, int64_t root) const;
  [[nodiscard]] std::vector<kernels::Update> updates(const Decision& decision,
                                                     std::vector<int64_t>& roots) const;
  [[nodiscard]] kernels::UpdateCount update_offloaded(std::span<const kernels::Update> pieces);
  void scale_layers(std::span<kernels::Update> pieces, std::span<const int64_t> roots);
  [[nodiscard]] double lr_of(int64_t root) const;
  [[nodiscard]] kernels::UpdateCount update_pieces(std::span<const kernels::Update> pieces);
  [[nodiscard]] kernels::UpdateCount update_matrices(std::span<const kernels::Update> pieces,
                                                     std::span<const int64_t> roots,
                                                     const Decision& decision);
  [[nodiscard]] kernels::UpdateCount update(const Decision& decision);
  [[nodiscard]] kernels::UpdateCount publish(const kernels::UpdateCount& mine);

  // resume.cpp
  void require_between_windows(const char* call) const;
  [[nodiscard]] std::vector<int64_t> trainable_roots() const;
  [[nodiscard]] int64_t trainable_root(const std::string& name) const;
  [[nodiscard]] Progress::Circumstances circumstances() const;
  [[nodiscard]] std::string model_hash() const;
  // A progress, and what of this engine it would change.
  struct Resumed {
    Progress progress;
    std::vector<config::OptimizerConfig> groups;
    std::vector<int64_t> updates;
    Bits frozen;
  };
  [[nodiscard]] Resumed resumed(std::string_view json) const;
  [[nodiscard]] std::vector<config::OptimizerConfig> groups_of(const Progress& progress) const;
  void agree_on_progress(std::string_view json, const std::optional<Error>& trouble);

  // window.cpp: with the host's optimizer.
  void require_reduced(const char* call) const;
  void require_updatable(const char* call) const;
  [[noreturn]] static void refuse_updated(const char* call);

  std::shared_ptr<Context> context_;
  std::shared_ptr<comm::Communicator> comm_;  // the caller's; given back at commit for duplicates
  std::unique_ptr<comm::Communicator> control_;
  std::string config_json_;
  config::EngineConfig config_;
  std::vector<config::OptimizerConfig> groups_;  // by group index
  memory::Ledger ledger_;
  layout::Model model_;
  std::vector<Initial> initial_;  // by id
  std::atomic<State> state_{State::declared};
  // What a query from any thread reads while add_parameter, commit or finalize change it.
  mutable std::shared_mutex life_mutex_;

  std::shared_ptr<device::Device> device_;  // null: the host
  device::Host plain_host_{nullptr};        // for passes, which may outlive the workers

  // From commit on.
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<device::Host> host_;
  Devices devices_{};
  std::unique_ptr<layout::Layout> layout_;
  std::optional<Plan> plan_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Gather> gather_;
  std::unique_ptr<Matrices> matrices_;  // of Muon
  memory::Block update_staging_;
  device::Pinned update_pinned_;
  std::vector<kernels::RandomStream> streams_;  // by root
  std::vector<int64_t> updates_;                // updates of each root so far
  std::vector<uint8_t> touched_;                // by root, a bit for each value: see touch
  bool in_training_ = false;                    // a pass was begun: initial values are closed
  bool wrote_locally_ = false;                  // a weight that replicas elsewhere do not have yet

  bool hyperparameters_set_ = false;
  std::mutex stream_mutex_;
  std::set<device::Stream> callers_streams_;  // of this window; guarded by stream_mutex_
  std::atomic<int64_t> open_passes_{0};
  int64_t passes_in_micro_step_ = 0, passes_in_window_ = 0, steps_in_window_ = 0;
  int32_t boundary_ = OTR_BOUNDARY_CONFIGURED;
  optimizer::LossScaler scaler_;
  optimizer::OutlierGuard outliers_;
  bool seed_overflow_ = false;        // in this window, on this rank
  bool stuck_at_minimum_ = false;     // the last step overflowed at the smallest scale
  std::unique_ptr<Reduced> reduced_;  // between otr_engine_reduce and the step
  int64_t micro_steps_ = 0, skipped_steps_ = 0;
  std::atomic<int64_t> applied_steps_{0};  // group_value reads it while a step is pending
  std::atomic<int64_t> live_passes_{0};

  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;  // guarded by failure_mutex_

  const char* interrupted_ = nullptr;  // the call that is to be made again
  uint64_t arguments_ = 0;             // … with these: see collective
  bool is_pending_ = false;
  std::unique_ptr<PendingStep> pending_;  // from the first otr_engine_step_begin on; ends first
};

template <typename Body>
auto Engine::on_device(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.status() == OTR_E_DEVICE_FAULT) poison(error);
    throw;
  }
}

template <typename Body>
void Engine::collective(const char* call, Again again, const Body& body, uint64_t arguments) {
  require_same_arguments(call, arguments);
  const uint64_t completed = control_ ? control_->completed() : 0;
  try {
    body();
  } catch (...) {
    failed(call, again, completed);
    throw;
  }
  interrupted_ = nullptr;
}

}  // namespace outrigger::engine

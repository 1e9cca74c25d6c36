// SPDX-License-Identifier: Apache-2.0
// One model's training state on this rank: its phases, and which call belongs to which.
//
//   Declared   what the host says: configuration, parameters, first values     declared.h
//   Committed  where everything lies: layout, plan, parameters, states         committed.h
//   Window     between two updates: passes, sums, what the ranks decide        window.h
//   Run        counters, loss scale, schedules: all that is no tensor          run.h
//
// docs/design.md has the ways of a gradient and of a parameter.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/away.h"
#include "core/engine/checkpoints.h"
#include "core/engine/committed.h"
#include "core/engine/declared.h"
#include "core/engine/health.h"
#include "core/engine/host_memory.h"
#include "core/engine/new_weights.h"
#include "core/engine/pending.h"
#include "core/engine/run.h"
#include "core/engine/sections.h"
#include "core/engine/update.h"
#include "core/engine/values.h"
#include "core/engine/watch.h"
#include "core/engine/window.h"

namespace outrigger::engine {

class Pass;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::shared_ptr<Context> context, std::shared_ptr<comm::Communicator> comm,
         std::string_view config_json, MakeStore make_store = make_resident_store);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Life.
  void set_device(const otr_device& device);
  int64_t add_parameter(const std::string& name, const otr_tensor& initial,
                        const ParameterOptions& options);
  void commit();
  void finalize();
  void abort(const std::string& reason) noexcept;
  void check();
  [[nodiscard]] const Context& context() const { return *declared_.context; }
  // No call but a pass's comes any more: leaves the group, so that no rank waits for this one.
  void leave() noexcept;

  // Parameters.
  [[nodiscard]] const layout::Model& model() const { return declared_.model; }
  // Held around a use of model() by a call that any thread may make.
  [[nodiscard]] std::shared_lock<std::shared_mutex> lock_model() const {
    return std::shared_lock(declared_.mutex);
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
  void read_local(int64_t id, int32_t value, const otr_tensor& out);
  void write_local(int64_t id, int32_t value, const otr_tensor& source);

  // What this rank keeps, in its order; and a section of it, with no window open.
  [[nodiscard]] std::vector<Section> sections() const;
  void read_section(const Section& section, Encoding encoding, std::span<std::byte> out);

  // Hyperparameters, configuration, memory. group empty: all (set), "default" (get).
  void set_group_value(const std::string& group, const std::string& name, double value);
  [[nodiscard]] double group_value(const std::string& group, const std::string& name);
  [[nodiscard]] const config::EngineConfig& config() const { return declared_.config; }
  // Where the host's tensors are.
  [[nodiscard]] otr_device device() const { return declared_.device_id(); }
  [[nodiscard]] bool on_host() const { return !declared_.device; }
  [[nodiscard]] std::string host_memory() const { return engine::host_memory(declared_); }
  [[nodiscard]] const memory::Ledger& ledger() const { return declared_.ledger; }
  [[nodiscard]] MemoryEntries estimate(const Estimate& wanted) const {
    return declared_.estimate(wanted);
  }

  // Backward and step.
  std::shared_ptr<Pass> begin_pass(const otr_tensor* output_grads, int64_t count, const Tag& tag,
                                   bool keep_dtype, device::Stream stream);
  void reduce(otr_step_report& report);
  // wants_report: without it, a step that the device decides by itself is not waited for; what
  // comes of it is heard by the first call that needs it, and its report is kept.
  void step(otr_step_report& report, bool wants_report);
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
  [[nodiscard]] double loss_scale() const { return run_.scaler.scale(); }
  void require_not_pending(const char* call) const { health_.require_not_pending(call); }
  void set_trainable(int64_t id, bool trainable);
  // OTR_STATES_, a sum: these leave a device for host memory, page-locked as the configuration has
  // it or not at all, and come back. Both are collective; with no window open.
  void offload_states(int32_t states, bool page_lock);
  void reload_states();
  // With no window open.
  void save(const std::string& directory, const std::string& tag, const SaveOptions& options,
            checkpoint::Files& files = checkpoint::posix_files());
  // The last asynchronous one, once it is over or so many seconds have passed; negative: without
  // end. Throws its failure, once.
  Saver::Status wait_save(double seconds);
  void snapshot(RankCopies& into, const SnapshotOptions& options);
  void restore(std::span<RankCopies* const> snapshots);
  void load(const std::string& directory, const std::string& tag, const LoadOptions& options,
            checkpoint::Files& files = checkpoint::posix_files());
  [[nodiscard]] Progress progress();
  void set_progress(std::string_view json);

  // Records of steps.
  void watch(const WatchOptions& options);
  void note(std::string_view name, double value) { watch_.note(name, value); }
  [[nodiscard]] std::string last_record() const { return watch_.last(); }
  void deliver_records() { watch_.deliver(); }

  [[nodiscard]] int64_t live_passes() const { return live_passes_.use_count() - 1; }

 private:
  enum class State : uint8_t { declared, committed, finalized };

  void require(State state, const char* call) const;
  void join_mesh();
  void compare_clocks();
  void require_between_windows(const char* call);
  // None of these OTR_STATES_ are away.
  void require_here(int32_t states, const char* call) const;
  void require_readable(int32_t value, const char* call);  // OTR_VALUE_; hears of the last step
  void require_step(const char* call);
  // Of a call that a pending step lets in, once it has the parameters' new weights; without ids,
  // once it has ended all acquires.
  void require_new(const char* call, const int64_t* ids, int64_t count);
  [[nodiscard]] std::string waiting() const;  // what a pending step waits for, for an error's text
  void tell(const Error& error, bool first) noexcept;
  void drain() noexcept;
  void let_go() noexcept;

  [[nodiscard]] Checkpoints checkpoints(checkpoint::Files& files);

  // step.cpp; a step that the device decides: engine_ahead.cpp
  static void report_decision(otr_step_report& report, const Decision& decision);
  // A step whose decision is on the device, or on its way from there.
  struct Unheard {
    otr_step_report report{};
    Decision decision;
    std::vector<int64_t> roots;           // that it updates unless it skips
    std::optional<otr_step_report> next;  // of the last step after it, which accumulated
  };
  void do_step(otr_step_report& report, bool wants_report);
  void step_there();
  void finish_step(otr_step_report& report, const Decision& decision);
  void conclude(otr_step_report& report, int32_t skip);
  // The outcome of the last step is known; waits for it.
  void hear();
  bool has_heard_within(double seconds);
  void report_counts(otr_step_report& report) const;
  void agree_on_progress(std::string_view json, const std::optional<Error>& trouble);

  std::shared_ptr<comm::Communicator> comm_;  // the caller's; given back at commit for duplicates
  const MakeStore make_store_;
  Declared declared_;
  Run run_;
  Watch watch_{declared_};
  Health health_;
  std::atomic<State> state_{State::declared};
  std::unique_ptr<comm::Communicator>
      control_;             // of the host's calls, as committed_ and the next are, from commit
  NewWeights new_weights_;  // of the pending step; outlives what publishes
  std::unique_ptr<Committed> committed_;
  std::unique_ptr<Window> window_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<Values> values_;
  int32_t states_away_ = 0;                                                  // OTR_STATES_
  std::unique_ptr<Away> away_;                                               // of a device's
  const std::shared_ptr<const int> live_passes_ = std::make_shared<int>(0);  // each keeps a copy
  bool saves_ended_ = false;      // a finalize has heard of the last one
  std::unique_ptr<Saver> saver_;  // from the first asynchronous save on, or from commit
  std::optional<Unheard> unheard_;
  // Of the last step without a report; none: that of pending_ is asked for.
  std::optional<otr_step_report> kept_;
  std::unique_ptr<PendingStep> pending_;  // from the first otr_engine_step_begin on; ends first
};

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// An engine's life, and what can be asked of it at any time.
#include "core/engine/engine.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "core/base/text.h"
#include "core/config/document.h"
#include "core/engine/step.h"
#include "core/optimizer/schedule.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

namespace {

// XXH3_64bits over so many float32 zeros, which is what a parameter without a value begins with.
uint64_t hash_of_zeros(int64_t count) {
  static constexpr std::array<float, 1024> kZeros{};
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  for (int64_t left = count; left > 0;) {
    const int64_t n = std::min<int64_t>(left, kZeros.size());
    XXH3_64bits_update(state.get(), kZeros.data(), static_cast<size_t>(n) * sizeof(float));
    left -= n;
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace

Engine::Engine(std::shared_ptr<Context> context, std::shared_ptr<comm::Communicator> comm,
               std::string_view config_json)
    : context_(std::move(context)),
      comm_(std::move(comm)),
      config_json_(config_json),
      config_(config::parse_engine(config_json, comm_->size())),
      groups_{config_.optimizer},
      scaler_(config_.loss_scaling),
      outliers_(config_.optimizer.outliers) {
  for (const std::string& warning : config_.warnings) context_->log(OTR_LOG_WARNING, warning);
}

Engine::~Engine() {
  if (reducer_) reducer_->stop();
  drain();
}

void Engine::set_boundary(int32_t boundary) {
  require_healthy("otr_engine_set_boundary");
  if (boundary < OTR_BOUNDARY_CONFIGURED || boundary > OTR_BOUNDARY_YES) {
    fail(OTR_E_ARGUMENT,
         "boundary = {}; legal is OTR_BOUNDARY_CONFIGURED ({}), OTR_BOUNDARY_NO ({}) or "
         "OTR_BOUNDARY_YES ({})",
         boundary, static_cast<int>(OTR_BOUNDARY_CONFIGURED), static_cast<int>(OTR_BOUNDARY_NO),
         static_cast<int>(OTR_BOUNDARY_YES));
  }
  boundary_ = boundary;
}

void Engine::set_trainable(int64_t id, bool trainable) {
  require_healthy("otr_engine_set_trainable");
  const layout::Parameter& root = model_.root(id);
  if (!root.trainable) {
    fail(OTR_E_STATE,
         "parameter \"{}\" was declared frozen and has no master and no states: declare it with "
         "trainable = 1 and freeze it with otr_engine_set_trainable",
         model_.at(id).name);
  }
  if (passes_in_window_ > 0) {
    fail(OTR_E_STATE,
         "otr_engine_set_trainable: gradients of this window were taken already; call "
         "otr_engine_step first");
  }
  const std::unique_lock lock(life_mutex_);
  model_.set_frozen(root.root, !trainable);
}

int64_t Engine::add_parameter(const std::string& name, const otr_tensor& initial,
                              const ParameterOptions& options) {
  require(State::declared, "otr_engine_add_parameter");
  if (name.empty())
    fail(OTR_E_ARGUMENT, "a parameter's name is empty: give each a name of its own");
  for (const std::string& text : {name, options.group}) {
    if (is_utf8(text)) continue;
    fail(OTR_E_ARGUMENT, "the name \"{}\" is not UTF-8, which a progress is written in",
         config::printable(text));
  }
  const tensor::View view =
      tensor::check(initial, format_text("the value of \"{}\"", name), false, device());
  layout::Parameter parameter;
  parameter.name = name;
  parameter.shape = view.shape;
  parameter.count = view.count;
  parameter.trainable = options.trainable;
  parameter.matrix = config_.optimizer.is_matrix(name, view.shape.size()) && view.count > 0;
  parameter.declared = parameter.contributions = options.contributions;
  if (options.held_bytes > 0 && (options.alias_of >= 0 || view.data != nullptr)) {
    fail(
        OTR_E_ARGUMENT,
        "parameter \"{}\" has held_bytes = {} {}: it is for a value that otr_engine_set_initial is "
        "still to take; leave it 0",
        name, options.held_bytes,
        options.alias_of >= 0 ? "as an alias, which has no value of its own"
                              : "beside a value, which is copied now");
  }
  // Everything that can fail comes before the declaration: a failure declares nothing.
  Initial initial_values;
  initial_values.held = memory::Charge(ledger_, memory::Purpose::initial, options.held_bytes,
                                       view.on_host ? memory::Space::host : memory::Space::device);
  const bool verify = config_.initial == config::Initial::verify;
  if (options.alias_of < 0 && view.data != nullptr && (comm_->rank() == 0 || verify)) {
    memory::Block values(ledger_, memory::Purpose::initial, view.count * 4);
    read_tensor(view, reinterpret_cast<float*>(values.data()));
    round_initial(reinterpret_cast<float*>(values.data()), view.count);
    initial_values.hash = XXH3_64bits(values.data(), static_cast<size_t>(view.count) * 4);
    if (comm_->rank() == 0) initial_values.values = std::move(values);
  } else if (options.alias_of < 0 && verify) {
    initial_values.hash = hash_of_zeros(view.count);
  }
  const std::unique_lock lock(life_mutex_);
  initial_.push_back(std::move(initial_values));
  try {
    const int64_t id = model_.add(std::move(parameter), options.group, options.alias_of);
    groups_.resize(model_.groups().size(), config_.optimizer);
    return id;
  } catch (...) {
    initial_.pop_back();
    throw;
  }
}

void Engine::finalize() {
  constexpr const char* kCall = "otr_engine_finalize";
  require(State::committed, kCall);
  require_no_pass(kCall);
  collective(kCall, Again::always, [this] {
    reducer_->wait_idle();
    gather_->settle();
    control_->barrier("finalize the engine");
  });
  if (pending_) pending_->stop();
  const std::unique_lock lock(life_mutex_);
  state_ = State::finalized;
  let_go();
}

// What commit made, and what the host held for it; under life_mutex_.
void Engine::let_go() noexcept {
  drain();
  initial_.clear();
  gather_.reset();
  reducer_.reset();
  storage_.reset();
  update_pinned_ = {};
  update_staging_ = {};
  host_.reset();
  workers_.reset();
  control_.reset();
}

void Engine::abort(const std::string& reason) noexcept {
  const std::shared_lock lock(life_mutex_);
  if (comm_) {
    comm_->abort(reason);
  } else if (control_) {  // from commit on
    control_->abort(reason);
  }
}

void Engine::leave() noexcept {
  if (open_passes_ > 0) return;  // the pass takes the engine with it
  // First, so that nobody is told of another rank that has seen this one go.
  if (control_) control_->give_up(control_->rank());
  if (is_pending_) control_->cancel();
  if (gather_) gather_->cancel();
  if (storage_) storage_->cancel();
  if (reducer_) reducer_->stop();
  pending_.reset();
  const std::unique_lock lock(life_mutex_);
  let_go();
  comm_.reset();
}

void Engine::acquire(const int64_t* ids, int64_t count, bool as_float32, device::Stream stream,
                     otr_tensor* out) {
  require(State::committed, "otr_engine_acquire");
  note_stream(stream);
  if (plan_->home != Home::slices) {
    on_device([&] { gather_->acquire(ids, count, as_float32, out); });
    return;
  }
  for (int64_t i = 0; i < count; ++i) static_cast<void>(model_.at(ids[i]));
  collective("otr_engine_acquire", Again::always,
             [&] { gather_->acquire(ids, count, as_float32, out); });
}

void Engine::release(const int64_t* ids, int64_t count, device::Stream stream) {
  require(State::committed, "otr_engine_release");
  note_stream(stream);
  gather_->release(ids, count);
}

void Engine::prefetch(const int64_t* ids, int64_t count) {
  require(State::committed, "otr_engine_prefetch");
  for (int64_t i = 0; i < count; ++i) static_cast<void>(model_.at(ids[i]));
  if (plan_->home != Home::slices) return;  // an acquire is a pointer
  collective("otr_engine_prefetch", Again::never, [&] { gather_->prefetch(ids, count); });
}

void Engine::set_group_value(const std::string& group, const std::string& name, double value) {
  require_healthy("otr_engine_set_group_value");
  hyperparameters_set_ = true;
  if (!group.empty()) {
    config::set_hyperparameter(groups_[static_cast<size_t>(model_.group_of(group))], name, value);
    return;
  }
  for (config::OptimizerConfig& g : groups_) config::set_hyperparameter(g, name, value);
  config::set_hyperparameter(config_.optimizer, name, value);  // for groups declared later
}

double Engine::group_value(const std::string& group, const std::string& name) const {
  const int32_t index = group.empty() ? 0 : model_.group_of(group);
  const config::OptimizerConfig& own = groups_[static_cast<size_t>(index)];
  if (name == "scheduled_lr") {
    return optimizer::scheduled_lr(own.schedule, applied_steps_, own.lr);
  }
  if (!own.schedule.sets(name)) return config::get_hyperparameter(own, name);
  return config::get_hyperparameter(optimizer::scheduled(own, applied_steps_), name);
}

}  // namespace outrigger::engine

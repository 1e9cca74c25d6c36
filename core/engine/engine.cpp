// SPDX-License-Identifier: Apache-2.0
// An engine's life, and what can be asked of it at any time.
#include "core/engine/engine.h"

#include <mutex>

#include "core/comm/clocks.h"
#include "core/comm/combine.h"
#include "core/comm/mesh.h"
#include "core/engine/log.h"
#include "core/engine/pass.h"

namespace outrigger::engine {

Engine::Engine(std::shared_ptr<Context> context, std::shared_ptr<comm::Communicator> comm,
               std::string_view config_json, MakeStore make_store)
    : comm_(std::move(comm)),
      make_store_(make_store),
      declared_(std::move(context), config_json, comm_->rank(), comm_->size()),
      run_(declared_.config),
      health_(*comm_, [this](const Error& error, bool first) { tell(error, first); }) {}

Engine::~Engine() {
  if (window_) window_->reducer().stop();
  drain();
}

void Engine::require(State state, const char* call) const {
  health_.require(call);
  if (state_ == state) return;
  static constexpr const char* kNow[] = {"not committed yet: call otr_engine_commit first",
                                         "committed already: declarations are closed", "finalized"};
  fail(OTR_E_STATE, "{}: the engine is {}", call, kNow[static_cast<size_t>(state_.load())]);
}

void Engine::set_device(const otr_device& device) {
  require(State::declared, "otr_engine_set_device");
  declared_.set_device(device);
}

int64_t Engine::add_parameter(const std::string& name, const otr_tensor& initial,
                              const ParameterOptions& options) {
  require(State::declared, "otr_engine_add_parameter");
  return declared_.add(name, initial, options);
}

void Engine::commit() {
  constexpr const char* kCall = "otr_engine_commit";
  require(State::declared, kCall);
  watch_.add_from_environment();
  // Here the ranks meet; afterwards none is to be waited for long.
  comm_->follow(run_.moment);
  health_.collective(kCall, Again::always, [this] { control_ = comm_->duplicate("control"); });
  health_.watch(control_.get());
  health_.collective(kCall, Again::never, [this] {
    compare_declarations(declared_, *control_);
    join_mesh();
    committed_ = std::make_unique<Committed>(declared_, *comm_, *control_, make_store_);
    window_ = std::make_unique<Window>(declared_, *committed_, run_, comm_->duplicate("gradients"));
    updater_ = std::make_unique<Updater>(declared_, *committed_, run_, *window_, new_weights_);
    values_ = std::make_unique<Values>(declared_, *committed_, *window_, health_);
    if (config().asynchronous_saves) {
      saver_ = std::make_unique<Saver>(declared_, *committed_->states,
                                       control_->duplicate("asynchronous saves"),
                                       committed_->plan.snapshots);
    }
    require_memory(declared_, *committed_);
    values_->distribute_initial();
    compare_clocks();
  });
  run_.updates.assign(static_cast<size_t>(model().size()), 0);
  log_commit(declared_, *committed_);
  watch_.start(*committed_);
  const std::unique_lock lock(declared_.mutex);
  comm_.reset();  // whoever destroys the communicator leaves its group
  state_ = State::committed;
}

// The ranks are as declared: from here on what they share out is cut over a group of them.
void Engine::join_mesh() {
  const int32_t shard = config::shard_of(config(), declared_.world);
  if (shard == declared_.world) return;
  std::shared_ptr<comm::Communicator> mesh = comm::make_mesh(*comm_, shard, config().divide_states);
  {
    const std::unique_lock lock(declared_.mutex);  // an abort from another thread
    comm_.swap(mesh);
  }
  std::unique_ptr<comm::Communicator> control = comm_->duplicate("control");
  health_.watch(control.get());
  control_ = std::move(control);
}

// Traces of several hosts are put together by it. Ranks of one host have one clock.
void Engine::compare_clocks() {
  if (control_->is_one_host()) return;
  int32_t traces = declared_.timeline.has_traces() ? 1 : 0;
  comm::combine_value(
      *control_, traces, [](int32_t& into, const int32_t& from) { into |= from; },
      "who writes traces");
  if (traces == 0) return;
  const comm::ClockOffset offset =
      comm::compare_clocks(*control_, [this] { return declared_.timeline.calendar_now(); });
  declared_.timeline.set_clock(offset.nanoseconds, offset.bound);
}

void Engine::finalize() {
  constexpr const char* kCall = "otr_engine_finalize";
  require(State::committed, kCall);
  window_->require_no_pass(kCall);
  hear();
  if (saver_ && !saves_ended_) {
    saver_->wait(-1, kCall);
    saver_->require_success_everywhere(health_, *control_, kCall, Again::at_first);
    saves_ended_ = true;  // a finalize that is interrupted from here on does not come here again
  }
  health_.collective(kCall, Again::always, [this] {
    window_->reducer().wait_idle();
    committed_->gather.settle();
    control_->barrier("finalize the engine");
  });
  if (pending_) pending_->stop();
  watch_.end("finalized");
  const std::unique_lock lock(declared_.mutex);
  state_ = State::finalized;
  let_go();
}

// Before host memory is freed that the device may still be copying from or to.
void Engine::drain() noexcept {
  if (declared_.device) declared_.device->drain();
}

// What commit made, and what the host held for it; under the declarations' mutex.
void Engine::let_go() noexcept {
  if (committed_) committed_->published.stop();  // it tells the updater what has come
  drain();
  away_.reset();
  saver_.reset();
  declared_.initial.clear();
  values_.reset();
  updater_.reset();
  window_.reset();
  committed_.reset();
  control_.reset();
}

void Engine::abort(const std::string& reason) noexcept {
  const std::shared_lock lock(declared_.mutex);
  if (comm_) {
    comm_->abort(reason);
  } else if (control_) {  // from commit on
    control_->abort(reason);
    if (committed_) committed_->abort(reason);
    if (saver_) saver_->abort(reason);
  }
}

void Engine::leave() noexcept {
  if (window_ && window_->has_open_passes()) return;  // the pass takes the engine with it
  // First, so that nobody is told of another rank that has seen this one go.
  if (control_) control_->give_up(control_->rank());
  if (health_.is_pending) control_->cancel();
  if (committed_) committed_->cancel();
  if (window_) window_->reducer().stop();
  std::unique_ptr<Saver> saver;
  {
    const std::unique_lock lock(declared_.mutex);
    saver.swap(saver_);
  }
  saver.reset();  // gives up what it writes, and an abort need not wait for that
  pending_.reset();
  const std::unique_lock lock(declared_.mutex);
  let_go();
  comm_.reset();
}

// Of a failure, whoever may not hear of it otherwise.
void Engine::tell(const Error& error, bool first) noexcept {
  // The other ranks cannot know of this one's device.
  const bool of_device = error.status() == OTR_E_DEVICE_FAULT ||
                         (declared_.device && error.status() == OTR_E_OUT_OF_MEMORY);
  if (of_device && control_) control_->abort_for(error, error.what());
  if (of_device && committed_) committed_->abort(error.what());
  // Nor of other trouble: who waits for this rank shall not wait for the deadline, and hears of the
  // rank where it began.
  if (control_) {
    const int32_t culprit = error.culprit() < 0 ? control_->rank() : error.culprit();
    if (window_) window_->reducer().give_up(culprit);
    if (committed_) committed_->give_up(culprit);
    control_->give_up(culprit);
  }
  if (!first) return;
  log_failure(declared_, error);
  watch_.end(error.what());
}

void Engine::check() {
  health_.check();
  const std::shared_lock lock(declared_.mutex);
  if (state_ != State::committed) return;
  try {
    window_->reducer().check();
    committed_->gather.check();
    control_->check();
  } catch (...) {
    health_.poison_with_current();
    throw;
  }
}

void Engine::acquire(const int64_t* ids, int64_t count, bool as_float32, device::Stream stream,
                     otr_tensor* out) {
  require_new("otr_engine_acquire", ids, count);
  require_here(OTR_STATES_PUBLISHED, "otr_engine_acquire");
  window_->note_stream(stream);
  const auto acquire = [&] {
    observe::Span span(&declared_.timeline, observe::Phase::acquire);
    committed_->gather.acquire(ids, count, as_float32, stream, out);
    span.set_bytes(committed_->gather.take_brought());
  };
  if (!committed_->published.is_in_pieces()) return health_.on_device(acquire);
  for (int64_t i = 0; i < count; ++i) static_cast<void>(model().at(ids[i]));
  health_.collective("otr_engine_acquire", Again::always, acquire);
}

void Engine::release(const int64_t* ids, int64_t count, device::Stream stream) {
  require_new("otr_engine_release", nullptr, 0);
  window_->note_stream(stream);
  window_->come_after_callers(stream);
  health_.on_device([&] { committed_->gather.release(ids, count, stream); });
}

void Engine::prefetch(const int64_t* ids, int64_t count) {
  require_new("otr_engine_prefetch", nullptr, 0);
  require_here(OTR_STATES_PUBLISHED, "otr_engine_prefetch");
  std::vector<int64_t> wanted;  // of a pending step what it has updated
  for (int64_t i = 0; i < count; ++i) {
    if (new_weights_.has(model().at(ids[i]).root)) wanted.push_back(ids[i]);
  }
  const auto prefetch = [&] { committed_->gather.prefetch(wanted); };
  if (!committed_->published.is_in_pieces()) return health_.on_device(prefetch);
  health_.collective("otr_engine_prefetch", Again::never, prefetch);
}

void Engine::set_initial(const int64_t* ids, int64_t count, const otr_tensor* values) {
  require(State::committed, "otr_engine_set_initial");
  require_here(kAllOfIt, "otr_engine_set_initial");
  hear();
  values_->set_initial(ids, count, values);
}

void Engine::read_value(int64_t id, int32_t value, const otr_tensor& out) {
  health_.on_device([&] {
    require(State::committed, "otr_engine_parameter_read");
    require_readable(value, "otr_engine_parameter_read");
    values_->read(id, value, out);
  });
}

void Engine::write_value(int64_t id, int32_t value, const otr_tensor& source) {
  require(State::committed, "otr_engine_parameter_write");
  require_here(kAllOfIt, "otr_engine_parameter_write");
  hear();
  values_->write(id, value, source);
}

void Engine::local_range(int64_t id, int64_t& first, int64_t& count) const {
  require(State::committed, "otr_engine_local_range");
  const auto piece = committed_->local_piece(model().root(id).root);
  first = piece ? piece->first : 0;
  count = piece ? piece->count : 0;
}

void Engine::read_local(int64_t id, int32_t value, const otr_tensor& out) {
  require(State::committed, "otr_engine_local_read");
  require_readable(value, "otr_engine_local_read");
  health_.on_device([&] { values_->read_local(id, value, out); });
}

void Engine::write_local(int64_t id, int32_t value, const otr_tensor& source) {
  require(State::committed, "otr_engine_local_write");
  require_here(kAllOfIt, "otr_engine_local_write");
  hear();
  health_.on_device([&] { values_->write_local(id, value, source); });
}

std::vector<Section> Engine::sections() const {
  require(State::committed, "sections");
  return sections_of(*committed_);
}

void Engine::read_section(const Section& section, Encoding encoding, std::span<std::byte> out) {
  require_between_windows("read_section");
  require_here(kAllOfIt, "read_section");
  health_.on_device([&] { engine::read_section(declared_, *committed_, section, encoding, out); });
}

}  // namespace outrigger::engine

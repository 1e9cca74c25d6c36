// SPDX-License-Identifier: Apache-2.0
#include "core/engine/saver.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"
#include "core/engine/log.h"

namespace outrigger::engine {

namespace {

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

Saver::Saver(Declared& declared, StateStore& states, std::unique_ptr<comm::Communicator> group,
             int64_t room)
    : declared_(declared), states_(states), group_(std::move(group)) {
  worker_.start();  // here a rank can still refuse
  if (room > 0) room_ = memory::Block(declared.ledger, memory::Purpose::snapshots, room);
  states_.before_change([this] { secure(); });
}

// Without other ranks: what is not complete now does not appear.
Saver::~Saver() {
  states_.before_change(nullptr);
  cancelled_ = true;
  group_->cancel();
  while (!worker_.wait_for(worker_.added(), comm::kSlice)) {
  }
}

void Saver::begin(SaveJob job, std::shared_ptr<Snapshot> snapshot,
                  std::chrono::steady_clock::time_point began) {
  // A std::function is copied.
  const auto task = std::make_shared<SaveJob>(std::move(job));
  const std::lock_guard lock(mutex_);
  status_ = {};
  status_.state = State::under_way;
  status_.tag = task->target().tag;
  status_.bytes = snapshot->contents().outline().file_bytes;
  status_.held_up = seconds_since(began);
  snapshot_ = snapshot;
  began_ = began;
  written_ = 0;
  job_ = worker_.add([this, task, snapshot = std::move(snapshot)] { save(*task, *snapshot); });
}

void Saver::secure() noexcept {
  std::shared_ptr<Snapshot> snapshot;
  {
    const std::lock_guard lock(mutex_);
    snapshot = snapshot_;
  }
  if (!snapshot || snapshot->is_secure()) return;
  const auto began = std::chrono::steady_clock::now();
  snapshot->secure();
  const std::lock_guard lock(mutex_);
  status_.held_up += seconds_since(began);
}

void Saver::save(SaveJob& job, Snapshot& snapshot) {
  const observe::Span span(&declared_.timeline, observe::Phase::write, job.target().tag);
  std::optional<Error> failure;
  try {
    Together together(*group_, "otr_engine_save", [](const auto& body) { body(); });
    job.finish(together, [&](checkpoint::Folder& folder) {
      return write_file(folder, snapshot, group_->rank(), declared_.ledger, [&](int64_t written) {
        written_ = written;
        if (cancelled_) fail(OTR_E_ABORTED, "the engine was destroyed before its end");
        together.tick();
      });
    });
  } catch (const Error& error) {
    failure = caused(error);
  } catch (const std::exception& error) {
    failure = Error(OTR_E_INTERNAL, error.what());
  }
  job.release();
  end(failure ? State::failed : State::done, failure);
}

// Rank 0 takes the folder with it when it leaves, and what another rank then fails with is not the
// cause. No rank comes to a barrier it has left.
Error Saver::caused(const Error& failure) const {
  if (cancelled_ || failure.status() != OTR_E_NOT_FOUND) return failure;
  try {
    group_->barrier("otr_engine_save");
  } catch (const Error& left) {
    return Error(left.status(), format_text("{}; here: {}", left.what(), failure.what()));
  }
  return failure;
}

void Saver::end(State state, const std::optional<Error>& failure) {
  Status ended;
  {
    const std::lock_guard lock(mutex_);
    snapshot_.reset();
    status_.state = state;
    status_.seconds = seconds_since(began_);
    status_.written = written_;
    if (failure) status_.failure = failure->what();
    failure_ = failure;
    ended = status_;
  }
  log_save(declared_, {ended.tag, ended.failure, ended.bytes, ended.seconds, ended.held_up});
}

bool Saver::is_under_way() const {
  const std::lock_guard lock(mutex_);
  return status_.state == State::under_way;
}

Saver::Status Saver::status() const {
  const std::lock_guard lock(mutex_);
  Status status = status_;
  if (status.state == State::under_way) {
    status.written = written_;
    status.seconds = seconds_since(began_);
  }
  return status;
}

bool Saver::wait(double seconds, const char* call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = comm::deadline_in(seconds < 0 ? HUGE_VAL : seconds);
  uint64_t job = 0;
  {
    const std::lock_guard lock(mutex_);
    job = job_;
  }
  for (;;) {
    const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
    if (worker_.wait_for(job, std::min<Clock::duration>(left, comm::kSlice))) return true;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    if (interrupted(now)) {
      fail(OTR_E_INTERRUPTED,
           "{} was interrupted while it waited for the end of an asynchronous save, which goes on: "
           "call it again",
           call);
    }
  }
}

std::optional<Error> Saver::untold() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return {};
  return Error(failure_->status(),
               format_text("the asynchronous save of checkpoint \"{}\" failed: {}",
                           printable(status_.tag), failure_->what()));
}

void Saver::require_success() {
  const std::optional<Error> failure = untold();
  if (!failure) return;
  {
    const std::lock_guard lock(mutex_);
    failure_.reset();
  }
  throw Error(*failure);
}

void Saver::require_success_everywhere(Health& health, comm::Group& control, const char* call,
                                       Again again) {
  comm::FirstVerdict first;
  if (const std::optional<Error> failure = untold()) {
    first.set(control.rank(), failure->status(), failure->what());
  }
  health.collective(call, again,
                    [&] { comm::combine_value(control, first, comm::merge_first, call); });
  require_success();
  first.require(call);
}

}  // namespace outrigger::engine

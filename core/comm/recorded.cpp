// SPDX-License-Identifier: Apache-2.0
#include "core/comm/recorded.h"

#include <atomic>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/comm/forwarding.h"
#include "core/observe/quick_clock.h"

namespace outrigger::comm {
namespace {

using observe::FlightEntry;
using observe::FlightRecorder;
using observe::put_text;

// Nothing of the operation has begun on any rank, or it is to be called again: it has no number.
bool was_refused(int32_t status) {
  return status == OTR_E_ARGUMENT || status == OTR_E_STATE || status == OTR_E_UNSUPPORTED ||
         status == OTR_E_INTERRUPTED;
}

class Recorded final : public Forwarding {
 public:
  Recorded(std::unique_ptr<Communicator> made, std::shared_ptr<FlightRecorder> recorder,
           std::string_view name, std::shared_ptr<const Moment> moment)
      : Forwarding(std::move(made)),
        recorder_(std::move(recorder)),
        moment_(std::move(moment)),
        place_(recorder_->open({inner().identity(), rank(), size(), provider(), name})) {
    entry_.group = inner().identity();
  }
  ~Recorded() override { recorder_->close(place_); }

  void follow(std::shared_ptr<const Moment> moment) override { moment_ = std::move(moment); }

  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    return kept("duplicate", 0, 0, name, [&] {
      return std::make_unique<Recorded>(inner().duplicate(name), recorder_, name, moment_);
    });
  }
  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override {
    return kept("split", 0, 0, {}, [&]() -> std::unique_ptr<Communicator> {
      auto made = inner().subgroup(members);
      if (made == nullptr) return made;
      return std::make_unique<Recorded>(std::move(made), recorder_, "split", moment_);
    });
  }

  void barrier(std::string_view label) override {
    kept("barrier", 0, 0, label, [&] { inner().barrier(label); });
  }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    kept("broadcast", data.size(), 0, label, [&] { inner().broadcast(data, root, label); });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    kept("all_gather", mine.size(), 0, label, [&] { inner().all_gather(mine, all, label); });
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    size_t bytes = 0;
    for (const Part& part : parts) bytes += part.bytes.size();
    kept("all_gather_parts", bytes, 0, label, [&] { inner().all_gather_parts(parts, label); });
  }
  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    kept("combine", value.size(), 0, label, [&] { inner().combine(value, merge, label); });
  }
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    return kept("create_window", bytes, 0, label,
                [&] { return inner().create_window(kind, bytes, label); });
  }
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    return kept("reduce", slice_bytes, offset, label,
                [&] { return inner().exchange(window, offset, slice_bytes, label); });
  }
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    kept("all_gather_window", slice_bytes, offset, label,
         [&] { inner().all_gather_window(window, offset, slice_bytes, label); });
  }

  // Not every rank waits in these: they have the number of the operation before them.
  void wait_drained(uint64_t ticket, std::string_view label) override {
    if (inner().is_drained(ticket)) return;
    kept<false>("wait_drained", 0, 0, label, [&] { inner().wait_drained(ticket, label); });
  }
  void watch(const std::function<bool()>& ready, std::string_view label) override {
    kept<false>("watch", 0, 0, label, [&] { inner().watch(ready, label); });
  }

  void abort(std::string_view reason) noexcept override {
    recorder_->fail(entry_.group, OTR_E_ABORTED, rank(), reason);
    inner().abort(reason);
  }
  void abort_for(const Error& error, std::string_view reason) noexcept override {
    recorder_->fail(entry_.group, error.status(), error.culprit(), reason);
    inner().abort_for(error, reason);
  }
  // An engine's threads may learn of a failure by this first, and then cancel what else waits.
  void check() const override {
    try {
      inner().check();
    } catch (const Error& error) {
      keep(error.status(), error.culprit(), error.what());
      throw;
    }
  }
  void cancel() noexcept override {
    is_cancelled_.store(true, std::memory_order_relaxed);
    inner().cancel();
  }

 private:
  template <bool kCounts = true, typename Body>
  auto kept(std::string_view what, size_t bytes, size_t offset, std::string_view label,
            const Body& body) -> decltype(body()) {
    entry_.number += kCounts ? 1 : 0;
    entry_.bytes = bytes;
    entry_.offset = offset;
    // Mostly unchanged: a word that is written in two halves is slow to copy whole right after.
    if (entry_.status != OTR_OK) entry_.status = OTR_OK;
    if (entry_.culprit != -1) entry_.culprit = -1;
    if (moment_ != nullptr) {
      entry_.step = moment_->step.load(std::memory_order_relaxed);
      entry_.micro_step = moment_->micro_step.load(std::memory_order_relaxed);
    }
    bool is_other = put_text(entry_.label, label);
    if (what.data() != what_) {
      what_ = what.data();
      is_other |= put_text(entry_.what, what);
    }
    entry_.begun = clock_.now();
    struct End {
      Recorded& self;
      const bool is_kept;
      ~End() {
        if (!is_kept) return;
        self.entry_.ended = self.clock_.now();
        self.recorder_->end(self.place_, self.entry_);
      }
    };
    try {
      const End end{*this, recorder_->begin(place_, entry_, is_other)};
      return run(body);
    } catch (const std::exception&) {
      if (kCounts && was_refused(entry_.status)) --entry_.number;
      throw;
    }
  }

  template <typename Body>
  auto run(const Body& body) -> decltype(body()) {
    try {
      return body();
    } catch (const Error& error) {
      failed(error.status(), error.culprit(), error.what());
      throw;
    } catch (const std::exception& error) {
      failed(OTR_E_INTERNAL, -1, error.what());
      throw;
    }
  }

  void failed(int32_t status, int32_t culprit, std::string_view text) noexcept {
    entry_.status = status;
    entry_.culprit = culprit;
    try {
      inner().check();
    } catch (const std::exception&) {  // the group is over
      keep(status, culprit, text);
    }
  }

  void keep(int32_t status, int32_t culprit, std::string_view text) const noexcept {
    if (status == OTR_E_STATE || is_cancelled_.load(std::memory_order_relaxed)) return;
    recorder_->fail(entry_.group, status, culprit, text);
  }

  const std::shared_ptr<FlightRecorder> recorder_;
  std::shared_ptr<const Moment> moment_;
  const int32_t place_;
  std::atomic<bool> is_cancelled_{false};
  observe::QuickClock clock_;
  FlightEntry entry_{};
  const char* what_ = nullptr;  // of entry_, a literal: comparing texts takes longer
};

}  // namespace

std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> made,
                                       std::shared_ptr<FlightRecorder> recorder,
                                       std::string_view name) {
  if (recorder == nullptr) return made;
  return std::make_unique<Recorded>(std::move(made), std::move(recorder), name, nullptr);
}

}  // namespace outrigger::comm

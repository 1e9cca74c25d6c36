// SPDX-License-Identifier: Apache-2.0
#include "core/comm/direct.h"

#include <chrono>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/between_devices.h"
#include "core/comm/combine.h"
#include "core/comm/device_window.h"
#include "core/comm/verdict.h"
#include "core/comm/wait.h"

namespace outrigger::comm {

DirectRanks::DirectRanks(Group& group, const device::CollectivePlugin& plugin,
                         device::Device& device)
    : device_(device), stream_(device.make_stream()) {
  constexpr std::string_view kLabel = "meet on the devices";
  struct First {
    Verdict verdict;
    device::Collective::Id id;
  } first{};
  const auto judged = [](Verdict& verdict, const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      verdict.set(error.status(), error.what());
    }
  };
  if (group.rank() == 0) {
    judged(first.verdict, [&] { first.id = device::Collective::make_id(plugin); });
  }
  group.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, kLabel);
  first.verdict.require(format_text("'{}'", kLabel), 0);
  FirstVerdict created;
  judged(created.verdict,
         [&] { collective_.emplace(plugin, device, first.id, group.rank(), group.size()); });
  if (created.verdict.status != OTR_OK) created.rank = group.rank();
  combine_value(group, created, merge_first, kLabel);
  created.require(format_text("'{}'", kLabel));
  bool is_own = false;  // others have to be told
  const auto is_ready = [&] {
    is_own = true;
    const bool ready = collective_->is_ready();
    is_own = false;
    return ready;
  };
  try {
    group.watch(is_ready, kLabel);
  } catch (const Error& error) {
    if (is_own) {
      group.post(
          Error(OTR_E_ABORTED,
                format_text("'{}' failed on rank {}: {}", kLabel, group.rank(), error.what()),
                group.rank()));
    }
    throw;
  }
}

namespace {

class Direct final : public BetweenDevices {
 public:
  Direct(std::unique_ptr<Communicator> host, std::shared_ptr<DirectRanks> ranks, Sums sums,
         size_t received_bytes)
      : BetweenDevices(std::move(host)), ranks_(std::move(ranks)), sums_(sums) {
    if (size() > 1) received_ = allocate(received_bytes, "received slices");
  }

  uint64_t reduce(const Reduce& reduce, std::string_view label) override {
    if (sums_ == Sums::ranked || size() == 1) return Communicator::reduce(reduce, label);
    inner().barrier(label);
    std::byte* const sum = received_->block(rank());
    begin(label, [&] {
      ranks_->collective().reduce_scatter(reduce.window.block(rank()) + reduce.offset, sum,
                                          reduce.fold.count, reduce.fold.source_format, stream());
    });
    finish(label);
    const void* const source = sum;
    device::SliceFold slice = reduce.fold;
    slice.sources = {&source, 1};
    const Folded folded = fold(device(), slice, label);
    if (reduce.norm != nullptr) kernels::merge(*reduce.norm, folded.norm);
    // The library does not tell whose element was not finite.
    if (reduce.origin != nullptr) device::keep_first(*reduce.origin, {folded.origin.flat, -1});
    return 0;
  }

  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    std::byte* const from = window.block(rank()) + offset;
    inner().barrier(label);
    slices_.assign(static_cast<size_t>(size()), from + at(rank(), slice_bytes));
    if (size() == 1 || slice_bytes == 0) return slices_;
    std::vector<device::DeviceTransfer> sends, receives;
    for (int32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      std::byte* const to = received_->block(rank()) + at(r, slice_bytes);
      sends.push_back({r, from + at(r, slice_bytes), slice_bytes});
      receives.push_back({r, to, slice_bytes});
      slices_[static_cast<size_t>(r)] = to;
    }
    begin(label, [&] { ranks_->collective().exchange(sends, receives, stream()); });
    finish(label);
    return slices_;
  }
  // The slices have been sent before exchange returned.
  uint64_t end_exchange() override { return 0; }
  bool is_drained(uint64_t) const override { return true; }
  void wait_drained(uint64_t, std::string_view) override { inner().check(); }

  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    const SliceRun run{offset, slice_bytes};
    all_gather_runs(window, {&run, 1}, label);
  }
  // The ranks meet once: what is interrupted there has begun nothing.
  void all_gather_runs(Window& window, std::span<const SliceRun> runs,
                       std::string_view label) override {
    inner().barrier(label);
    if (size() == 1) return;
    for (const SliceRun& run : runs) {
      std::byte* const all = window.block(rank()) + run.offset;
      begin(label, [&] {
        ranks_->collective().all_gather(all + at(rank(), run.slice_bytes), all, run.slice_bytes,
                                        stream());
      });
    }
    finish(label);
  }

 private:
  static size_t at(int32_t rank, size_t slice_bytes) {
    return static_cast<size_t>(rank) * slice_bytes;
  }
  [[nodiscard]] device::Device& device() const { return ranks_->device(); }
  [[nodiscard]] device::Stream stream() const { return ranks_->stream(); }

  std::shared_ptr<Window> allocate(size_t bytes, std::string_view label) override {
    return create_device_window(
        inner(), device(), bytes, label, [ranks = ranks_](std::span<std::byte> memory) {
          return ranks->collective().registered(memory.data(), memory.size());
        });
  }

  // Runs this rank's part of an operation; returns when it is in its stream.
  template <typename Body>
  void begin(std::string_view label, const Body& body) {
    guarded(label, [&](const auto& own) {
      own([&] {  // windows are filled in the own stream's order
        device().wait(stream(), device().record(device().own_stream()));
        body();
      });
      inner().watch([&] { return own([&] { return ranks_->collective().is_ready(); }); }, label);
    });
  }
  // Returns when what was begun is over.
  void finish(std::string_view label) {
    guarded(label, [&](const auto& own) {
      const device::Event done = own([&] { return device().record(stream()); });
      const auto is_over = [&] {
        const bool over = device().is_done(done);
        static_cast<void>(ranks_->collective().is_ready());  // nothing has failed
        return over;
      };
      inner().watch([&] { return own(is_over); }, label);
      // Not before: another engine's exchange may be behind what is in the own stream.
      own([&] { device().wait(device().own_stream(), done); });
    });
  }

  // body(own): what `own` runs is of this rank, and its failure is told to the others; another
  // failure is one that the group knows. Either ends what the devices do.
  template <typename Body>
  void guarded(std::string_view label, const Body& body) {
    bool is_own = false;
    const auto own = [&](const auto& part) {
      is_own = true;
      if constexpr (std::is_void_v<decltype(part())>) {
        part();
        is_own = false;
      } else {
        auto result = part();
        is_own = false;
        return result;
      }
    };
    try {
      body(own);
    } catch (const Error& error) {
      ranks_->collective().abort();
      if (!is_own) throw;
      if (error.status() == OTR_E_PEER_DEAD) name_the_dead(label);
      abort(format_text("'{}' failed on its device: {}", label, error.what()));
      throw;
    }
  }

  // A connection that broke says nothing of the rank behind it; the group may find out at once.
  void name_the_dead(std::string_view label) {
    const auto until = Clock::now() + std::chrono::seconds(1);
    inner().watch([&] { return Clock::now() >= until; }, label);
  }

  const std::shared_ptr<DirectRanks> ranks_;
  const Sums sums_;
  std::shared_ptr<Window> received_;
  std::vector<const void*> slices_;
};

}  // namespace

std::unique_ptr<Communicator> make_direct(std::unique_ptr<Communicator> host,
                                          std::shared_ptr<DirectRanks> ranks, Sums sums,
                                          size_t received_bytes) {
  return std::make_unique<Direct>(std::move(host), std::move(ranks), sums, received_bytes);
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// Who holds masters and moments. A step leases the states of the pieces that it updates, as many
// elements at a time as the store has room for, and gives them back; between two leases a store may
// keep them anywhere.
//
// resident: in memory where the update runs, that of each side of the plan. All is leased at once,
// and a lease is a pointer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/config/config.h"
#include "core/engine/devices.h"
#include "core/engine/movable.h"
#include "core/engine/plan.h"
#include "core/engine/published.h"
#include "core/layout/layout.h"

namespace outrigger::engine {

enum class State : uint8_t { master, exp_avg, exp_avg_sq };
inline constexpr size_t kStates = 3;

// Some of the three.
struct StateSet {
  std::array<bool, kStates> has{};
  constexpr bool operator[](State s) const { return has[static_cast<size_t>(s)]; }
  [[nodiscard]] constexpr bool any() const { return has[0] || has[1] || has[2]; }
};
inline constexpr StateSet kAllStates{{true, true, true}};
inline constexpr StateSet kMaster{{true, false, false}};
inline constexpr StateSet kMoments{{false, true, true}};
inline constexpr StateSet kNoStates{};

class StateStore {
 public:
  // Where the states of leased elements begin; null for those that there are not. A split master is
  // its lower halves: the upper ones are published. Block formats begin at a block, and have
  // scales.
  struct Leased {
    std::byte *master = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;
    float *exp_avg_scales = nullptr, *exp_avg_sq_scales = nullptr;
    [[nodiscard]] std::byte* of(State s) const {
      return s == State::master ? master : s == State::exp_avg ? exp_avg : exp_avg_sq;
    }
    [[nodiscard]] float* scales_of(State s) const {
      return s == State::exp_avg      ? exp_avg_scales
             : s == State::exp_avg_sq ? exp_avg_sq_scales
                                      : nullptr;
    }
  };

  StateStore(const layout::Model& model, const config::OptimizerConfig& optimizer);
  virtual ~StateStore() = default;
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  [[nodiscard]] kernels::Format format(State s) const { return formats_[static_cast<size_t>(s)]; }
  // Of a trainable root.
  [[nodiscard]] bool keeps(State s, int64_t root) const;

  // Elements, in whole leaves, that a step may hold leases on at a time. It may fetch as many more.
  [[nodiscard]] virtual int64_t room() const = 0;
  // Any thread may lease at any time, and a lease is a pointer.
  [[nodiscard]] virtual bool is_in_memory() const = 0;
  // Begins to bring states of a piece, or of a part of it that begins at a leaf. Does not wait.
  virtual void fetch(const layout::Piece& piece, StateSet read) = 0;
  // What was fetched before; else it is fetched now, whatever its size. Those that are not read
  // come with any content, and are written whole.
  [[nodiscard]] virtual Leased lease(const layout::Piece& piece, StateSet read) = 0;
  // Ends the lease of the same piece; what is not named here was not changed. Does not wait.
  virtual void give_back(const layout::Piece& piece, StateSet written) = 0;
  // Waits until all that was given back is kept.
  virtual void settle() = 0;
  // A device's memory of them.
  virtual void list_movable(std::vector<Movable>&) {}

  // guard: called before a lease that changes anything, on the thread that asks for it; null:
  // nothing is. Not while it runs.
  void before_change(std::function<void()> guard);
  // Until this event a device copies from masters. Before the next change of a master the host
  // waits for it.
  void note_reader(device::Device& device, device::Event until);
  // To be called before such a lease.
  void about_to_change(StateSet written);

 private:
  std::mutex mutex_;  // guards the next three
  std::function<void()> guard_;
  device::Device* reader_ = nullptr;
  device::Event read_;
  const layout::Model* model_;
  std::array<kernels::Format, kStates> formats_;
  bool keeps_exp_avg_, keeps_exp_avg_sq_;
};

// A lease of one piece, until the end of the object.
class Lease {
 public:
  Lease() = default;
  Lease(StateStore& store, const layout::Piece& piece, StateSet read, StateSet written)
      : store_(&store), piece_(piece), written_(written) {
    store.about_to_change(written);
    states_ = store.lease(piece, read);
  }
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(piece_, other.piece_);
    std::swap(written_, other.written_);
    std::swap(states_, other.states_);
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (store_ != nullptr) store_->give_back(piece_, written_);
  }
  [[nodiscard]] const StateStore::Leased& states() const { return states_; }

 private:
  StateStore* store_ = nullptr;
  layout::Piece piece_;
  StateSet written_;
  StateStore::Leased states_;
};

// What a store is made for; outlives it.
struct StoreContext {
  const layout::Model& model;
  const config::OptimizerConfig& optimizer;
  const Plan& plan;
  const Published& published;
  const Devices& devices;
  config::Pin pin;
  memory::Ledger& ledger;
};
using MakeStore = std::unique_ptr<StateStore> (*)(const StoreContext&);

[[nodiscard]] std::unique_ptr<StateStore> make_resident_store(const StoreContext& context);

}  // namespace outrigger::engine

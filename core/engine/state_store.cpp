// SPDX-License-Identifier: Apache-2.0
#include "core/engine/state_store.h"

#include <limits>
#include <vector>

#include "core/memory/block.h"
#include "core/memory/pinned.h"
#include "kernels/update_part.h"

namespace outrigger::engine {
namespace {

using memory::Block;
using memory::Purpose;

// Of one side.
struct States {
  States(const StoreContext& c, const Side& side)
      : master(c.ledger, Purpose::master, side.master, &c.devices.of(side.back)),
        exp_avg(c.ledger, Purpose::exp_avg, side.exp_avg, &c.devices.of(side.back)),
        exp_avg_sq(c.ledger, Purpose::exp_avg_sq, side.exp_avg_sq, &c.devices.of(side.back)) {
    // Masters in the published format go to the device as they are.
    if (c.plan.uploads_updates() && side.back != c.plan.front && c.plan.update_slots == 0 &&
        master) {
      pinned = memory::Pinned(*c.devices.front, c.ledger,
                              {master.data(), static_cast<size_t>(master.bytes())}, c.pin);
    }
  }
  Block master, exp_avg, exp_avg_sq;
  memory::Pinned pinned;
};

class Resident final : public StateStore {
 public:
  explicit Resident(const StoreContext& c)
      : StateStore(c.model, c.optimizer), plan_(c.plan), published_(c.published) {
    for (const Side& side : c.plan.sides) sides_.emplace_back(c, side);
  }

  int64_t room() const override { return std::numeric_limits<int64_t>::max(); }
  bool is_in_memory() const override { return true; }
  void fetch(const layout::Piece&, StateSet) override {}
  void give_back(const layout::Piece&, StateSet) override {}
  void settle() override {}
  void list_movable(std::vector<Movable>& all) override {
    for (size_t i = 0; i < sides_.size(); ++i) {
      if (plan_.sides[i].back == memory::Space::host) continue;
      add_movable(all, OTR_STATES_MASTER, Purpose::master, sides_[i].master, true);
      add_movable(all, OTR_STATES_MOMENTS, Purpose::exp_avg, sides_[i].exp_avg, true);
      add_movable(all, OTR_STATES_MOMENTS, Purpose::exp_avg_sq, sides_[i].exp_avg_sq, true);
    }
  }

  Leased lease(const layout::Piece& piece, StateSet) override {
    const Side& side = plan_.side_of(piece.parameter);
    const States& own = sides_[static_cast<size_t>(&side - plan_.sides.data())];
    const int64_t first = piece.shard - side.shard;
    Leased states;
    states.master =
        side.separate_master ? at(own.master, first, State::master) : published_.at(piece);
    if (keeps(State::exp_avg, piece.parameter)) {
      states.exp_avg = at(own.exp_avg, first, State::exp_avg);
      states.exp_avg_scales = scales_at(own.exp_avg, first, State::exp_avg);
    }
    if (keeps(State::exp_avg_sq, piece.parameter)) {
      const auto& zeros = plan_.second_moments;
      const int64_t element =
          zeros.empty() ? first : zeros[static_cast<size_t>(piece.parameter)] + piece.first;
      states.exp_avg_sq = at(own.exp_avg_sq, element, State::exp_avg_sq);
      states.exp_avg_sq_scales = scales_at(own.exp_avg_sq, element, State::exp_avg_sq);
    }
    return states;
  }

 private:
  [[nodiscard]] std::byte* at(const Block& block, int64_t element, State state) const {
    return kernels::advance(block.data(), element, format(state));
  }
  [[nodiscard]] float* scales_at(const Block& block, int64_t element, State state) const {
    const kernels::Format f = format(state);
    const int64_t elements = kernels::elements_in(block.bytes(), f);
    return kernels::advance_scales(kernels::scales_behind(block.data(), elements, f), element);
  }

  const Plan& plan_;
  const Published& published_;
  std::vector<States> sides_;
};

}  // namespace

StateStore::StateStore(const layout::Model& model, const config::OptimizerConfig& optimizer)
    : model_(&model),
      formats_{optimizer.master.format, optimizer.exp_avg.format, optimizer.exp_avg_sq.format},
      keeps_exp_avg_(optimizer.keeps_exp_avg()),
      keeps_exp_avg_sq_(optimizer.keeps_exp_avg_sq()) {}

bool StateStore::keeps(State s, int64_t root) const {
  if (s == State::exp_avg) return keeps_exp_avg_;
  if (s == State::exp_avg_sq) return keeps_exp_avg_sq_ && !model_->at(root).matrix;
  return true;
}

void StateStore::before_change(std::function<void()> guard) {
  const std::lock_guard lock(mutex_);
  guard_ = std::move(guard);
}

void StateStore::note_reader(device::Device& device, device::Event until) {
  const std::lock_guard lock(mutex_);
  reader_ = &device;
  read_ = std::move(until);
}

void StateStore::about_to_change(StateSet written) {
  if (!written.any()) return;  // the guard itself reads
  const std::lock_guard lock(mutex_);
  if (guard_) guard_();
  if (read_ && written[State::master]) reader_->synchronize(std::exchange(read_, {}));
}

std::unique_ptr<StateStore> make_resident_store(const StoreContext& context) {
  return std::make_unique<Resident>(context);
}

}  // namespace outrigger::engine

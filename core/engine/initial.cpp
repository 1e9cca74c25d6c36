// SPDX-License-Identifier: Apache-2.0
// First values, given after commit by every rank: each keeps its part of them, and nothing but
// their hashes goes over the ranks where they are equal.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/engine.h"
#include "core/tensor/tensor.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

constexpr const char* kCall = "otr_engine_set_initial";
constexpr const char* kLabel = "set initial values";

struct Hash {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state{XXH3_createState(),
                                                                 XXH3_freeState};
  Hash() {
    if (!state) throw std::bad_alloc();
    XXH3_64bits_reset(state.get());
  }
  // NOLINTNEXTLINE(readability-make-member-function-const): the digest changes
  void add(const void* data, size_t bytes) { XXH3_64bits_update(state.get(), data, bytes); }
  [[nodiscard]] uint64_t digest() const { return XXH3_64bits_digest(state.get()); }
};

// Of what one call gives.
struct Given {
  uint64_t count, hash;
  bool operator==(const Given&) const = default;
};

}  // namespace

struct Engine::First {
  int64_t id, root;
  tensor::View view;
  uint64_t hash = 0;
};

void Engine::set_initial(const int64_t* ids, int64_t count, const otr_tensor* values) {
  require(State::committed, kCall);
  if (in_training_) {
    fail(OTR_E_STATE,
         "{}: a pass was begun already, and initial values come before the first one: set weights "
         "with otr_engine_parameter_write",
         kCall);
  }
  std::vector<First> firsts;
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const layout::Parameter& p = model_.at(ids[i]);
    tensor::View view = view_for(p, values[i], "initial value");
    firsts.push_back({ids[i], p.root, std::move(view)});
    largest = std::max(largest, p.count);
  }
  const memory::Charge wholes(ledger_, Purpose::initial, beyond_held(firsts));
  const Block block(ledger_, Purpose::initial, std::min(largest, kInitialElements) * 4);
  auto* const scratch = reinterpret_cast<float*>(block.data());
  if (control_->size() > 1) {
    on_device([&] {
      for (First& first : firsts) first.hash = hash_initial(first.view, scratch);
    });
  }
  Hash given;
  for (const First& first : firsts) {
    given.add(&first.id, sizeof first.id);
    given.add(&first.hash, sizeof first.hash);
  }
  const uint64_t arguments = given.digest();
  collective(
      kCall, Again::at_first,
      [&] {
        gather_->settle();  // what is prefetched is about to change
        const std::vector<bool> differs = compare_firsts(firsts);
        for (size_t i = 0; i < firsts.size(); ++i) {
          touch(firsts[i].root, OTR_VALUE_MASTER);
          take(firsts[i], differs[i], scratch);
        }
        if (control_->size() > 1) control_->barrier(kLabel);  // all may read
        for (const First& first : firsts) gather_->refresh(first.root);
      },
      arguments);
  for (const First& first : firsts) taken(first.root);
}

// Bytes of host memory: a host that has said what it holds of a value gives it whole.
int64_t Engine::beyond_held(const std::vector<First>& firsts) const {
  int64_t bytes = 0;
  for (const First& first : firsts) {
    const int64_t held = initial_[static_cast<size_t>(first.root)].held.bytes(memory::Space::host);
    if (held > 0 && first.view.on_host) {
      bytes += std::max<int64_t>(0, kernels::bytes_of(first.view.count, first.view.format) - held);
    }
  }
  return bytes;
}

// True for those that differ over the ranks.
std::vector<bool> Engine::compare_firsts(const std::vector<First>& firsts) {
  std::vector<bool> differs(firsts.size(), false);
  if (control_->size() == 1) return differs;
  Hash ids, values;
  std::vector<uint64_t> hashes;
  for (const First& first : firsts) {
    ids.add(&first.id, sizeof first.id);
    values.add(&first.hash, sizeof first.hash);
    hashes.push_back(first.hash);
  }
  // Which parameters are given is compared apart from their values, which may differ.
  const std::array mine{Given{firsts.size(), ids.digest()}, Given{0, values.digest()}};
  const auto summary = comm::compare(*control_, std::span<const Given>(mine), kLabel);
  if (const auto& [first, other, lowest, rank] = summary[0]; rank >= 0) {
    fail(OTR_E_MISMATCH,
         "{}: rank 0 gives {} parameters and rank {} gives {}{}: every rank gives the same ids in "
         "the same order",
         kCall, first.count, rank, other.count, other.count == first.count ? ", but others" : "");
  }
  if (summary[1].rank < 0) return differs;
  const auto each = comm::compare(*control_, std::span<const uint64_t>(hashes), kLabel);
  for (size_t i = 0; i < each.size(); ++i) {
    differs[i] = each[i].rank >= 0;
    if (differs[i] && config_.initial == config::Initial::verify) {
      refuse_differing(firsts[i].id, each[i].rank);
    }
  }
  return differs;
}

// Writes what this rank keeps of a value: its own, or rank 0's, which is sent to all.
void Engine::take(const First& first, bool from_rank0, float* scratch) {
  const layout::Parameter& root = model_.at(first.root);
  int64_t begin = 0, end = root.count;
  if (!from_rank0 && root.trainable && !storage_->replicates()) {
    const auto piece = local_piece(first.root);
    begin = piece ? piece->first : 0;
    end = piece ? piece->first + piece->count : 0;
  }
  for (; begin < end; begin += kInitialElements) {
    const int64_t n = std::min(kInitialElements, end - begin);
    if (!from_rank0) {
      store(first.root, begin, n, initial_part(first.view, begin, n, scratch));
      continue;
    }
    // By way of scratch on rank 0, too: a broadcast may write its root's bytes, and these are the
    // host's.
    if (control_->rank() == 0) read_initial(first.view, begin, n, scratch);
    control_->broadcast(std::as_writable_bytes(std::span(scratch, static_cast<size_t>(n))), 0,
                        kLabel);
    store(first.root, begin, n, scratch);
  }
}

// Where they lie, if they are float32 in host memory one behind the other; else in scratch.
const float* Engine::initial_part(const tensor::View& view, int64_t first, int64_t count,
                                  float* scratch) {
  const bool rounds = config_.round_initial && config_.compute != Format::float32;
  if (view.on_host && view.contiguous && view.format == Format::float32 && !rounds) {
    return reinterpret_cast<const float*>(view.data) + first;
  }
  read_initial(view, first, count, scratch);
  return scratch;
}

void Engine::read_initial(const tensor::View& view, int64_t first, int64_t count, float* values) {
  read_part(view, first, count, values);
  round_initial(values, count);
}

uint64_t Engine::hash_initial(const tensor::View& view, float* scratch) {
  Hash hash;
  for (int64_t first = 0; first < view.count; first += kInitialElements) {
    const int64_t n = std::min(kInitialElements, view.count - first);
    hash.add(initial_part(view, first, n, scratch), static_cast<size_t>(n) * sizeof(float));
  }
  return hash.digest();
}

void Engine::round_initial(float* values, int64_t count) const {
  if (!config_.round_initial || config_.compute == Format::float32) return;
  std::array<uint16_t, 1024> rounded{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(rounded.size())) {
    const int64_t n = std::min<int64_t>(count - i, rounded.size());
    kernels::convert(rounded.data(), config_.compute, values + i, Format::float32, n);
    kernels::convert(values + i, Format::float32, rounded.data(), config_.compute, n);
  }
}

// The host need not hold it any more.
void Engine::taken(int64_t root) { initial_[static_cast<size_t>(root)].held = {}; }

// The first write of a value of a root takes its part of the untouched memory.
void Engine::touch(int64_t root, int32_t value) {
  uint8_t& known = touched_[static_cast<size_t>(root)];
  const auto bit = static_cast<uint8_t>(1U << static_cast<uint32_t>(value));
  if (in_training_ || (known & bit) != 0) return;
  known = static_cast<uint8_t>(known | bit);
  const auto piece = local_piece(root);
  if (value == OTR_VALUE_MASTER) {
    ledger_.touch(plan_->touched_by(model_, root, piece ? &*piece : nullptr));
  } else if (piece && plan_->back == memory::Space::host) {
    const bool first = value == OTR_VALUE_EXP_AVG;
    ledger_.touch(
        bytes_of(piece->count, first ? storage_->exp_avg_format() : storage_->exp_avg_sq_format()));
  }
}

void Engine::begin_training() {
  if (in_training_) return;
  in_training_ = true;
  ledger_.touch_all();
}

}  // namespace outrigger::engine

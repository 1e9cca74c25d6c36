// SPDX-License-Identifier: Apache-2.0
// First values, which commit distributes or every rank gives after it.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/start.h"
#include "core/engine/transfer.h"
#include "core/engine/values.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

constexpr const char* kCall = "otr_engine_set_initial";
constexpr const char* kLabel = "initial values";

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

// Where 16 bits hold them all: float32 values ↔ their 16-bit form, in the same memory: the first
// half of it, or the second one, so that neither overtakes the other.
void narrow(float* values, Format format, int64_t count) {
  std::array<uint16_t, 1024> part{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(part.size())) {
    const int64_t n = std::min<int64_t>(count - i, part.size());
    kernels::convert(part.data(), format, values + i, Format::float32, n);
    std::memcpy(reinterpret_cast<std::byte*>(values) + 2 * i, part.data(),
                2 * static_cast<size_t>(n));
  }
}

void widen(float* values, Format format, int64_t count) {
  std::array<uint16_t, 1024> part{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(part.size())) {
    const int64_t n = std::min<int64_t>(count - i, part.size());
    std::memcpy(part.data(), reinterpret_cast<std::byte*>(values) + 2 * (count + i),
                2 * static_cast<size_t>(n));
    kernels::convert(values + i, Format::float32, part.data(), format, n);
  }
}

}  // namespace

// Of what one call gives: of its ids, and of its values.
struct Values::Given {
  uint64_t count, hash;
  bool operator==(const Given&) const = default;
};

struct Values::First {
  int64_t id, root;
  tensor::View view;
  uint64_t hash = 0;
  // Of a value that was given at declaration: the copy, float32 as it is to be taken, which goes
  // with it; null on a rank that has none.
  float* copy = nullptr;
};

// Each rank takes its part of its own copy where all have the same values, else of rank 0's.
// Whether rank 0 gave a value is all that they tell each other before, and a hash where they have
// copies.
void Values::distribute_initial() {
  comm::Communicator& control = committed_.control;
  const config::Initial kind = declared_.config.initial;
  std::vector<First> firsts;
  std::vector<uint8_t> given;
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    const Declared::Initial& initial = declared_.initial[static_cast<size_t>(id)];
    auto* const copy = reinterpret_cast<float*>(initial.values.data());
    firsts.push_back({id, id, {}, initial.hash, copy});
    given.push_back(copy != nullptr ? 1 : 0);
  }
  control.broadcast(std::as_writable_bytes(std::span(given)), 0, kLabel);
  std::vector<bool> differs(firsts.size(), control.size() > 1);
  if (kind != config::Initial::rank0) {
    const std::vector<bool> compared = compare(firsts, given_of(firsts));
    if (kind == config::Initial::compare) differs = compared;
  }
  for (size_t i = 0; i < firsts.size(); ++i) {
    Declared::Initial& initial = declared_.initial[i];
    if (given[i] != 0) {
      First& first = firsts[i];
      const int64_t most = std::min(declared_.model.at(first.id).count, kInitialElements);
      const bool comes = differs[i] && first.copy == nullptr;
      const Block block(declared_.ledger, Purpose::initial, comes ? most * 4 : 0);
      touch(first.id, OTR_VALUE_MASTER);
      // Without a copy, and equal to rank 0's: zeros, as the memory is.
      if (comes || first.copy != nullptr) {
        take(first, differs[i], reinterpret_cast<float*>(block.data()));
      }
    }
    initial.values = {};
  }
  committed_.published.publish(declared_.trainable_roots());
  control.barrier(kLabel);
}

void Values::set_initial(const int64_t* ids, int64_t count, const otr_tensor* values) {
  if (window_.has_begun()) {
    fail(OTR_E_STATE,
         "{}: a pass was begun already, and initial values come before the first one: set weights "
         "with otr_engine_parameter_write",
         kCall);
  }
  comm::Communicator& control = committed_.control;
  std::vector<First> firsts;
  std::vector<int64_t> roots;
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const layout::Parameter& p = declared_.model.at(ids[i]);
    tensor::View view = view_for(declared_, p, values[i], "initial value");
    firsts.push_back({ids[i], p.root, std::move(view)});
    roots.push_back(p.root);
    largest = std::max(largest, p.count);
  }
  const memory::Charge wholes(declared_.ledger, Purpose::initial, beyond_held(firsts));
  const Block block(declared_.ledger, Purpose::initial, std::min(largest, kInitialElements) * 4);
  auto* const scratch = reinterpret_cast<float*>(block.data());
  if (control.size() > 1) {
    health_.on_device([&] {
      for (First& first : firsts) first.hash = hash_initial(first.view, scratch);
    });
  }
  const std::array<Given, 2> given = given_of(firsts);
  health_.collective(
      kCall, Again::at_first,
      [&] {
        settle(kLabel);
        const std::vector<bool> differs = compare(firsts, given);
        for (size_t i = 0; i < firsts.size(); ++i) {
          touch(firsts[i].root, OTR_VALUE_MASTER);
          take(firsts[i], differs[i], scratch);
        }
        if (committed_.published.has_replicas()) publish(roots);
        if (control.size() > 1) control.barrier(kLabel);  // all may read
        for (const First& first : firsts) committed_.gather.refresh(first.root);
      },
      XXH3_64bits(given.data(), sizeof given));
  for (const First& first : firsts) taken(first.root);
}

// Bytes of host memory: a host that has said what it holds of a value gives it whole.
int64_t Values::beyond_held(const std::vector<First>& firsts) const {
  int64_t bytes = 0;
  for (const First& first : firsts) {
    const int64_t held =
        declared_.initial[static_cast<size_t>(first.root)].held.bytes(memory::Space::host);
    if (held > 0 && first.view.on_host) {
      bytes += std::max<int64_t>(0, kernels::bytes_of(first.view.count, first.view.format) - held);
    }
  }
  return bytes;
}

std::array<Values::Given, 2> Values::given_of(const std::vector<First>& firsts) {
  Hash ids, values;
  for (const First& first : firsts) {
    ids.add(&first.id, sizeof first.id);
    values.add(&first.hash, sizeof first.hash);
  }
  return {Given{firsts.size(), ids.digest()}, Given{0, values.digest()}};
}

// True for those that differ. Which parameters are given is compared apart from their values, which
// may differ.
std::vector<bool> Values::compare(const std::vector<First>& firsts, std::span<const Given> given) {
  std::vector<bool> differs(firsts.size(), false);
  comm::Communicator& control = committed_.control;
  if (control.size() == 1) return differs;
  const auto summary = comm::compare(control, given, kLabel);
  if (const auto& [first, other, lowest, rank] = summary[0]; rank >= 0) {
    fail(OTR_E_MISMATCH,
         "{}: rank 0 gives {} parameters and rank {} gives {}{}: every rank gives the same ids in "
         "the same order",
         kCall, first.count, rank, other.count, other.count == first.count ? ", but others" : "");
  }
  if (summary[1].rank < 0) return differs;
  std::vector<uint64_t> hashes;
  for (const First& first : firsts) hashes.push_back(first.hash);
  const auto each = comm::compare(control, std::span<const uint64_t>(hashes), kLabel);
  for (size_t i = 0; i < each.size(); ++i) {
    differs[i] = each[i].rank >= 0;
    if (differs[i] && declared_.config.initial == config::Initial::verify) {
      refuse_differing(declared_.model, firsts[i].id, each[i].rank);
    }
  }
  return differs;
}

// Writes what this rank keeps of a value: its own, or rank 0's, which is sent to all.
void Values::take(const First& first, bool from_rank0, float* scratch) {
  const layout::Parameter& root = declared_.model.at(first.root);
  int64_t begin = 0, end = root.count;
  if (!from_rank0 && root.trainable && !committed_.published.replicates()) {
    const auto piece = committed_.local_piece(first.root);
    begin = piece ? piece->first : 0;
    end = piece ? piece->first + piece->count : 0;
  }
  for (; begin < end; begin += kInitialElements) {
    const int64_t n = std::min(kInitialElements, end - begin);
    float* const copy = first.copy == nullptr ? nullptr : first.copy + begin;
    if (!from_rank0) {
      store(first.root, begin, n,
            copy != nullptr ? copy : initial_part(first.view, begin, n, scratch));
      continue;
    }
    // By way of scratch on rank 0, too, where these are the host's bytes.
    if (copy == nullptr && committed_.control.rank() == 0) {
      read_initial(first.view, begin, n, scratch);
    }
    send(root, begin, n, copy != nullptr ? copy : scratch);
  }
}

// Elements [first, first + count) of rank 0's value, to all; values: room for them, which rank 0
// has filled. In the compute dtype, where no rank keeps more of them than that.
void Values::send(const layout::Parameter& root, int64_t first, int64_t count, float* values) {
  comm::Communicator& control = committed_.control;
  const Format compute = committed_.published.format();
  const bool rounded = declared_.rounds_initial() || !root.trainable ||
                       committed_.states->format(State::master) == compute;
  const bool narrows = rounded && compute != Format::float32;
  const bool from_here = control.rank() == 0;
  const auto bytes = std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
  const size_t half = bytes.size() / 2;
  if (from_here) store(root.root, first, count, values);
  if (from_here && narrows) narrow(values, compute, count);
  control.broadcast(!narrows ? bytes : bytes.subspan(from_here ? 0 : half, half), 0, kLabel);
  if (from_here) return;
  if (narrows) widen(values, compute, count);
  store(root.root, first, count, values);
}

// Where they lie, if they are float32 in host memory one behind the other; else in scratch.
const float* Values::initial_part(const tensor::View& view, int64_t first, int64_t count,
                                  float* scratch) {
  const bool as_it_is = !declared_.rounds_initial() && view.format == Format::float32;
  if (view.on_host && view.contiguous && as_it_is) {
    return reinterpret_cast<const float*>(view.data) + first;
  }
  read_initial(view, first, count, scratch);
  return scratch;
}

void Values::read_initial(const tensor::View& view, int64_t first, int64_t count, float* values) {
  read_part(declared_.ledger, declared_.front(), view, first, count, values);
  declared_.round_initial(values, count);
}

uint64_t Values::hash_initial(const tensor::View& view, float* scratch) {
  Hash hash;
  for (int64_t first = 0; first < view.count; first += kInitialElements) {
    const int64_t n = std::min(kInitialElements, view.count - first);
    hash.add(initial_part(view, first, n, scratch), static_cast<size_t>(n) * sizeof(float));
  }
  return hash.digest();
}

// The first write of a value of a root takes its part of the untouched memory.
void Values::touch(int64_t root, int32_t value) {
  uint8_t& known = touched_[static_cast<size_t>(root)];
  const auto bit = static_cast<uint8_t>(1U << static_cast<uint32_t>(value));
  if (window_.has_begun() || (known & bit) != 0) return;
  known = static_cast<uint8_t>(known | bit);
  const auto piece = committed_.local_piece(root);
  if (value == OTR_VALUE_MASTER) {
    declared_.ledger.touch(
        committed_.plan.touched_by(declared_.model, root, piece ? &*piece : nullptr));
  } else if (piece && committed_.back_of(root).is_host()) {
    const State state = value == OTR_VALUE_EXP_AVG ? State::exp_avg : State::exp_avg_sq;
    declared_.ledger.touch(bytes_of(piece->count, committed_.states->format(state)));
  }
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// First values, which commit distributes or every rank gives after it.
#include <xxhash.h>

#include <algorithm>
#include <array>
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
};

void Values::distribute_initial() {
  comm::Communicator& control = committed_.control;
  std::vector<uint8_t> given;
  for (const Declared::Initial& initial : declared_.initial)
    given.push_back(initial.values ? 1 : 0);
  control.broadcast(std::as_writable_bytes(std::span(given)), 0, "initial values");
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (given[static_cast<size_t>(id)] == 0) continue;  // zeros, as the memory is
    memory::Block& given_values = declared_.initial[static_cast<size_t>(id)].values;
    const int64_t count = declared_.model.at(id).count;
    const bool has_all = control.rank() == 0;
    const memory::Block part(declared_.ledger, memory::Purpose::initial,
                             has_all ? 0 : std::min(count, kInitialElements) * 4);
    touch(id, OTR_VALUE_MASTER);
    for (int64_t first = 0; first < count; first += kInitialElements) {
      const int64_t n = std::min(kInitialElements, count - first);
      auto* values = reinterpret_cast<float*>(has_all ? given_values.data() : part.data());
      if (has_all) values += first;
      control.broadcast(std::as_writable_bytes(std::span(values, static_cast<size_t>(n))), 0,
                        "initial values");
      store(id, first, n, values);
    }
    given_values = {};
  }
  committed_.published.publish(declared_.model, declared_.trainable_roots());
  control.barrier("initial values");
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
  Hash ids_given, values_given;
  for (const First& first : firsts) {
    ids_given.add(&first.id, sizeof first.id);
    values_given.add(&first.hash, sizeof first.hash);
  }
  const std::array<Given, 2> given{Given{firsts.size(), ids_given.digest()},
                                   Given{0, values_given.digest()}};
  health_.collective(
      kCall, Again::at_first,
      [&] {
        committed_.gather.settle();  // what is prefetched is about to change
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
    if (!from_rank0) {
      store(first.root, begin, n, initial_part(first.view, begin, n, scratch));
      continue;
    }
    // By way of scratch on rank 0, too: a broadcast may write its root's bytes, and these are the
    // host's.
    if (committed_.control.rank() == 0) read_initial(first.view, begin, n, scratch);
    committed_.control.broadcast(std::as_writable_bytes(std::span(scratch, static_cast<size_t>(n))),
                                 0, kLabel);
    store(first.root, begin, n, scratch);
  }
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
  } else if (piece && committed_.plan.back == memory::Space::host) {
    const State state = value == OTR_VALUE_EXP_AVG ? State::exp_avg : State::exp_avg_sq;
    declared_.ledger.touch(bytes_of(piece->count, committed_.states->format(state)));
  }
}

}  // namespace outrigger::engine

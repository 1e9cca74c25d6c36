// SPDX-License-Identifier: Apache-2.0
// From declarations to a running engine: compare over the ranks, lay out, allocate, distribute.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/engine.h"
#include "core/optimizer/random_key.h"
#include "core/topology/memory.h"

namespace outrigger::engine {

namespace {

// The first index at which a rank has another value than rank 0, and that rank. Collective.
struct Difference {
  size_t index = 0;
  int32_t rank = -1;  // −1: all are equal
};
Difference first_difference(comm::Group& group, std::span<const uint64_t> mine,
                            std::string_view label) {
  const auto compared = comm::compare(group, mine, label);
  for (size_t i = 0; i < compared.size(); ++i) {
    if (compared[i].rank >= 0) return {i, compared[i].rank};
  }
  return {};
}

// One line for each key of the effective configuration: "gradient_clipping = 1.0".
std::vector<std::string> lines_of(const std::string& effective_json) {
  constexpr std::string_view kValue = "/value";
  std::vector<std::string> lines;
  const auto flat = nlohmann::json::parse(effective_json).flatten();
  for (const auto& [path, value] : flat.items()) {
    const size_t end = path.rfind(kValue);
    if (end == std::string::npos) continue;
    std::string key = path.substr(1, end - 1);
    std::replace(key.begin(), key.end(), '/', '.');
    lines.push_back(format_text("{}{} = {}", key, path.substr(end + kValue.size()), value.dump()));
  }
  return lines;
}

}  // namespace

void Engine::commit() {
  constexpr const char* kCall = "otr_engine_commit";
  require(State::declared, kCall);
  // Here the ranks meet; afterwards none is to be waited for long.
  collective(kCall, Again::always, [this] { control_ = comm_->duplicate("control"); });
  collective(kCall, Again::never, [this] {
    compare_over_ranks();
    const int32_t workers = config_.workers > 0 ? config_.workers : context_->workers();
    workers_ = std::make_unique<Workers>(workers);
    layout_ = std::make_unique<layout::Layout>(model_, comm_->size(), config_.bucket_elements);
    host_ = std::make_unique<device::Host>(workers_.get());
    plan_.emplace(
        model_, *layout_, config_,
        Machine{comm_->rank(), comm_->shares_memory(), device_ != nullptr, comm_->hosts()});
    device::Device* const front = device_ ? device_.get() : host_.get();
    devices_ = {front, plan_->offloaded() ? host_.get() : front};
    storage_ =
        std::make_unique<Storage>(*control_, model_, *layout_, config_, *plan_, devices_, ledger_);
    reducer_ =
        make_reducer({comm_->rank(), &model_, layout_.get(), &config_, &*plan_, &ledger_, devices_},
                     comm_->duplicate("gradients"));
    std::unique_ptr<comm::Exchange> ahead;
    if (plan_->home == Home::slices) {
      ahead = comm::make_blocking_exchange(comm_->duplicate("prefetched parameters"),
                                           "prefetched parameters");
    }
    gather_ = std::make_unique<Gather>(model_, *layout_, *storage_, *control_, std::move(ahead),
                                       ledger_, *front);
    update_staging_ = memory::Block(ledger_, memory::Purpose::buckets, plan_->update_staging);
    if (update_staging_) {
      update_pinned_ = device::Pinned(*front, update_staging_.data(),
                                      static_cast<size_t>(plan_->update_staging));
    }
    if (plan_->matrices.elements > 0) {
      matrices_ = std::make_unique<Matrices>(*control_, *host_, model_, *layout_, *plan_, ledger_);
    }
    touched_.assign(static_cast<size_t>(model_.size()), 0);
    require_memory();
    if (config_.initial == config::Initial::verify) compare_initial_values();
    distribute_initial_values();
  });
  for (int64_t id = 0; id < model_.size(); ++id) {
    streams_.push_back(optimizer::random_stream(config_.optimizer.seed, model_.at(id).name));
  }
  updates_.assign(static_cast<size_t>(model_.size()), 0);
  log_commit();
  const std::unique_lock lock(life_mutex_);
  comm_.reset();  // whoever destroys the communicator leaves its group
  state_ = State::committed;
}

void Engine::compare_over_ranks() {
  struct Summary {
    uint64_t lines, hash;
    bool operator==(const Summary&) const = default;
  };
  std::vector<std::string> lines = lines_of(config_.effective_json);
  lines.push_back(format_text("device type = {}", device().device_type));
  for (std::string& line : model_.lines()) lines.push_back(std::move(line));
  std::vector<uint64_t> hashes;
  for (const std::string& line : lines) hashes.push_back(XXH3_64bits(line.data(), line.size()));
  constexpr std::string_view kLabel = "compare declarations";
  const Summary summary{hashes.size(),
                        XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t))};
  if (comm::compare(*control_, summary, kLabel).rank < 0) return;

  uint64_t longest = hashes.size();
  comm::combine_value(
      *control_, longest, [](uint64_t& into, uint64_t from) { into = std::max(into, from); },
      kLabel);
  hashes.resize(longest, 0);
  const Difference found = first_difference(*control_, hashes, kLabel);
  const auto line_of = [&](int32_t rank) {
    std::array<char, 400> text{};
    if (rank == control_->rank()) {
      const std::string& line = found.index < lines.size() ? lines[found.index] : "nothing";
      std::copy_n(line.data(), std::min(line.size(), text.size()), text.data());
    }
    control_->broadcast(std::as_writable_bytes(std::span(text)), rank, kLabel);
    return std::string(text.data(), strnlen(text.data(), text.size()));
  };
  const std::string first = line_of(0), other = line_of(found.rank);
  fail(OTR_E_MISMATCH,
       "ranks differ: rank 0 has `{}`, rank {} has `{}`. Every rank gives the same configuration "
       "and declares the same parameters in the same order",
       first, found.rank, other);
}

// Shared windows are touched when they are made; private blocks only by first values and steps,
// when a shortage would be the kernel's to settle. So what all ranks of the host will touch has to
// be there now, or to come back before: what holds first values goes as they are taken. Ranks that
// share no memory may be on hosts of their own, and each looks after itself. Every rank decides
// alike.
StartPeaks Engine::expected_start() const {
  Start start;
  for (const Initial& initial : initial_) {
    start.in_commit = start.in_commit || initial.values;
    start.held.push_back(initial.held.bytes(memory::Space::host) + initial.values.bytes());
  }
  return peaks_of_start(model_, *layout_, *plan_, comm_->rank(), start);
}

void Engine::require_memory() {
  constexpr int64_t kLeaveFree = int64_t{64} << 20;  // for everybody else
  struct Need {
    int64_t start, touch, given_back, free;  // start: at most at a time until all values are taken
    [[nodiscard]] int64_t most() const { return std::max(start, touch - given_back); }
  };
  const topology::FreeMemory free = topology::free_memory();
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t initial =  // given back before the first step
      ledger_.entries().at(static_cast<size_t>(memory::Purpose::initial)).resident;
  const StartPeaks start = expected_start();
  const bool one_host = control_->shares_memory();
  Need worst{start.total - start.at_commit, ledger_.untouched(), initial,
             static_cast<int64_t>(std::min(free.bytes, most))};
  const auto merge = [&](Need& into, const Need& from) {
    const auto missing = [](const Need& n) { return n.most() - n.free; };
    if (one_host) {
      into = {into.start + from.start, into.touch + from.touch, into.given_back + from.given_back,
              std::min(into.free, from.free)};
    } else if (missing(from) > missing(into)) {
      into = from;
    }
  };
  comm::combine_value(*control_, worst, merge, "compare memory");
  const int64_t needed = worst.most() + kLeaveFree;
  if (needed <= worst.free) return;
  std::string parts;
  const auto entries = ledger_.entries();
  for (size_t i = 0; i < memory::kPurposes; ++i) {
    const auto purpose = static_cast<memory::Purpose>(i);
    if (entries.at(i).resident == 0 || purpose == memory::Purpose::initial) continue;
    parts += format_text("{}{} {}", parts.empty() ? "" : ", ", memory::name_of(purpose),
                         topology::memory_text(static_cast<uint64_t>(entries.at(i).resident)));
  }
  fail(OTR_E_OUT_OF_MEMORY,
       "{} will touch {} more, and {} are free ({} on this rank). This rank's plan: {}. Use "
       "lower-precision states, a higher ZeRO stage, more hosts or a smaller model",
       one_host ? format_text("the {} ranks of this host", comm_->size()) : "a rank",
       topology::memory_text(static_cast<uint64_t>(needed)),
       topology::memory_text(static_cast<uint64_t>(worst.free)), free.source, parts);
}

void Engine::compare_initial_values() {
  std::vector<uint64_t> hashes;
  for (const Initial& initial : initial_) hashes.push_back(initial.hash);
  const Difference found = first_difference(*control_, hashes, "compare initial values");
  if (found.rank >= 0) refuse_differing(static_cast<int64_t>(found.index), found.rank);
}

void Engine::refuse_differing(int64_t id, int32_t rank) const {
  fail(OTR_E_MISMATCH,
       "initial values of parameter \"{}\" differ between rank 0 and rank {}: seed all ranks "
       "alike, or leave \"initial_values\" at \"rank0\"",
       model_.at(id).name, rank);
}

void Engine::distribute_initial_values() {
  std::vector<uint8_t> given;
  for (const Initial& initial : initial_) given.push_back(initial.values ? 1 : 0);
  control_->broadcast(std::as_writable_bytes(std::span(given)), 0, "initial values");
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (given[static_cast<size_t>(id)] == 0) continue;  // zeros, as the memory is
    memory::Block& given_values = initial_[static_cast<size_t>(id)].values;
    const int64_t count = model_.at(id).count;
    const bool has_all = control_->rank() == 0;
    const memory::Block part(ledger_, memory::Purpose::initial,
                             has_all ? 0 : std::min(count, kInitialElements) * 4);
    touch(id, OTR_VALUE_MASTER);
    for (int64_t first = 0; first < count; first += kInitialElements) {
      const int64_t n = std::min(kInitialElements, count - first);
      auto* values = reinterpret_cast<float*>(has_all ? given_values.data() : part.data());
      if (has_all) values += first;
      control_->broadcast(std::as_writable_bytes(std::span(values, static_cast<size_t>(n))), 0,
                          "initial values");
      store(id, first, n, values);
    }
    given_values = {};
  }
  control_->barrier("initial values");
}

}  // namespace outrigger::engine

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
#include "core/engine/committed.h"
#include "core/engine/start.h"
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

// Where a rank, or the ranks that share its memory, have a part of what others make.
bool is_cut(Home home) { return home == Home::shared || home == Home::slices; }

// What moves the device's memory between the ranks, if it is not the host.
std::shared_ptr<comm::DirectRanks> direct_ranks(Declared& declared, comm::Communicator& group) {
  if (declared.config.backend == config::Backend::host) return nullptr;
  constexpr std::string_view kKey = "outrigger.exchange.backend \"nccl\"";
  if (!declared.device) {
    fail(OTR_E_CONFIG,
         "{} is for devices, and this engine is on the CPU: call otr_engine_set_device, or leave "
         "the backend at \"host\"",
         kKey);
  }
  if (group.levels() != comm::Levels::one) {
    fail(OTR_E_UNSUPPORTED,
         "{} is not built yet for groups of ranks (outrigger.mesh) and communicators of hosts, "
         "whose sums have two levels: use a communicator of one level without a mesh, or leave the "
         "backend at \"host\"",
         kKey);
  }
  if (!declared.collective) return nullptr;  // one rank
  return std::make_shared<comm::DirectRanks>(group, *declared.collective, *declared.device);
}

std::unique_ptr<comm::Exchange> beside(comm::Communicator& comm, const char* name,
                                       observe::Timeline& timeline, observe::Phase phase) {
  return comm::make_blocking_exchange(comm.duplicate(name), name, {&timeline, phase});
}

std::unique_ptr<comm::Exchange> prefetch_over(comm::Communicator& given,
                                              observe::Timeline& timeline) {
  return beside(given, "prefetched parameters", timeline, observe::Phase::prefetch);
}

// Null where publishing moves nothing between ranks' copies, or from device to device.
std::unique_ptr<comm::Exchange> publish_over(comm::Communicator& own, const Plan& plan,
                                             observe::Timeline& timeline) {
  const bool from_host = plan.published_in == memory::Space::host || plan.publishes_pieces();
  if (plan.home != Home::replica || !from_host || own.size() == 1) return nullptr;
  return beside(own, "published parameters", timeline, observe::Phase::publish);
}

}  // namespace

Committed::Committed(Declared& declared, comm::Communicator& given, comm::Communicator& own,
                     MakeStore make_store)
    : counts(own.slice_counts()),
      model(declared.model),
      control(own),
      workers(declared.config.workers > 0 ? declared.config.workers : declared.context->workers()),
      host(&workers),
      devices{declared.device ? declared.device.get() : &host, &host, &declared.shown},
      direct(direct_ranks(declared, own)),
      layout(model, own.slices(), bucket_elements(model, declared.config, own.slices()),
             kept_on_device(model, declared.config)),
      plan(model, layout, declared.config, {own.shape(), declared.device != nullptr}),
      pieces(plan.pieces(model, layout, own.slice())),
      publishing(is_cut(plan.home) ? own.publishing("published parameters")
                                   : comm::Communicator::Publishing()),
      published(own, std::move(publishing.replicas), publish_over(own, plan, declared.timeline),
                model, layout, declared.config, plan, devices, direct, declared.ledger),
      states(make_store({model, declared.config.optimizer, plan, published, devices,
                         declared.config.pin, declared.ledger})),
      gather(model, published, *states, publishing.group ? *publishing.group : own,
             plan.home == Home::slices
                 ? prefetch_over(publishing.group ? *publishing.group : given, declared.timeline)
                 : nullptr,
             plan, declared.config, declared.ledger, devices) {}

std::optional<layout::Piece> Committed::local_piece(int64_t root) const {
  const layout::Parameter& parameter = model.at(root);
  if (!parameter.trainable || parameter.count == 0) return {};
  if (sharded()) return layout.piece(model, root, control.slice());
  const int64_t flat = layout.position(root).flat;
  return layout::Piece{root, 0, parameter.count, flat, flat};
}

void Committed::give_up(int32_t culprit) noexcept {
  gather.give_up(culprit);
  published.give_up(culprit);
  if (publishing.group) publishing.group->give_up(culprit);
}

void Committed::abort(std::string_view reason) const noexcept {
  published.abort(reason);
  if (publishing.group) publishing.group->abort(reason);
}

void Committed::cancel() noexcept {
  gather.cancel();
  published.cancel();
  if (publishing.group) publishing.group->cancel();
}

void compare_declarations(const Declared& declared, comm::Group& group) {
  struct Summary {
    uint64_t lines, hash;
    bool operator==(const Summary&) const = default;
  };
  std::vector<std::string> lines = lines_of(declared.config.effective_json);
  lines.push_back(format_text("device type = {}", declared.device_id().device_type));
  for (std::string& line : declared.model.lines()) lines.push_back(std::move(line));
  std::vector<uint64_t> hashes;
  for (const std::string& line : lines) hashes.push_back(XXH3_64bits(line.data(), line.size()));
  constexpr std::string_view kLabel = "compare declarations";
  const Summary summary{hashes.size(),
                        XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t))};
  if (comm::compare(group, summary, kLabel).rank < 0) return;

  uint64_t longest = hashes.size();
  comm::combine_value(
      group, longest, [](uint64_t& into, uint64_t from) { into = std::max(into, from); }, kLabel);
  hashes.resize(longest, 0);
  const Difference found = first_difference(group, hashes, kLabel);
  const auto line_of = [&](int32_t rank) {
    std::array<char, 400> text{};
    if (rank == group.rank()) {
      const std::string& line = found.index < lines.size() ? lines[found.index] : "nothing";
      std::copy_n(line.data(), std::min(line.size(), text.size()), text.data());
    }
    group.broadcast(std::as_writable_bytes(std::span(text)), rank, kLabel);
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
StartPeaks expected_start(const Declared& declared, const Committed& committed) {
  Start start;
  for (const Declared::Initial& initial : declared.initial) {
    start.in_commit = start.in_commit || initial.values;
    start.held.push_back(initial.held.bytes(memory::Space::host) + initial.values.bytes());
  }
  start.from_rank0 = start.in_commit && declared.config.initial != config::Initial::compare;
  return peaks_of_start(committed.model, committed.layout, committed.plan,
                        committed.control.slice(), start);
}

void require_memory(Declared& declared, const Committed& committed) {
  constexpr int64_t kLeaveFree = int64_t{64} << 20;  // for everybody else
  struct Need {
    int64_t start, touch, given_back, free;  // start: at most at a time until all values are taken
    [[nodiscard]] int64_t most() const { return std::max(start, touch - given_back); }
  };
  const topology::FreeMemory free = topology::free_memory();
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t initial =  // given back before the first step
      declared.ledger.entries().at(static_cast<size_t>(memory::Purpose::initial)).resident;
  const StartPeaks start = expected_start(declared, committed);
  comm::Communicator& group = committed.control;
  const bool one_host = group.is_one_host();
  Need worst{start.total - start.at_commit, declared.ledger.untouched(), initial,
             static_cast<int64_t>(std::min(free.bytes(), most))};
  const auto merge = [&](Need& into, const Need& from) {
    const auto missing = [](const Need& n) { return n.most() - n.free; };
    if (one_host) {
      into = {into.start + from.start, into.touch + from.touch, into.given_back + from.given_back,
              std::min(into.free, from.free)};
    } else if (missing(from) > missing(into)) {
      into = from;
    }
  };
  comm::combine_value(group, worst, merge, "compare memory");
  const int64_t needed = worst.most() + kLeaveFree;
  if (needed <= worst.free) return;
  std::string parts;
  const auto entries = declared.ledger.entries();
  for (size_t i = 0; i < memory::kPurposes; ++i) {
    const auto purpose = static_cast<memory::Purpose>(i);
    if (entries.at(i).resident == 0 || purpose == memory::Purpose::initial) continue;
    parts += format_text("{}{} {}", parts.empty() ? "" : ", ", memory::name_of(purpose),
                         topology::memory_text(static_cast<uint64_t>(entries.at(i).resident)));
  }
  fail(OTR_E_OUT_OF_MEMORY,
       "{} will touch {} more, and {} are free (this rank sees {}). This rank's plan: {}. Use "
       "lower-precision states, a higher ZeRO stage, more hosts or a smaller model",
       one_host ? format_text("the {} ranks of this host", group.size()) : "a rank",
       topology::memory_text(static_cast<uint64_t>(needed)),
       topology::memory_text(static_cast<uint64_t>(worst.free)), free.text(), parts);
}

void refuse_differing(const layout::Model& model, int64_t id, int32_t rank) {
  fail(OTR_E_MISMATCH,
       "initial values of parameter \"{}\" differ between rank 0 and rank {}: seed all ranks "
       "alike, or leave \"initial_values\" at \"rank0\"",
       model.at(id).name, rank);
}

}  // namespace outrigger::engine

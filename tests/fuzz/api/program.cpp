// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/program.h"

#include <memory>
#include <thread>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/state.h"

namespace otr_fuzz {
namespace {

// A program is a head and records. A record: two bytes choose the row of the table, two may make
// one rank do something else, the rest is for the row's own draws.
constexpr size_t kHead = 4, kRecord = 20, kMostRecords = 64;
constexpr double kMostSeconds = 120;

struct Head {
  explicit Head(std::span<const uint8_t> bytes)
      : world(bytes[0] % 8 < 3   ? 1
              : bytes[0] % 8 < 6 ? 2
                                 : 3),
        diverges(bytes[1] % 4 == 0),
        with_objects(bytes[2] % 8 != 0),
        with_plugin(bytes[2] / 8 % 4 != 0),
        ending(bytes.subspan(3, 1)) {}
  int32_t world;
  bool diverges;      // whether a rank may leave the common order
  bool with_objects;  // whether ranks begin with a context, and with a group of one if alone
  bool with_plugin;   // whether the first context has the simulated device
  std::span<const uint8_t> ending;
};

otr_context* make_context(Rank& rank, const Head& head) {
  otr_context* context = nullptr;
  CALL(rank, otr_context_create, nullptr, &context);
  if (head.with_plugin) CALL(rank, otr_context_load_plugin, context, "simulated");
  return context;
}

void end_first_group(Rank& rank) {
  for (const CommPlace& place : rank.comms.all) {
    if (place.handle == nullptr) continue;
    CALL(rank, otr_comm_abort, place.handle, "left the common order");
    return;
  }
}

void run_record(Rank& rank, const Head& head, std::span<const uint8_t> record) {
  uint32_t number = record[0] * 256U + record[1];
  if (head.diverges && record[2] < 8 && record[3] % head.world == rank.number) {
    if (record[2] < 3) return;
    if (record[2] < 5) return end_first_group(rank);
    number += 1 + record[3];
  }
  const Call& call = drawn_call(number);
  Bytes bytes(record.subspan(4));
  const size_t line = rank.trace.begin(call.name);
  // Looking at the state costs more than most calls.
  const bool looks = call.scope == Scope::local && record[3] % 4 == 0;
  const std::string before = looks ? seen(rank) : "";
  const int64_t changes = rank.trace.changes;
  call.run(rank, bytes);
  rank.trace.end(line, "row");
  if (before.empty() || rank.trace.changes != changes) return;
  const std::string after = seen(rank);
  if (!after.empty() && after != before) {
    broken(outrigger::format_text("\"{}\" failed and changed the state from\n{}to\n{}", call.name,
                                  before, after));
  }
}

void run_rank(Rank& rank, const Head& head, std::span<const uint8_t> records) {
  if (head.with_objects) {
    rank.contexts.all[0].handle = make_context(rank, head);
    if (head.world == 1) {
      CALL(rank, otr_comm_create_self, rank.contexts.all[0].handle, &rank.comms.all[0].handle);
    }
  }
  for (size_t i = 0; i < kMostRecords && records.size() >= kRecord; ++i) {
    run_record(rank, head, records.first(kRecord));
    records = records.subspan(kRecord);
  }
  Bytes ending(head.ending);
  rank.drop_all(ending);
}

using Ranks = std::vector<std::unique_ptr<Rank>>;

// Two groups of all ranks; the context they came from is gone before a rank begins.
void form_groups(Ranks& ranks, const Head& head, double timeout) {
  Rank& first = *ranks[0];
  const auto world = static_cast<int32_t>(ranks.size());
  otr_context* context = make_context(first, head);
  otr_comm_options options;
  CALL(first, otr_comm_options_init, &options, sizeof options);
  options.timeout = timeout;
  for (size_t group = 0; group < 2; ++group) {
    std::vector<otr_comm*> comms(ranks.size());
    CALL(first, otr_comm_create_threads, context, world, &options, comms.data());
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r]->comms.all[group].handle = comms[r];
  }
  GIVE_BACK(first, otr_context_destroy, context);
}

}  // namespace

void run_program(std::span<const uint8_t> bytes, double timeout, bool prints) {
  if (bytes.size() < kHead) return;
  const Head head(bytes);
  const std::span<const uint8_t> records = bytes.subspan(kHead);
  const Deadline deadline(kMostSeconds);
  const Holdings before = holdings();
  {
    Devices devices;
    Ranks ranks;
    for (int32_t r = 0; r < head.world; ++r) {
      ranks.push_back(std::make_unique<Rank>(r, head.world, timeout, devices));
    }
    if (head.world == 1) {
      run_rank(*ranks[0], head, records);
    } else {
      form_groups(ranks, head, timeout);
      std::vector<std::thread> threads;
      for (auto& rank : ranks) {
        threads.emplace_back([&rank, &head, records] { run_rank(*rank, head, records); });
      }
      for (std::thread& thread : threads) thread.join();
    }
    devices.close();
    expect_back_to(before);
    for (const auto& rank : ranks) {
      if (prints) rank->trace.print();
    }
  }
}

std::vector<uint8_t> program_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t records = 1 + random() % kMostRecords;
  std::vector<uint8_t> bytes(kHead + records * kRecord);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 16);
  return bytes;
}

}  // namespace otr_fuzz

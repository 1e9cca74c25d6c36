// SPDX-License-Identifier: Apache-2.0
// Sections of all ranks hold each element of each state once, with the values that the API reads,
// and as stored what the format says.
#include "core/engine/sections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>

#include "c_api/src/handles.h"
#include "kernels/composed.h"
#include "tests/engine/ranks.h"

namespace outrigger::test {
namespace {

using engine::Encoding;
using engine::Kept;
using engine::Section;
using kernels::Format;

constexpr int64_t kLengths[] = {1000, 7, 3000, 300, 40};
constexpr int32_t kFrozen = 3;  // and the one behind it

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

bool refuses(const std::function<void()>& call) {
  try {
    call();
    return false;
  } catch (const Error&) {
    return true;
  }
}

struct Owner {
  otr_engine* engine = nullptr;
  ~Owner() { otr_engine_destroy(engine); }
};

std::vector<float> numbers(int64_t count, int32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.01F * static_cast<float>((i * 37 + static_cast<size_t>(seed) * 11) % 201) - 1;
  }
  return values;
}

otr_tensor tensor_of(std::vector<float>& values, int64_t& count) {
  otr_tensor t;
  count = static_cast<int64_t>(values.size());
  NEED(otr_tensor_init(values.data(), "float32", 1, &count, &t));
  return t;
}

void train(otr_engine* engine, int32_t rank) {
  for (int32_t id = 0; id < 5; ++id) {
    int64_t count = 0;
    std::vector<float> values = numbers(kLengths[id], id);
    const otr_tensor initial = tensor_of(values, count);
    otr_param_options options;
    NEED(otr_param_options_init(&options, sizeof options));
    options.trainable = id < kFrozen ? 1 : 0;
    int64_t given = 0;
    NEED(otr_engine_add_parameter(engine, ("p" + std::to_string(id)).c_str(), &initial, &options,
                                  &given));
  }
  NEED(otr_engine_commit(engine));
  for (int32_t step = 0; step < 3; ++step) {
    otr_pass* pass = nullptr;
    NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
    for (int32_t id = 0; id < kFrozen; ++id) {
      int64_t count = 0;
      std::vector<float> values = numbers(kLengths[id], 5 + rank * 3 + step + id);
      const otr_tensor grad = tensor_of(values, count);
      NEED(otr_pass_add_grad(pass, id, &grad, nullptr));
    }
    NEED(otr_pass_end(pass));
    otr_pass_destroy(pass);
    NEED(otr_engine_step(engine, nullptr));
  }
}

std::vector<float> read(otr_engine* engine, int64_t id, Kept kept) {
  std::vector<float> values(static_cast<size_t>(kLengths[id]));
  int64_t count = 0;
  const otr_tensor out = tensor_of(values, count);
  const int32_t value = kept == Kept::master      ? OTR_VALUE_MASTER
                        : kept == Kept::exp_avg   ? OTR_VALUE_EXP_AVG
                        : kept == Kept::published ? OTR_VALUE_PUBLISHED
                                                  : OTR_VALUE_EXP_AVG_SQ;
  NEED(otr_engine_parameter_read(engine, id, value, &out));
  return values;
}

// What the stored bytes say, by the format alone.
std::vector<float> decoded(const Section& s, std::span<const std::byte> stored) {
  std::vector<float> values(static_cast<size_t>(s.count));
  const std::byte* const beside = stored.data() + kernels::plain_bytes_of(s.count, s.format);
  kernels::read_float32(values.data(), stored.data(), beside, s.format, s.count);
  return values;
}

// Which elements of which state of which parameter this rank has, as a list of bytes.
Bytes sections_of_rank(int32_t rank, otr_comm* comm, const char* config) {
  Owner owner;
  NEED(otr_engine_create(comm, config, &owner.engine));
  train(owner.engine, rank);
  engine::Engine& e = *owner.engine->object;
  std::map<std::pair<int64_t, Kept>, std::vector<float>> whole;
  for (int64_t id = 0; id < 5; ++id) {
    for (const Kept kept : {Kept::master, Kept::exp_avg, Kept::exp_avg_sq, Kept::published}) {
      if ((kept == Kept::published) == (id < kFrozen)) continue;
      whole[{id, kept}] = read(owner.engine, id, kept);
    }
  }
  Bytes held;
  for (const Section& s : e.sections()) {
    const std::vector<float>& all = whole.at({s.parameter, s.kept});
    std::vector<std::byte> stored(static_cast<size_t>(s.bytes));
    std::vector<float> values(static_cast<size_t>(s.count));
    e.read_section(s, Encoding::stored, stored);
    e.read_section(s, Encoding::float32, std::as_writable_bytes(std::span(values)));
    check(values == decoded(s, stored), "what is stored says something else than what is decoded");
    check(std::equal(values.begin(), values.end(), all.begin() + s.first), "a value differs");
    const int64_t range[] = {s.parameter, s.first, s.count, static_cast<int64_t>(s.kept)};
    const auto* bytes = reinterpret_cast<const unsigned char*>(range);
    held.insert(held.end(), bytes, bytes + sizeof range);
  }
  std::byte small{};
  check(refuses([&] { e.read_section(e.sections()[0], Encoding::float32, {&small, 1}); }),
        "too small a buffer was taken");
  otr_pass* pass = nullptr;
  NEED(otr_pass_begin(owner.engine, nullptr, 0, nullptr, &pass));
  std::vector<float> values(static_cast<size_t>(e.sections()[0].count));
  check(refuses([&] {
          e.read_section(e.sections()[0], Encoding::float32,
                         std::as_writable_bytes(std::span(values)));
        }),
        "a section was read while a pass was open");
  NEED(otr_pass_end(pass));
  otr_pass_destroy(pass);
  NEED(otr_engine_discard(owner.engine));
  NEED(otr_engine_finalize(owner.engine));  // no rank leaves before another is done
  return held;
}

// Over all ranks, or on each where nothing is sharded, every element once.
void expect_all(const std::vector<RankResult>& results, bool sharded) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> times;
  for (const RankResult& result : results) {
    ASSERT_EQ(result.error, "");
    for (size_t at = 0; at < result.bytes.size(); at += 4 * sizeof(int64_t)) {
      int64_t range[4];
      std::memcpy(range, result.bytes.data() + at, sizeof range);
      std::vector<int>& seen = times[{range[0], range[3]}];
      seen.resize(static_cast<size_t>(kLengths[range[0]]));
      for (int64_t i = 0; i < range[2]; ++i) ++seen[static_cast<size_t>(range[1] + i)];
    }
  }
  ASSERT_EQ(times.size(), 3U * kFrozen + 2);
  for (const auto& [what, seen] : times) {
    const bool each_rank = !sharded && what.first < kFrozen;
    const int expected = each_rank ? static_cast<int>(results.size()) : 1;
    EXPECT_TRUE(std::ranges::all_of(seen, [&](int n) { return n == expected; }))
        << "parameter " << what.first << " state " << what.second;
  }
}

TEST(Sections, AreAllThatRanksKeep) {
  const char* states[] = {
      R"("bf16": {"enabled": true})",
      R"("bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"},
         "exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}})",
      R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
  };
  for (const int32_t stage : {0, 1, 3}) {
    for (const char* own : states) {
      // A low-precision master begins at stage 1.
      if (stage == 0 && own != states[0]) continue;
      const std::string config = std::string(R"({"optimizer": {"type": "AdamW"}, )") + own +
                                 R"(, "zero_optimization": {"stage": )" + std::to_string(stage) +
                                 "}}";
      SCOPED_TRACE(config);
      for (const Provider provider : {Provider::threads, Provider::custom}) {
        expect_all(run_ranks(provider, 3,
                             [&](int32_t rank, otr_context*, otr_comm* comm) {
                               return sections_of_rank(rank, comm, config.c_str());
                             }),
                   stage > 0);
      }
    }
  }
}

}  // namespace
}  // namespace outrigger::test

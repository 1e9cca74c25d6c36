// SPDX-License-Identifier: Apache-2.0
// First values given at declaration: their bits on every rank, whoever gave them, and what crosses
// between hosts for them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "core/engine/engine.h"
#include "core/engine/pass.h"
#include "core/tensor/tensor.h"
#include "tests/comm/links.h"
#include "tests/sanitizers.h"

namespace outrigger::engine {
namespace {

using kernels::Format;

// ---- The reference -----------------------------------------------------------------------------

// To nearest even with so many bits behind the leading one; exponents below `lowest` are those of
// subnormal numbers. Beyond `largest` and half a unit: infinite.
float rounded(float x, int bits, int lowest, double largest) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - bits);
  const double near = std::nearbyint(static_cast<double>(x) / unit) * unit;
  if (std::fabs(near) <= largest) return std::copysign(static_cast<float>(std::fabs(near)), x);
  return std::copysign(std::numeric_limits<float>::infinity(), x);
}
float low(Format compute, float x) {
  if (compute == Format::bfloat16) return rounded(x, 7, -126, 0x1.FEp127);
  if (compute == Format::float16) return rounded(x, 10, -14, 65504);
  return x;
}

// What a split master publishes: a tie is away from zero.
float upper_half(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = (bits + 0x8000U) & 0xFFFF0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

struct Formats {
  const char* json;  // of bf16 or fp16
  Format compute;
  const char* master;  // of "outrigger.states"; "": the default
  bool holds_float32;
  int32_t least_stage;
};
constexpr Formats kFormats[] = {
    {"", Format::float32, "", true, 0},
    {R"("bf16": {"enabled": true}, )", Format::bfloat16, "", true, 0},
    {R"("bf16": {"enabled": true}, )", Format::bfloat16, "split", true, 1},
    {R"("bf16": {"enabled": true}, )", Format::bfloat16, "bfloat16", false, 1},
    {R"("fp16": {"enabled": true}, )", Format::float16, "", true, 0},
    {R"("fp16": {"enabled": true, "fp16_master_weights_and_gradients": true}, )", Format::float16,
     "", false, 2},
};

enum class Kind { alike, one_other, different, rank0_only, none };

struct Case {
  Formats formats;
  int32_t world = 2, stage = 2;
  bool round = false, share = true;
  const char* mode = "rank0";
  Kind kind = Kind::alike;
  int64_t large = 0;  // elements of a further parameter
  std::string mesh = "";
};

std::string text_of(const Case& c) {
  const auto text = [](bool yes) { return std::string(yes ? "true" : "false"); };
  std::string json = std::string("{") + c.formats.json + R"("zero_optimization": {"stage": )" +
                     std::to_string(c.stage) + R"(, "reduce_bucket_size": 1024}, )" +
                     R"("outrigger": {"initial_values": ")" + c.mode +
                     R"(", "round_initial_values": )" + text(c.round) +
                     R"(, "share_parameters": )" + text(c.share) + c.mesh;
  if (*c.formats.master != '\0') {
    json += R"(, "states": {"master": {"format": ")" + std::string(c.formats.master) + R"("}})";
  }
  return json + "}}";
}

struct Given {
  const char* name;
  std::vector<int64_t> shape;
  bool trainable;
  int64_t alias_of;
};
// Rank 0 gives no value for "others'", and zeros for "zeros".
std::vector<Given> model_of(const Case& c) {
  return {{"frozen", {7, 11}, false, -1}, {"a", {37, 21}, true, -1},
          {"zeros", {300}, true, -1},     {"a again", {37, 21}, true, 1},
          {"empty", {0, 3}, true, -1},    {"others'", {50}, true, -1},
          {"scalar", {}, true, -1},       {"large", {c.large}, true, -1}};
}
int64_t count_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// What rank 0's count as: not exact in 16 bits, with everything that rounding has to keep.
std::vector<float> values_of(const Given& p) {
  std::vector<float> values(static_cast<size_t>(count_of(p.shape)));
  const std::string name = p.name;
  if (name == "zeros" || name == "others'") return values;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(3 * static_cast<int64_t>(i % 997) - 700) / 7;
  }
  if (name == "frozen" || name == "a") {
    const float special[] = {-0.0F,
                             1.00390625F,
                             -1.00390625F,
                             1.01171875F,
                             3.4e38F,
                             -70000.0F,
                             1e-40F,
                             3e-8F,
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             1.0004882812F};
    std::copy(std::begin(special), std::end(special), values.begin() + 30);
  }
  return values;
}

// What a rank gives; false: nothing.
bool give(const Case& c, const Given& p, int32_t rank, std::vector<float>& values) {
  const std::string name = p.name;
  values = values_of(p);
  if (c.kind == Kind::none) return false;
  if (rank == 0) return name != "others'";
  if (c.kind == Kind::rank0_only) return false;
  if (c.kind == Kind::one_other && rank == 1 && name == "a") values.back() = 0.5F;
  if (c.kind < Kind::different) return name != "zeros" && name != "others'";
  // Each in another place, and some alike on some ranks.
  if (!values.empty() && (name != "a" || rank % 2 == 1))
    values[values.size() / 2] = static_cast<float>(5 + rank);
  return name != "scalar" || rank != 1;
}

// ---- A start ----------------------------------------------------------------------------------

struct Shown {
  std::vector<std::vector<float>> masters, published;  // of trainable roots; of all names
};

float widened(Format format, const void* data, int64_t i) {
  if (format == Format::float32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  if (format == Format::bfloat16) {
    const uint32_t all = uint32_t{bits} << 16;
    float x = 0;
    std::memcpy(&x, &all, sizeof x);
    return x;
  }
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

using Body = std::function<void(Engine&, int32_t rank)>;

// Declares and commits on every rank; links: each rank is a host of its own, or null.
void start(const Case& c, comm::test::Links* links, const Body& body, const Body& before = {}) {
  auto groups = comm::make_threads(c.world, {.timeout = 60});
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < c.world; ++rank) {
    threads.emplace_back([&, rank] {
      auto own = std::move(groups[static_cast<size_t>(rank)]);
      if (links != nullptr) {
        std::vector<int32_t> hosts(static_cast<size_t>(c.world));
        std::iota(hosts.begin(), hosts.end(), 0);
        own = make_linked(std::move(own), *links, hosts, std::make_shared<std::atomic<int64_t>>(0));
      }
      otr_context_options options{};
      options.log_level = OTR_LOG_ERROR;
      options.workers = 1;
      const auto engine =
          std::make_shared<Engine>(std::make_shared<Context>(options),
                                   std::shared_ptr<comm::Communicator>(std::move(own)), text_of(c));
      for (const Given& p : model_of(c)) {
        std::vector<float> values;
        const bool has = give(c, p, rank, values) && p.alias_of < 0;
        const otr_tensor t = tensor::make(has ? values.data() : nullptr, Format::float32, p.shape);
        engine->add_parameter(p.name, t, {.trainable = p.trainable, .alias_of = p.alias_of});
        std::fill(values.begin(), values.end(), -1.0F);  // it was copied
      }
      if (before) before(*engine, rank);
      engine->commit();
      body(*engine, rank);
    });
  }
  for (auto& thread : threads) thread.join();
}

Shown shown_by(Engine& engine, const Case& c) {
  Shown shown;
  const std::vector<Given> model = model_of(c);
  for (size_t i = 0; i < model.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    std::vector<float> values(static_cast<size_t>(count_of(model[i].shape)));
    if (model[i].trainable) {
      engine.read_value(id, OTR_VALUE_MASTER,
                        tensor::make(values.data(), Format::float32, model[i].shape));
    }
    shown.masters.push_back(values);
    otr_tensor weight;
    engine.acquire(&id, 1, false, 0, &weight);
    for (int64_t k = 0; k < count_of(model[i].shape); ++k) {
      values[static_cast<size_t>(k)] = widened(c.formats.compute, weight.data, k);
    }
    engine.release(&id, 1, 0);
    shown.published.push_back(values);
  }
  return shown;
}

// Bits, of NaN only that it is one.
bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

void expect_rank_zeros(const Shown& shown, const Case& c, int32_t rank) {
  const std::vector<Given> model = model_of(c);
  const bool split = std::strcmp(c.formats.master, "split") == 0;
  for (size_t i = 0; i < model.size(); ++i) {
    const size_t root = model[i].alias_of < 0 ? i : static_cast<size_t>(model[i].alias_of);
    std::vector<float> values = values_of(model[root]);
    if (c.kind == Kind::none) std::fill(values.begin(), values.end(), 0.0F);
    for (size_t k = 0; k < values.size(); ++k) {
      const float near = low(c.formats.compute, values[k]);
      const float master = c.formats.holds_float32 && !c.round ? values[k] : near;
      const bool halves = split && model[i].trainable && !std::isnan(master);
      const float published = halves ? upper_half(master) : near;
      const auto what = [&] {
        return testing::Message() << text_of(c) << " kind " << static_cast<int>(c.kind) << ", rank "
                                  << rank << " of " << c.world << ": " << model[i].name << '[' << k
                                  << "] of " << values[k];
      };
      if (model[i].trainable) {
        ASSERT_PRED2(same, shown.masters[i][k], master) << what();
      }
      ASSERT_PRED2(same, shown.published[i][k], published) << what();
    }
  }
}

// Who gives what, and whether they keep it.
struct Way {
  const char* mode;
  Kind kind;
};
constexpr Way kWays[] = {{"rank0", Kind::different},
                         {"compare", Kind::alike},
                         {"compare", Kind::different},
                         {"compare", Kind::rank0_only}};

void expect_bits(const Case& c, comm::test::Links* links = nullptr) {
  start(c, links,
        [&](Engine& engine, int32_t rank) { expect_rank_zeros(shown_by(engine, c), c, rank); });
}

TEST(InitialBits, AreRankZerosInEveryFormatOnEveryStage) {
  for (const Formats& formats : kFormats) {
    for (int32_t world = 1; world <= 4; ++world) {
      for (int32_t stage = formats.least_stage; stage <= 3; ++stage) {
        for (const Way& way : kWays) {
          for (const bool round : {false, true}) {
            if (!test::runs(&formats - kFormats, world, stage, &way - kWays, round)) continue;
            expect_bits(
                {formats, world, stage, round, (world + stage) % 2 == 0, way.mode, way.kind});
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  }
}

// More than goes at a time, over ranks that share memory and ranks that do not.
TEST(InitialBits, OfALargeParameter) {
  constexpr int64_t kLarge = (int64_t{1} << 18) + 1001;
  for (const Formats& formats : kFormats) {
    for (const Way& way : kWays) {
      if (!test::runs(&formats - kFormats, &way - kWays)) continue;
      comm::test::Links links;
      expect_bits({formats, 3, 3, false, true, way.mode, way.kind, kLarge});
      expect_bits({formats, 2, 2, false, true, way.mode, way.kind, kLarge}, &links);
      expect_bits({formats, 3, 3, true, true, way.mode, way.kind, kLarge}, &links);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

TEST(InitialBits, OverMeshes) {
  int32_t cases = 0;
  for (const char* states : {"group", "all"}) {
    for (const Formats& formats : kFormats) {
      for (int32_t stage = std::max(1, formats.least_stage); stage <= 3; ++stage) {
        for (const Way& way : kWays) {
          if (!test::runs(&formats - kFormats, stage, &way - kWays)) continue;
          Case c{formats, 4, stage, false, ++cases / 4 % 2 == 0, way.mode, way.kind};
          c.mesh = R"(, "mesh": {"shard": 2, "states": ")" + std::string(states) + R"("})";
          expect_bits(c);
          ASSERT_FALSE(testing::Test::HasFailure());
        }
      }
    }
  }
}

// ---- What is sent -----------------------------------------------------------------------------

// From rank 0's host to rank 1's until all have committed; more: what ranks do then.
int64_t sent(const Case& c, const Body& more = {}) {
  comm::test::Links links;
  start(c, &links, [&](Engine& engine, int32_t rank) {
    if (more) more(engine, rank);
  });
  return static_cast<int64_t>(links.bytes(0, 1));
}

// Elements of the roots, trainable and frozen, that rank 0 gives.
std::pair<int64_t, int64_t> elements_of(const Case& c) {
  std::pair<int64_t, int64_t> elements{0, 0};
  std::vector<float> values;
  for (const Given& p : model_of(c)) {
    if (p.alias_of >= 0 || !give(c, p, 0, values)) continue;
    (p.trainable ? elements.first : elements.second) += count_of(p.shape);
  }
  return elements;
}

Case none_of(Case c) {
  c.kind = Kind::none;
  c.mode = "rank0";
  return c;
}

TEST(InitialBytes, NoneOfEqualValuesThatEveryRankKeeps) {
  for (const Formats& formats : kFormats) {
    for (int32_t stage = formats.least_stage; stage <= 3; ++stage) {
      if (!test::runs(&formats - kFormats, stage)) continue;
      Case c{formats, 3, stage, false, true, "compare", Kind::alike, 3000};
      const auto parameters = static_cast<int64_t>(model_of(c).size() * sizeof(uint64_t));
      // Their number and their hashes' hash, in one merge.
      EXPECT_EQ(sent(c) - sent(none_of(c)), 128) << text_of(c);
      c.world = 4;
      EXPECT_EQ(sent(c) - sent(none_of(c)), 128) << "whatever the world";
      c.large = 300000;
      EXPECT_EQ(sent(c) - sent(none_of(c)), 128) << "whatever the size";
      EXPECT_LE(128, 2 * parameters);
    }
  }
}

// In the compute dtype where a rank keeps no more of them, else in float32.
TEST(InitialBytes, OfRankZerosAlone) {
  for (const Formats& formats : kFormats) {
    for (int32_t stage = formats.least_stage; stage <= 3; ++stage) {
      for (const bool round : {false, true}) {
        for (const char* mode : {"rank0", "verify"}) {
          Case c{formats, 3, stage, round, true, mode, Kind::rank0_only, 3000};
          if (mode[0] == 'v') c.kind = Kind::alike;
          const auto [trainable, frozen] = elements_of(c);
          const int64_t least = formats.compute == Format::float32 ? 4 : 2;
          const int64_t most = formats.holds_float32 && !round ? 4 : least;
          const int64_t hashes = mode[0] == 'v' ? 128 : 0;
          EXPECT_EQ(sent(c) - sent(none_of(c)), trainable * most + frozen * least + hashes)
              << text_of(c);
        }
      }
    }
  }
}

// Only those that differ go, as they do when they are given after commit.
TEST(InitialBytes, OfThoseThatDiffer) {
  for (const Formats& formats : kFormats) {
    const int64_t least = formats.compute == Format::float32 ? 4 : 2;
    const int64_t most = formats.holds_float32 ? 4 : least;
    Case c{formats, 3, 2, false, true, "compare", Kind::one_other, 3000};
    const auto parameters = static_cast<int64_t>(model_of(c).size());
    const int64_t hashes = 128 + 32 * parameters;  // one for all, then one for each
    EXPECT_EQ(sent(c) - sent(none_of(c)), hashes + 777 * most) << text_of(c);
    c.kind = Kind::different;
    const auto [trainable, frozen] = elements_of(c);
    EXPECT_EQ(sent(c) - sent(none_of(c)), hashes + trainable * most + frozen * least);
    const auto set = [&](bool differ) {
      return [=](Engine& engine, int32_t rank) {
        std::vector<float> values(3000, differ ? static_cast<float>(rank) : 1.0F);
        const std::vector<int64_t> shape{3000};
        const otr_tensor t = tensor::make(values.data(), Format::float32, shape);
        const int64_t id = parameters - 1;
        engine.set_initial(&id, 1, &t);
      };
    };
    const int64_t more = sent(none_of(c), set(true)) - sent(none_of(c), set(false));
    EXPECT_EQ(more, 3000 * most + 32) << text_of(c);
  }
}

// ---- Memory, and wrong use --------------------------------------------------------------------

TEST(InitialMemory, OnlyRankZeroKeepsValuesUnlessTheyAreCompared) {
  for (const char* mode : {"rank0", "verify", "compare"}) {
    const Case c{kFormats[1], 3, 2, false, true, mode, Kind::alike, 5000};
    const auto held = [](const Engine& engine) {
      return engine.ledger().entries().at(static_cast<size_t>(memory::Purpose::initial)).resident;
    };
    start(
        c, nullptr, [&](Engine& engine, int32_t) { EXPECT_EQ(held(engine), 0); },
        [&](Engine& engine, int32_t rank) {
          const bool keeps = rank == 0 || mode[0] == 'c';
          const int64_t all = 4 * (77 + 777 + 1 + 5000), zeros = rank == 0 ? 4 * 300 : 0;
          EXPECT_EQ(held(engine), keeps ? all + zeros : 0) << mode << rank;
        });
  }
}

TEST(InitialWrongUse, IsRefused) {
  Case c{kFormats[1], 1, 2};
  c.mode = "same";
  otr_context_options options{};
  options.log_level = OTR_LOG_ERROR;
  options.workers = 1;
  try {
    const Engine engine(std::make_shared<Context>(options), comm::make_self(), text_of(c));
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), OTR_E_CONFIG);
    const std::string text = error.what();
    for (const char* part : {"initial_values", "same", "rank0", "verify", "compare"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace outrigger::engine

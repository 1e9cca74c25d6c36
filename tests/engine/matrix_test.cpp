// SPDX-License-Identifier: Apache-2.0
// The equality promises: over communicators, stages, bucket sizes, buffers, worker threads and
// order of arrival, every rank of every run has exactly the bits of the plain simulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/comm/communicator.h"
#include "tests/engine/model.h"

namespace outrigger::test {
namespace {

const Bytes& expected_for(const Case& c) {
  static std::map<std::string, Bytes> cache;
  Case plain = c;  // what bits may depend on
  plain.provider = Provider::self;
  plain.stage = 0;
  plain.bucket = plain.buffers = plain.workers = 0;
  plain.scramble = false;
  plain.form = Form::pass;
  plain.on = On::cpu;
  plain.share = true;
  plain.ratio = 1;
  plain.live = Case().live;
  plain.backend = "host";
  auto [entry, added] = cache.try_emplace(text_of(plain));
  if (added) entry->second = simulate(c).bytes();
  return entry->second;
}

// Hosts, if not 0: of which the communicator has two levels by itself.
void expect_equal(const Case& c, int32_t hosts = 0) {
  Case like = c;
  if (hosts != 0) like.hosts = hosts;
  const auto results =
      run_ranks(c.provider, c.world, [&](int32_t rank, otr_context* context, otr_comm* comm) {
        return train(c, rank, context, comm).bytes();
      });
  for (size_t rank = 0; rank < results.size(); ++rank) {
    ASSERT_EQ(results[rank].error, "") << text_of(c) << " rank " << rank;
    EXPECT_EQ(first_difference(results[rank].bytes, expected_for(like)), "")
        << text_of(c) << " rank " << rank;
  }
}

// OTR_MATRIX_EVERY: one of so many combinations; 1 without it.
uint32_t thinned(int every) {
  const char* text = std::getenv("OTR_MATRIX_EVERY");
  return static_cast<uint32_t>(every * (text == nullptr ? 1 : std::max(1, std::atoi(text))));
}

// OTR_TEST_BACKEND: outrigger.exchange.backend of what is on a device.
const char* backend() {
  const char* text = std::getenv("OTR_TEST_BACKEND");
  return text == nullptr ? "host" : text;
}

// Every combination of what bits may depend on, on every stage and communicator; what they may not
// depend on is varied along the way, each value with each other.
struct Over {
  On on = On::cpu;
  int every = 1;
  bool share = true;
  std::string rule = "AdamW";
  int32_t hosts = 0, shard = 0;
  bool divided = false;
  std::vector<double> ratios = {1};
  bool quantised = false, in_integers = false;
  std::vector<int64_t> live = {Case().live};
};
// None, the smallest few of the model's, all.
const std::vector<int64_t> kLive{0, 400, Case().live};
// The part that is offloaded: nothing but a few elements, about half, nearly all, nothing at all.
const std::vector<double> kRatios{0.05, 0.5, 0.3, 0.8, 0};
void sweep(Provider provider, int32_t first_world, int32_t last_world, const Over& over = {}) {
  int variant = 0;
  for (int32_t world = first_world; world <= last_world; ++world) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (const std::string& precision : precisions()) {
        for (const char* order : {"boundary", "micro_step"}) {
          for (const int32_t accumulation : {1, 3}) {
            for (const double clip : {0.0, 0.5}) {
              Case c{provider, world, stage, precision, order, accumulation, clip};
              c.bucket =
                  std::array<int64_t, 3>{256, 1500, 1 << 20}[static_cast<size_t>(variant % 3)];
              c.buffers = 1 + variant % 4;
              c.workers = 1 + 2 * (variant % 2);
              c.unused = variant % 5 == 0 ? "zero" : "skip";
              c.scramble = variant % 7 < 3;
              c.form = static_cast<Form>(variant % 11 % 3);
              c.on = over.on;
              c.share = over.share;
              c.rule = over.rule;
              c.hosts = over.hosts;
              c.shard = over.shard;
              c.divided = over.divided;
              c.quantised = over.quantised;
              c.in_integers = over.in_integers;
              c.live = over.live[static_cast<size_t>(variant) % over.live.size()];
              c.backend = over.on == On::cpu ? "host" : backend();
              c.ratio = over.ratios[static_cast<size_t>(variant / 3) % over.ratios.size()];
              // Not each n-th: of what is varied above it would meet the same values.
              const uint32_t mixed = (static_cast<uint32_t>(variant) * 2654435761U) >> 16;
              if (legal(c) && mixed % thinned(over.every) == 0) expect_equal(c);
              ++variant;
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Matrix, Self) { sweep(Provider::self, 1, 1); }
TEST(Matrix, Threads) { sweep(Provider::threads, 1, 4); }
TEST(Matrix, SharedMemory) { sweep(Provider::shm, 1, 4); }
TEST(Matrix, Custom) { sweep(Provider::custom, 1, 3); }
TEST(Matrix, ThreadsWithCopies) { sweep(Provider::threads, 2, 3, {.every = 3, .share = false}); }
TEST(Matrix, SharedMemoryWithCopies) { sweep(Provider::shm, 2, 3, {.every = 3, .share = false}); }

// Under mpirun, where OTR_TEST_MPI says so: as many ranks as it has, on one level and on two hosts.
int32_t mpi_world() {
  return std::getenv("OTR_TEST_MPI") == nullptr ? 0 : comm::read_launch_environment().world;
}
class Mpi : public testing::TestWithParam<int32_t> {};  // the world
class MpiHosts : public Mpi {};                         // … that two hosts share
std::vector<int32_t> worlds(int32_t hosts) {
  const int32_t world = mpi_world();
  return world == 0 || world % hosts != 0 ? std::vector<int32_t>{} : std::vector{world};
}
INSTANTIATE_TEST_SUITE_P(Matrix, Mpi, testing::ValuesIn(worlds(1)));
INSTANTIATE_TEST_SUITE_P(Matrix, MpiHosts, testing::ValuesIn(worlds(2)));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Mpi);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MpiHosts);

void sweep_mpi(int32_t world, int32_t hosts) {
  sweep(Provider::mpi, world, world, {.hosts = hosts});
  sweep(Provider::mpi, world, world, {.on = On::offload, .every = 5, .hosts = hosts});
  if (world == 4) sweep(Provider::mpi, 4, 4, {.every = 3, .hosts = hosts, .shard = 2});
}
TEST_P(Mpi, OneLevel) { sweep_mpi(GetParam(), 0); }
TEST_P(MpiHosts, TwoLevels) { sweep_mpi(GetParam(), 2); }

TEST_P(MpiHosts, AreMadeOfTheEnvironment) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    const Case c{Provider::launched, GetParam(), stage, "float32", "boundary", 3, 0.5};
    expect_equal(c, GetParam() > 2 ? 2 : 0);  // a host of one rank is no level
  }
}

TEST(Matrix, Hosts) {
  struct Shape {
    int32_t hosts, each;
  };
  for (const Shape& s : {Shape{2, 2}, Shape{3, 2}, Shape{2, 3}, Shape{4, 1}, Shape{1, 4}}) {
    const int32_t world = s.hosts * s.each;
    sweep(Provider::threads, world, world, {.every = 2, .hosts = s.hosts});
  }
  sweep(Provider::shm, 4, 4, {.every = 3, .hosts = 2});
  sweep(Provider::threads, 4, 4, {.on = On::offload, .every = 5, .hosts = 2});
  sweep(Provider::threads, 4, 4, {.on = On::offload, .every = 5, .hosts = 2, .ratios = kRatios});
  sweep(Provider::threads, 4, 4, {.on = On::device, .every = 3, .hosts = 2});
  for (const char* rule : {"Lamb", "Muon"}) {
    sweep(Provider::threads, 4, 4, {.every = 5, .rule = rule, .hosts = 2});
  }
}

// Ranks with nobody to cut with; groups that are hosts, and others.
void sweep_meshes(bool divided) {
  struct Shape {
    int32_t world, shard;
  };
  for (const Shape& s : {Shape{4, 2}, Shape{6, 2}, Shape{6, 3}, Shape{3, 1}, Shape{3, 3}}) {
    sweep(Provider::threads, s.world, s.world, {.every = 2, .shard = s.shard, .divided = divided});
  }
  sweep(Provider::shm, 4, 4, {.every = 3, .shard = 2, .divided = divided});
  sweep(Provider::custom, 4, 4, {.every = 3, .shard = 2, .divided = divided});
  sweep(Provider::threads, 4, 4, {.every = 3, .share = false, .shard = 2, .divided = divided});
  sweep(Provider::threads, 4, 4, {.on = On::offload, .every = 5, .shard = 2, .divided = divided});
  sweep(Provider::threads, 4, 4,
        {.on = On::offload, .every = 5, .shard = 2, .divided = divided, .ratios = kRatios});
  sweep(Provider::threads, 4, 4, {.on = On::device, .every = 3, .shard = 2, .divided = divided});
  sweep(Provider::threads, 3, 3, {.on = On::device, .every = 5, .shard = 1, .divided = divided});
  sweep(Provider::threads, 4, 4, {.every = 3, .hosts = 2, .shard = 2, .divided = divided});
  sweep(Provider::threads, 4, 4, {.every = 5, .hosts = 2, .shard = 4, .divided = divided});
  sweep(Provider::threads, 6, 6, {.every = 5, .hosts = 2, .shard = 2, .divided = divided});
  for (const std::string& rule : rules()) {
    sweep(Provider::threads, 4, 4, {.every = 9, .rule = rule, .shard = 2, .divided = divided});
    sweep(Provider::custom, 6, 6, {.every = 19, .rule = rule, .shard = 3, .divided = divided});
  }
}

// Groups of ranks that each have the whole training.
TEST(Matrix, Mesh) { sweep_meshes(false); }
// Groups that each have the parameters; states are cut over all ranks.
TEST(Matrix, MeshOfParameters) { sweep_meshes(true); }

// Between ranks, or groups of them, gradients go as 8-bit blocks.
TEST(Matrix, Quantised) {
  sweep(Provider::self, 1, 1, {.every = 19, .quantised = true});
  sweep(Provider::threads, 2, 4, {.every = 7, .quantised = true});
  sweep(Provider::shm, 2, 3, {.every = 13, .quantised = true});
  sweep(Provider::custom, 3, 3, {.every = 7, .quantised = true});
  sweep(Provider::threads, 4, 4, {.every = 7, .hosts = 2, .quantised = true});
  sweep(Provider::threads, 6, 6, {.every = 13, .hosts = 3, .quantised = true});
  sweep(Provider::shm, 4, 4, {.every = 19, .hosts = 2, .quantised = true});
  for (const bool divided : {false, true}) {
    sweep(Provider::threads, 4, 4,
          {.every = 13, .shard = 2, .divided = divided, .quantised = true});
    sweep(Provider::custom, 6, 6, {.every = 19, .shard = 3, .divided = divided, .quantised = true});
    sweep(Provider::threads, 3, 3,
          {.every = 19, .shard = 1, .divided = divided, .quantised = true});
  }
  sweep(Provider::threads, 2, 2, {.on = On::offload, .every = 13, .quantised = true});
  sweep(Provider::threads, 4, 4, {.on = On::offload, .every = 19, .hosts = 2, .quantised = true});
}

// What acquires gather at stage 3 goes as 8-bit integers; states and what is read are as without.
TEST(Matrix, QuantisedWeights) {
  sweep(Provider::self, 1, 1, {.every = 29, .in_integers = true});
  sweep(Provider::threads, 2, 4, {.every = 7, .in_integers = true});
  sweep(Provider::shm, 2, 3, {.every = 13, .in_integers = true});
  sweep(Provider::custom, 3, 3, {.every = 7, .in_integers = true});
  sweep(Provider::threads, 4, 4, {.every = 13, .hosts = 2, .quantised = true, .in_integers = true});
  for (const bool divided : {false, true}) {
    sweep(Provider::threads, 4, 4,
          {.every = 13, .shard = 2, .divided = divided, .in_integers = true});
  }
}

TEST(DeviceMatrix, QuantisedWeights) {
  for (const On on : {On::device, On::offload, On::offload_all}) {
    sweep(Provider::threads, 2, 3, {.on = on, .every = 13, .in_integers = true});
    sweep(Provider::custom, 2, 2, {.on = on, .every = 13, .in_integers = true, .live = kLive});
  }
}

// Every other rule, on every stage and precision that has its states.
TEST(Matrix, Rules) {
  for (const std::string& rule : rules()) {
    if (rule == "AdamW") continue;
    sweep(Provider::self, 1, 1, {.every = 3, .rule = rule});
    sweep(Provider::threads, 3, 3, {.every = 2, .rule = rule});
    sweep(Provider::shm, 2, 2, {.every = 5, .rule = rule});
    sweep(Provider::custom, 2, 2, {.every = 9, .rule = rule});
    sweep(Provider::threads, 2, 2, {.every = 9, .share = false, .rule = rule});
  }
}

TEST(DeviceMatrix, Rules) {
  for (const std::string& rule : rules()) {
    if (rule == "AdamW") continue;
    sweep(Provider::self, 1, 1, {.on = On::device, .every = 2, .rule = rule});
    sweep(Provider::threads, 2, 2, {.on = On::device, .every = 2, .rule = rule});
    sweep(Provider::shm, 2, 2, {.on = On::device, .every = 9, .rule = rule});
    sweep(Provider::custom, 3, 3, {.on = On::device, .every = 19, .rule = rule});
    sweep(Provider::threads, 4, 4, {.on = On::device, .every = 19, .rule = rule, .shard = 2});
    sweep(Provider::threads, 2, 2, {.on = On::offload, .every = 5, .rule = rule});
    sweep(Provider::threads, 2, 2,
          {.on = On::offload, .every = 7, .rule = rule, .ratios = kRatios});
  }
}

TEST(DeviceMatrix, ThreadsRules) {
  for (const std::string& rule : rules()) {
    if (rule == "AdamW") continue;
    sweep(Provider::threads, 3, 3, {.on = On::device, .every = 7, .rule = rule});
  }
}

TEST(DeviceMatrix, Self) { sweep(Provider::self, 1, 1, {.on = On::device}); }
TEST(DeviceMatrix, SelfOffloaded) { sweep(Provider::self, 1, 1, {.on = On::offload}); }
TEST(DeviceMatrix, Threads) { sweep(Provider::threads, 2, 3, {.on = On::device}); }
TEST(DeviceMatrix, FourThreads) { sweep(Provider::threads, 4, 4, {.on = On::device, .every = 3}); }
TEST(DeviceMatrix, ThreadsOffloaded) { sweep(Provider::threads, 2, 3, {.on = On::offload}); }
TEST(DeviceMatrix, SharedMemory) { sweep(Provider::shm, 2, 2, {.on = On::device, .every = 3}); }
TEST(DeviceMatrix, SharedMemoryOffloaded) {
  sweep(Provider::shm, 2, 2, {.on = On::offload, .every = 3});
}
TEST(DeviceMatrix, SelfPartlyOffloaded) {
  sweep(Provider::self, 1, 1, {.on = On::offload, .ratios = kRatios});
}
TEST(DeviceMatrix, ThreadsPartlyOffloaded) {
  sweep(Provider::threads, 2, 3, {.on = On::offload, .every = 2, .ratios = kRatios});
}
TEST(DeviceMatrix, SharedMemoryPartlyOffloaded) {
  sweep(Provider::shm, 2, 2, {.on = On::offload, .every = 3, .ratios = kRatios});
}
TEST(DeviceMatrix, CustomPartlyOffloaded) {
  sweep(Provider::custom, 2, 2, {.on = On::offload, .every = 5, .ratios = kRatios});
}
TEST(DeviceMatrix, Custom) { sweep(Provider::custom, 2, 2, {.on = On::device, .every = 3}); }
TEST(DeviceMatrix, CustomOffloaded) {
  sweep(Provider::custom, 2, 2, {.on = On::offload, .every = 3});
}

// A device's parameters on the host, too: one copy where ranks share memory, slices elsewhere.
TEST(DeviceMatrix, ParametersOffloaded) {
  sweep(Provider::self, 1, 1, {.on = On::offload_all, .every = 2, .live = kLive});
  sweep(Provider::threads, 2, 3, {.on = On::offload_all, .every = 3, .live = kLive});
  sweep(Provider::threads, 2, 2,
        {.on = On::offload_all, .every = 3, .share = false, .live = kLive});
  sweep(Provider::shm, 2, 3, {.on = On::offload_all, .every = 5, .live = kLive});
  sweep(Provider::custom, 2, 2, {.on = On::offload_all, .every = 5, .live = kLive});
  sweep(Provider::threads, 4, 4, {.on = On::offload_all, .every = 5, .hosts = 2, .live = kLive});
  sweep(Provider::threads, 2, 2,
        {.on = On::offload_all, .every = 7, .quantised = true, .live = kLive});
  for (const bool divided : {false, true}) {
    sweep(Provider::threads, 4, 4,
          {.on = On::offload_all, .every = 5, .shard = 2, .divided = divided, .live = kLive});
  }
  for (const std::string& rule : rules()) {
    sweep(Provider::threads, 2, 2,
          {.on = On::offload_all, .every = 5, .rule = rule, .live = kLive});
  }
}

TEST(Matrix, BucketsBuffersAndWorkersInFull) {
  for (const char* precision : {"float32", "bf16 stochastic"}) {
    for (const int64_t bucket : {int64_t{1}, int64_t{512}, int64_t{1500}, int64_t{1} << 30}) {
      for (const int32_t buffers : {1, 2, 64}) {
        for (const int32_t workers : {1, 2, 5}) {
          Case c{Provider::threads, 3,      2, precision, "micro_step", 3, 0.5, bucket,
                 buffers,           workers};
          c.scramble = true;
          expect_equal(c);
        }
      }
    }
  }
}

TEST(Matrix, OneParameterChangedIsSeen) {  // the comparison above can fail
  const Case c{Provider::self};
  Trained changed = simulate(c);
  changed.parameters[0].master[5] = std::nextafter(changed.parameters[0].master[5], 1e9F);
  EXPECT_NE(first_difference(changed.bytes(), expected_for(c)), "");
}

}  // namespace
}  // namespace outrigger::test

// SPDX-License-Identifier: Apache-2.0
// The ledger against the kernel's count: what two processes' proportional share of resident pages
// (Pss) grows by, from before commit until after a step, is what the ledgers of both say together;
// and so is its peak while the parameters get their first values.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "support.h"

namespace {

using namespace otr_test;

struct Case {
  const char* name;
  const char* config;
  int64_t parameters, elements;  // of each
  double bytes_per_element;      // over both ranks, after the table of docs/contract.md §6
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Report {
  int64_t grown, ledger, by_purpose[16];
};

// One rank; returns what it found. Everything of a test's own stands before the first count.
Report run_rank(const Case& c, int32_t rank, const std::string& job) {
  const auto context = make_context(1);
  const Owned<otr_comm> comm = make_shm(context.get(), job, rank, 2);
  const Engine engine(comm.get(), c.config);
  Shape shape{c.elements};
  for (int64_t i = 0; i < c.parameters; ++i) {
    otr_tensor nothing;
    int64_t id = 0;
    EXPECT_OK(otr_tensor_init(nullptr, "float32", 1, shape.data(), &nothing));
    EXPECT_OK(otr_engine_add_parameter(engine.get(), ("p" + std::to_string(i)).c_str(), &nothing,
                                       nullptr, &id));
  }
  EXPECT_OK(otr_comm_barrier(comm.get()));
  const int64_t before = pss();
  EXPECT_OK(otr_comm_barrier(comm.get()));
  EXPECT_OK(otr_engine_commit(engine.get()));
  {
    const auto pass = engine.begin();
    for (int64_t id = 0; id < c.parameters; ++id) {
      otr_tensor slot;
      EXPECT_OK(otr_pass_get_slot(pass.get(), id, &slot));
      auto* values = static_cast<uint16_t*>(slot.data) + slot.byte_offset / 2;
      std::fill_n(values, c.elements, uint16_t{0x3F80});  // 1 in bfloat16
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &slot, nullptr));
    }
    Engine::end(pass);
  }
  engine.step();
  EXPECT_OK(otr_comm_barrier(comm.get()));
  Report report{pss() - before, 0, {}};
  std::array<otr_memory_entry, 16> entries{};
  entries[0].struct_size = sizeof entries[0];
  size_t count = entries.size();
  EXPECT_OK(otr_engine_memory(engine.get(), entries.data(), &count));
  for (size_t i = 0; i < count; ++i) report.by_purpose[i] = entries[i].resident_bytes;
  report.ledger = entries.at(count - 1).resident_bytes;
  EXPECT_OK(otr_comm_barrier(comm.get()));
  EXPECT_OK(otr_engine_finalize(engine.get()));
  return report;
}

// The most that both ranks together have grown by, on rank 0.
class Peak {
 public:
  explicit Peak(otr_comm* comm) : comm_(comm), before_(both()) {}
  void sample() { most_ = std::max(most_, both() - before_); }
  [[nodiscard]] int64_t of(int32_t rank) const { return rank == 0 ? most_ : 0; }

 private:
  [[nodiscard]] int64_t both() const {
    EXPECT_OK(otr_comm_barrier(comm_));
    const int64_t mine = pss();
    std::array<int64_t, 2> all{};
    EXPECT_OK(otr_comm_all_gather(comm_, &mine, sizeof mine, all.data()));
    return all[0] + all[1];
  }
  otr_comm* comm_;
  int64_t before_, most_ = 0;
};

// A start with values that each rank holds as float32 and frees as they are taken.
Report start_rank(const Case& c, int32_t rank, const std::string& job) {
  const auto context = make_context(1);
  const Owned<otr_comm> comm = make_shm(context.get(), job, rank, 2);
  Peak peak(comm.get());
  const Engine engine(comm.get(), c.config);
  Shape shape{c.elements};
  const auto bytes = static_cast<size_t>(c.elements) * sizeof(float);
  std::vector<float*> values;
  for (int64_t i = 0; i < c.parameters; ++i) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    values.push_back(static_cast<float*>(pages));
    std::fill_n(values.back(), c.elements, 0.5F);
    otr_tensor nothing;
    EXPECT_OK(otr_tensor_init(nullptr, "float32", 1, shape.data(), &nothing));
    otr_param_options options = param_options();
    options.held_bytes = static_cast<int64_t>(bytes);
    int64_t id = 0;
    EXPECT_OK(otr_engine_add_parameter(engine.get(), ("p" + std::to_string(i)).c_str(), &nothing,
                                       &options, &id));
  }
  peak.sample();
  EXPECT_OK(otr_engine_commit(engine.get()));
  peak.sample();
  for (int64_t id = 0; id < c.parameters; ++id) {
    otr_tensor value;
    EXPECT_OK(otr_tensor_init(values[static_cast<size_t>(id)], "float32", 1, shape.data(), &value));
    EXPECT_OK(otr_engine_set_initial(engine.get(), &id, 1, &value));
    peak.sample();
    munmap(value.data, bytes);
  }
  peak.sample();
  std::array<otr_memory_entry, 16> entries{};
  entries[0].struct_size = sizeof entries[0];
  size_t count = entries.size();
  EXPECT_OK(otr_engine_memory(engine.get(), entries.data(), &count));
  const Report report{peak.of(rank), entries.at(count - 1).peak_bytes, {}};
  EXPECT_OK(otr_comm_barrier(comm.get()));
  EXPECT_OK(otr_engine_finalize(engine.get()));
  return report;
}

class Resident : public testing::TestWithParam<Case> {
 protected:
  using Rank = Report (*)(const Case&, int32_t, const std::string&);
  static void in_two_processes(Rank run, Report& all);
};

void Resident::in_two_processes(Rank run, Report& all) {
  const Case& c = GetParam();
  const std::string job = "c_api_resident_" + std::to_string(getpid());
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  for (int32_t rank = 0; rank < 2; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) continue;
    alarm(250);
    const Report report = run(c, rank, job);
    const bool well = !HasFailure() && write(ends[1], &report, sizeof report) == sizeof report;
    _exit(well ? 0 : 1);
  }
  close(ends[1]);
  for (int32_t rank = 0; rank < 2; ++rank) {
    Report report{};
    ASSERT_EQ(read(ends[0], &report, sizeof report), static_cast<ssize_t>(sizeof report));
    all.grown += report.grown;
    all.ledger += report.ledger;
  }
  close(ends[0]);
  for (int i = 0; i < 2; ++i) {
    int status = 0;
    ASSERT_GT(wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
}

TEST_P(Resident, IsWhatTheKernelCounts) {
  if (pss() < 0) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  const Case& c = GetParam();
  Report all{};
  ASSERT_NO_FATAL_FAILURE(in_two_processes(run_rank, all));
  const auto ledger = static_cast<double>(all.ledger);
  const double difference = (static_cast<double>(all.grown) - ledger) / ledger;
  RecordProperty("ledger_bytes", std::to_string(all.ledger));
  RecordProperty("pss_growth_bytes", std::to_string(all.grown));
  std::printf("ledger %ld, growth of Pss %ld: %+.3f %%\n", static_cast<long>(all.ledger),
              static_cast<long>(all.grown), 100 * difference);
  EXPECT_LT(std::abs(difference), 0.02) << "ledger " << all.ledger << ", kernel " << all.grown;
  // And neither of them misses a whole state.
  EXPECT_GE(ledger, c.bytes_per_element * static_cast<double>(c.parameters * c.elements));
}

TEST_P(Resident, PeakOfTheStartIsWhatTheKernelCounts) {
  if (pss() < 0) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  Report all{};
  ASSERT_NO_FATAL_FAILURE(in_two_processes(start_rank, all));
  const auto ledger = static_cast<double>(all.ledger);
  const double difference = (static_cast<double>(all.grown) - ledger) / ledger;
  std::printf("ledger's peak %ld, of Pss %ld: %+.3f %%\n", static_cast<long>(all.ledger),
              static_cast<long>(all.grown), 100 * difference);
  EXPECT_LT(std::abs(difference), 0.03) << "ledger " << all.ledger << ", kernel " << all.grown;
  const Case& c = GetParam();
  EXPECT_GE(ledger, 8.0 * static_cast<double>(c.parameters * c.elements)) << "what both held";
}

constexpr const char* kFloat32States =
    R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5000000}})";
constexpr const char* kBfloat16States =
    R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                 "bf16_optimizer_states": true},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 5000000}})";
INSTANTIATE_TEST_SUITE_P(SixteenMillion, Resident,
                         testing::Values(Case{"float32_states", kFloat32States, 16, 1000000, 16}),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(HundredMillion, Resident,
                         testing::Values(Case{"float32_states", kFloat32States, 20, 5000000, 16},
                                         Case{"bf16_states", kBfloat16States, 20, 5000000, 8}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

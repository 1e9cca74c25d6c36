// SPDX-License-Identifier: Apache-2.0
// Making groups: options, the launcher's environment, ranks that do not come.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "support.h"

namespace {

using namespace otr_test;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST(CommCreate, RefusesNumbersOutOfRange) {
  const auto context = make_context();
  otr_comm* comms[2] = {};
  for (const int32_t world : {0, -3}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_threads(context.get(), world, nullptr, comms),
                 "world_size", std::to_string(world));
  }
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  for (const double timeout : {0.0, -1.0, std::nan(""), static_cast<double>(HUGE_VALF)}) {
    options.timeout = timeout;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_threads(context.get(), 2, &options, comms),
                 "timeout");
    EXPECT_EQ(comms[0], nullptr);
    EXPECT_EQ(comms[1], nullptr);
  }
}

TEST(CommCreate, ShmNeedsRankWorldAndJob) {
  const auto context = make_context();
  otr_comm* comm = nullptr;
  otr_comm_options options;
  const auto reset = [&] {
    ASSERT_OK(otr_comm_options_init(&options, sizeof options));
    options.world_size = 1;
    options.job = "c_api_arguments";
  };
  reset();
  options.job = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "job");
  options.job = "";
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "job");
  reset();
  options.rank = 1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "rank = 1");
  options.rank = -1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "rank = -1");
  reset();
  options.world_size = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm),
               "world_size = 0");
  EXPECT_EQ(comm, nullptr);
  reset();
  EXPECT_OK(otr_comm_create_shm(context.get(), &options, &comm));
  EXPECT_OK(otr_comm_barrier(comm));
  otr_comm_destroy(comm);
}

// Rank 0 knows who came; the others know whether rank 0 did.
TEST(CommCreate, ShmNamesTheRanksThatDidNotCome) {
  const auto context = make_context();
  for (const int32_t rank : {0, 1}) {
    otr_comm_options options;
    ASSERT_OK(otr_comm_options_init(&options, sizeof options));
    options.world_size = 3;
    options.rank = rank;
    options.job = "c_api_alone";
    options.timeout = 0.3;
    otr_comm* comm = nullptr;
    const auto begin = Clock::now();
    const int32_t status = otr_comm_create_shm(context.get(), &options, &comm);
    if (rank == 0) {
      EXPECT_FAILS(OTR_E_TIMEOUT, status, "1", "2");
    } else {
      EXPECT_FAILS(OTR_E_TIMEOUT, status, "rank 0");
    }
    EXPECT_EQ(comm, nullptr);
    EXPECT_GE(seconds_since(begin), 0.25);
    EXPECT_LT(seconds_since(begin), 10);
  }
}

// The launcher's variables, put back afterwards.
class Environment : public testing::Test {
 protected:
  void set(const char* name, const char* value) {
    const char* old = getenv(name);
    before_.emplace_back(name, old == nullptr ? "" : old, old != nullptr);
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  void SetUp() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
      set(name, nullptr);
    }
  }
  void TearDown() override {
    for (auto b = before_.rbegin(); b != before_.rend(); ++b) {
      b->existed ? setenv(b->name, b->value.c_str(), 1) : unsetenv(b->name);
    }
  }
  struct Before {
    const char* name;
    std::string value;
    bool existed;
  };
  std::vector<Before> before_;
  Owned<otr_context> context_ = make_context();
};

TEST_F(Environment, WithoutVariablesIsAGroupOfOne) {
  otr_comm* comm = nullptr;
  ASSERT_OK(otr_comm_from_env(context_.get(), nullptr, &comm));
  int32_t size = 0;
  EXPECT_OK(otr_comm_size(comm, &size));
  EXPECT_EQ(size, 1);
  otr_comm_destroy(comm);
}

TEST_F(Environment, OfWorldSizeOneIsAGroupOfOne) {
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  otr_comm* comm = nullptr;
  ASSERT_OK(otr_comm_from_env(context_.get(), nullptr, &comm));
  otr_comm_destroy(comm);
}

TEST_F(Environment, ThatContradictsItselfIsListed) {
  set("RANK", "7");
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "2");
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_CONFIG, otr_comm_from_env(context_.get(), nullptr, &comm), "RANK", "7",
               "WORLD_SIZE", "2");
  EXPECT_EQ(comm, nullptr);
  set("RANK", "seven");
  EXPECT_FAILS(OTR_E_CONFIG, otr_comm_from_env(context_.get(), nullptr, &comm), "RANK", "seven");
}

TEST_F(Environment, OfSeveralHostsIsNotSupportedYet) {
  set("RANK", "0");
  set("WORLD_SIZE", "4");
  set("LOCAL_RANK", "0");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", "29500");
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_comm_from_env(context_.get(), nullptr, &comm), "4", "2");
  EXPECT_EQ(comm, nullptr);
}

TEST_F(Environment, OfOneHostIsSharedMemory) {
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", "29517");
  set("RANK", "1");
  set("LOCAL_RANK", "1");
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.timeout = 0.3;
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_TIMEOUT, otr_comm_from_env(context_.get(), &options, &comm), "0");
}

// Where ranks keep what they did last (docs/watching.md).
TEST(FlightRecorder, IsWrittenWhereTheVariableSays) {
  const auto context = make_context();
  otr_comm* comm = nullptr;
  const auto folder = std::filesystem::temp_directory_path() / std::to_string(getpid());
  const auto files = [&] {
    std::error_code none;
    const std::filesystem::directory_iterator all(folder, none);
    return std::distance(begin(all), end(all));
  };
  ASSERT_EQ(setenv("OTR_FLIGHT_RECORDER", folder.c_str(), 1), 0);
  ASSERT_OK(otr_comm_create_self(context.get(), &comm));
  EXPECT_EQ(files(), 1);
  otr_comm_destroy(comm);
  EXPECT_EQ(files(), 0);
  otr_comm* ranks[3];
  ASSERT_OK(otr_comm_create_threads(context.get(), 3, nullptr, ranks));
  EXPECT_EQ(files(), 3);
  ASSERT_OK(otr_comm_abort(ranks[1], "enough"));
  for (otr_comm* each : ranks) otr_comm_destroy(each);
  EXPECT_EQ(files(), 1) << "that of who knows of a failure";
  std::filesystem::remove_all(folder);
  ASSERT_EQ(setenv("OTR_FLIGHT_RECORDER", "off", 1), 0);
  ASSERT_OK(otr_comm_create_self(context.get(), &comm));
  otr_comm_destroy(comm);
  ASSERT_EQ(setenv("OTR_FLIGHT_RECORDER", "/dev/null/folder", 1), 0);
  EXPECT_FAILS(OTR_E_IO, otr_comm_create_self(context.get(), &comm), "OTR_FLIGHT_RECORDER",
               "/dev/null/folder", "\"off\"");
  EXPECT_EQ(comm, nullptr);
  ASSERT_EQ(unsetenv("OTR_FLIGHT_RECORDER"), 0);
}

}  // namespace

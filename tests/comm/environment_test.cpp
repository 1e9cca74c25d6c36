// SPDX-License-Identifier: Apache-2.0
#include "core/comm/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "core/base/error.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm {
namespace {

using Variables = std::map<std::string, std::string>;

Launch read(const Variables& variables) {
  return read_launch([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

struct Good {
  const char* what;
  Variables variables;
  const char* launcher;
  int32_t rank, world, local_rank, local_world;
  const char* job;
};

TEST(LaunchEnvironment, IsUnderstood) {
  const Good cases[] = {
      {"nothing", {}, "none", 0, 1, 0, 1, ""},
      {"job only", {{"OTR_JOB", "mine"}}, "none", 0, 1, 0, 1, "mine"},
      {"empty variables count as absent",
       {{"RANK", ""}, {"WORLD_SIZE", ""}},
       "none",
       0,
       1,
       0,
       1,
       ""},
      {"local numbers alone say nothing", {{"LOCAL_RANK", "1"}}, "none", 0, 1, 0, 1, ""},
      {"torchrun",
       {{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"MASTER_ADDR", "node0"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RUN_ID", "r1"},
        {"TORCHELASTIC_RESTART_COUNT", "2"}},
       "torchrun",
       5,
       8,
       1,
       4,
       "MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=r1 TORCHELASTIC_RESTART_COUNT=2"},
      {"by hand, one host", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun", 1, 2, 1, 2, ""},
      {"DeepSpeed's launcher",
       {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_SIZE", "2"}},
       "torchrun",
       3,
       4,
       1,
       2,
       ""},
      {"a given job wins",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "1"}, {"OTR_JOB", "mine"}},
       "torchrun",
       0,
       1,
       0,
       1,
       "mine"},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMIX_NAMESPACE", "123"}},
       "Open MPI",
       2,
       4,
       0,
       2,
       "PMIX_NAMESPACE=123"},
      {"MPICH",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "PMI",
       1,
       2,
       1,
       2,
       ""},
      {"Slurm",
       {{"SLURM_PROCID", "4"},
        {"SLURM_NTASKS", "5"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "2"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
        {"SLURM_JOB_ID", "77"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm",
       4,
       5,
       0,
       1,
       "SLURM_JOB_ID=77 SLURM_STEP_ID=0"},
      {"Slurm, the same on each node",
       {{"SLURM_PROCID", "3"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NTASKS_PER_NODE", "2"}},
       "Slurm",
       3,
       4,
       1,
       2,
       ""},
      {"Slurm over PMI, whose local numbers are missing",
       {{"PMI_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_TASKS_PER_NODE", "2"}},
       "Slurm",
       1,
       2,
       1,
       2,
       ""},
      {"a shell inside an allocation",
       {{"SLURM_JOB_NAME", "interactive"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
       "none",
       0,
       1,
       0,
       1,
       ""},
      {"an allocation without a task",
       {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}},
       "none",
       0,
       1,
       0,
       1,
       ""},
      {"torchrun under srun",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"}},
       "torchrun",
       1,
       2,
       1,
       2,
       ""},
      {"Open MPI under Slurm",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"}},
       "Open MPI",
       1,
       2,
       1,
       2,
       ""},
  };
  for (const Good& good : cases) {
    SCOPED_TRACE(good.what);
    const Launch launch = read(good.variables);
    EXPECT_EQ(launch.launcher, good.launcher);
    EXPECT_EQ(launch.rank, good.rank);
    EXPECT_EQ(launch.world, good.world);
    EXPECT_EQ(launch.local_rank, good.local_rank);
    EXPECT_EQ(launch.local_world, good.local_world);
    EXPECT_EQ(launch.job, good.job);
  }
}

struct Bad {
  const char* what;
  Variables variables;
  const char* says;
};

TEST(LaunchEnvironment, RefusesHalvesAndGarbageAndListsWhatItSaw) {
  const Bad cases[] = {
      {"rank alone", {{"RANK", "0"}}, "WORLD_SIZE is not set; seen: RANK='0'"},
      {"world alone", {{"WORLD_SIZE", "2"}}, "RANK is not set; seen: WORLD_SIZE='2'"},
      {"not a number", {{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK='x' is not a whole number"},
      {"trailing text", {{"RANK", "1a"}, {"WORLD_SIZE", "2"}}, "RANK='1a'"},
      {"fraction", {{"RANK", "0"}, {"WORLD_SIZE", "2.5"}}, "WORLD_SIZE='2.5'"},
      {"too large", {{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE='99999999999'"},
      {"rank outside", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2 is outside 0..1"},
      {"negative rank", {{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1 is outside 0..1"},
      {"no world", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=0 is outside"},
      {"half local",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_RANK is not set"},
      {"local outside",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_RANK=2 is outside 0..1"},
      {"local world above world",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}},
       "LOCAL_WORLD_SIZE=3 is outside 1..2"},
      {"several hosts without local size",
       {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}},
       "LOCAL_WORLD_SIZE is not set"},
      {"port", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "http"}}, "MASTER_PORT='http'"},
      {"port outside", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}}, "MASTER_PORT=0"},
      {"half Open MPI", {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE is not set"},
      {"half Slurm", {{"SLURM_PROCID", "0"}}, "SLURM_NTASKS is not set"},
      {"Slurm node outside its list",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "5"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODEID", "3"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}},
       "no entry for SLURM_NODEID"},
      {"Slurm list of nonsense",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_STEP_TASKS_PER_NODE", "(x2)"}},
       "SLURM_STEP_TASKS_PER_NODE='(x2)' is not a whole number"},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.what);
    try {
      const Launch launch = read(bad.variables);
      ADD_FAILURE() << "understood as rank " << launch.rank << " of " << launch.world;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), OTR_E_CONFIG);
      test::expect_says(error.what(), {bad.says, "seen: "});
    }
  }
}

TEST(LaunchEnvironment, IsReadFromTheProcess) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "3", 1);
  EXPECT_EQ(read_launch_environment().rank, 1);
  unsetenv("WORLD_SIZE");
  EXPECT_THROW(static_cast<void>(read_launch_environment()), Error);
  unsetenv("RANK");
}

}  // namespace
}  // namespace outrigger::comm

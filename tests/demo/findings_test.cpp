// SPDX-License-Identifier: Apache-2.0
// doctor's advice on machines made up here, and its words for what could not be read.
#include "c_api/tools/findings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "c_api/tools/machine.h"

namespace outrigger::tools {
namespace {

// A machine without fault, changed by a merge patch.
Json machine_with(const char* patch) {
  Json machine = Json::parse(R"({
    "version": "0.1.0", "abi": 0,
    "cores": {"online": 8, "allowed": 8, "allowed_list": "0-7", "cgroup_limit": null,
              "cgroup_limit_reason": "no limit is set"},
    "caches": [{"level": 1, "kind": "data", "bytes": 32768, "shared_by": 2, "count": 4}],
    "numa_nodes": [{"node": 0, "cores": "0-7", "total_bytes": 17179869184, "free_bytes": 1},
                   {"node": 1, "cores": "", "total_bytes": null,
                    "total_bytes_reason": "the system does not say"}],
    "memory": {"total_bytes": 17179869184, "available_bytes": 8589934592,
               "cgroup_limit_bytes": null, "cgroup_limit_bytes_reason": "no limit is set",
               "usable_bytes": 8589934592, "usable_source": "MemAvailable of /proc/meminfo"},
    "huge_pages": {"transparent": "madvise", "transparent_shared": "advise",
                   "transparent_bytes": 2097152,
                   "explicit": [{"page_bytes": 2097152, "total": 0, "free": 0}]},
    "locked_memory": {"soft_bytes": null, "soft_bytes_reason": "no limit is set"},
    "shared_memory": {"dev_shm_bytes": 8589934592, "dev_shm_free_bytes": 8589934592,
                      "memfd": true, "pidfd": true},
    "instruction_sets": {"found": ["AVX2", "oracle"], "used": "AVX2", "error": null},
    "communicators": ["self"], "plugins": []})");
  machine.merge_patch(Json::parse(patch));
  return machine;
}

struct Case {
  const char* patch;
  bool problem;
  const char* what;
};

TEST(Findings, AreNoneOnAGoodMachine) {
  const auto found = findings_of(machine_with("{}"));
  EXPECT_TRUE(found.empty()) << found[0].what;
}

TEST(Findings, NameOneFaultEach) {
  const std::vector<Case> cases{
      {R"({"instruction_sets": {"error": "OTR_SIMD=X is not"}})", true, "OTR_SIMD=X"},
      {R"({"instruction_sets": {"used": "oracle"}})", false, "vector instructions"},
      {R"({"cores": {"cgroup_limit": 1.5}})", false, "the time of 1.5 cores, and 8"},
      {R"({"memory": {"cgroup_limit_bytes": 1073741824, "cgroup_limit_source": "F"}})", false,
       "1.0 GiB of this machine's 16.0 GiB (F)"},
      {R"({"locked_memory": {"soft_bytes": 65536}})", false, "only 64 KiB may be locked"},
      {R"({"huge_pages": {"transparent": "never"}})", false, "no huge pages"},
      {R"({"huge_pages": {"transparent_shared": "never"}})", false, "shmem_enabled is never"},
      {R"({"shared_memory": {"memfd": false, "memfd_reason": "R"}})", true,
       "memfd_create is refused (R)"},
      {R"({"shared_memory": {"pidfd": false, "pidfd_reason": "R"}})", false,
       "pidfd_open is refused (R)"},
      {R"({"shared_memory": {"dev_shm_bytes": 67108864}})", false, "/dev/shm has 64.0 MiB"}};
  for (const Case& c : cases) {
    const auto found = findings_of(machine_with(c.patch));
    ASSERT_EQ(found.size(), 1U) << c.patch;
    EXPECT_EQ(found[0].problem, c.problem) << c.patch;
    EXPECT_NE(found[0].what.find(c.what), std::string::npos) << found[0].what;
    EXPECT_FALSE(found[0].remedy.empty());
  }
}

TEST(Findings, SayNothingOfWhatIsFine) {
  for (
      const char* patch :
      {R"({"cores": {"cgroup_limit": 8.0}})", R"({"memory": {"cgroup_limit_bytes": 17179869184}})",
       R"({"locked_memory": {"soft_bytes": 67108864}})",
       R"({"huge_pages": {"transparent": "never", "explicit": [{"page_bytes": 2097152, "total": 9}]}})",
       R"({"memory": {"total_bytes": null}, "shared_memory": {"dev_shm_bytes": null}})",
       R"({"huge_pages": null, "cores": null, "memory": null, "shared_memory": null})"}) {
    const auto found = findings_of(machine_with(patch));
    EXPECT_TRUE(found.empty()) << patch << ": " << found[0].what;
  }
}

std::string line_of(const Json& machine, const std::string& name) {
  for (const auto& [label, text] : machine_lines(machine)) {
    if (label == name) return text;
  }
  return "no such line";
}

TEST(MachineText, PutsPartsInWords) {
  const Json machine = machine_with(R"({"cores": {"cgroup_limit": 1.5}})");
  EXPECT_EQ(line_of(machine, "cores"), "8 of 8 online (0-7), the time of 1.5");
  EXPECT_EQ(line_of(machine, "caches"), "4 × L1 32 KiB data for 2 cores");
  EXPECT_EQ(line_of(machine, "NUMA nodes"),
            "node 0: 16.0 GiB (cores 0-7), node 1: unknown (the system does not say) (no cores)");
  EXPECT_EQ(line_of(machine, "locked memory"), "no limit is set");
  EXPECT_EQ(line_of(machine, "plugins"), "none");
  const Json plugins = machine_with(R"({"plugins": [
      {"name": "cuda", "path": "/p/liboutrigger_cuda.so", "devices": 4, "error": null},
      {"name": "", "path": "/p/liboutrigger_old.so", "devices": 0, "error": "version 0"}]})");
  EXPECT_EQ(line_of(plugins, "plugins"), "cuda (4 devices), /p/liboutrigger_old.so: version 0");
}

TEST(MachineText, SaysWhyAValueIsMissing) {
  Json machine = machine_with("{}");
  machine["memory"]["usable_bytes"] = nullptr;
  machine["memory"]["usable_bytes_reason"] = "no such file";
  machine["caches"] = nullptr;
  machine["caches_reason"] = "no caches";
  machine["huge_pages"]["transparent"] = nullptr;
  EXPECT_EQ(line_of(machine, "memory"), "unknown (no such file) of 16.0 GiB usable");
  EXPECT_EQ(line_of(machine, "caches"), "unknown (no caches)");
  EXPECT_EQ(line_of(machine, "huge pages").rfind("transparent unknown (not told), shared", 0), 0U);
}

}  // namespace
}  // namespace outrigger::tools

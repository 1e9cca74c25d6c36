// SPDX-License-Identifier: Apache-2.0
// What is read of a machine: parsers on text, and whole trees of /proc and /sys made up by a test.
#include "core/topology/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/topology/hardware.h"
#include "core/topology/memory.h"
#include "core/topology/reading.h"

namespace outrigger::topology {
namespace {

using Json = nlohmann::ordered_json;

// A root folder with files of one's own.
class Tree {
 public:
  Tree() {
    std::string pattern = ::testing::TempDir() + "/outrigger-machine-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) root_ = pattern;
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Tree& add(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text << '\n';
    return *this;
  }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// Makes hwloc look at a tree, and at nothing else.
class HwlocLooksAt {
 public:
  explicit HwlocLooksAt(const Tree& tree) {
    setenv("HWLOC_FSROOT", tree.root().c_str(), 1);
    setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  }
  HwlocLooksAt(const HwlocLooksAt&) = delete;
  HwlocLooksAt& operator=(const HwlocLooksAt&) = delete;
  ~HwlocLooksAt() {
    unsetenv("HWLOC_FSROOT");
    unsetenv("HWLOC_COMPONENTS");
  }
};

TEST(Reading, CountsCoresOfAList) {
  EXPECT_EQ(count_cores("0"), 1);
  EXPECT_EQ(count_cores("0-3,8"), 5);
  EXPECT_EQ(count_cores("0-1,4-5,7"), 5);
  for (const char* bad : {"", "x", "3-1", "0-", "0-9999999", "0,,1"}) {
    EXPECT_EQ(count_cores(bad), std::nullopt) << bad;
  }
}

TEST(Reading, FindsTheChosenWord) {
  EXPECT_EQ(chosen_word("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen_word("[never]"), "never");
  EXPECT_EQ(chosen_word("never"), std::nullopt);
  EXPECT_EQ(chosen_word("]x["), std::nullopt);
}

TEST(Reading, TellsANumberFromALimitThatIsNotSet) {
  Tree tree;
  tree.add("/n", "42 7").add("/max", "max 100000").add("/minus", "-1").add("/odd", "many");
  EXPECT_EQ(number_in(tree.root() + "/n").value, 42U);
  EXPECT_EQ(number_in(tree.root() + "/max").reason, "no limit is set");
  EXPECT_EQ(number_in(tree.root() + "/minus").reason, "no limit is set");
  EXPECT_NE(number_in(tree.root() + "/odd").reason.find("has no number"), std::string::npos);
  const Reading<uint64_t> absent = number_in(tree.root() + "/absent");
  EXPECT_FALSE(absent.value);
  EXPECT_NE(absent.reason.find("/absent: No such file"), std::string::npos) << absent.reason;
}

TEST(Reading, FindsAKeyAsAWholeWord) {
  Tree tree;
  tree.add("/stat", "total_inactive_file 9\ninactive_file 5\nNode 0 MemFree:  12 kB");
  EXPECT_EQ(number_after(tree.root() + "/stat", "inactive_file").value, 5U);
  EXPECT_EQ(kib_after(tree.root() + "/stat", "MemFree:").value, 12U << 10);
  EXPECT_NE(number_after(tree.root() + "/stat", "file").reason.find("has no file"),
            std::string::npos);
}

Tree& add_memory(Tree& tree) {
  return tree.add("/proc/meminfo",
                  "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    "
                  "8388608 kB");
}

TEST(Machine, TakesTheTightestLimitOfVersion2) {
  Tree tree;
  add_memory(tree)
      .add("/proc/self/cgroup", "0::/a/b")
      .add("/proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t0-3,6")
      .add("/sys/devices/system/cpu/online", "0-7")
      .add("/sys/fs/cgroup/a/b/memory.max", "max")
      .add("/sys/fs/cgroup/a/memory.max", "1073741824")
      .add("/sys/fs/cgroup/a/memory.current", "536870912")
      .add("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 268435456")
      .add("/sys/fs/cgroup/a/b/cpu.max", "150000 100000")
      .add("/sys/fs/cgroup/a/cpu.max", "max 100000");
  const Json m = machine(tree.root());
  EXPECT_EQ(m["cores"]["online"], 8);
  EXPECT_EQ(m["cores"]["allowed"], 5);
  EXPECT_EQ(m["cores"]["allowed_list"], "0-3,6");
  EXPECT_EQ(m["cores"]["cgroup_limit"], 1.5);
  EXPECT_EQ(m["memory"]["total_bytes"], uint64_t{16} << 30);
  EXPECT_EQ(m["memory"]["available_bytes"], uint64_t{8} << 30);
  EXPECT_EQ(m["memory"]["cgroup_limit_bytes"], 1 << 30);
  EXPECT_EQ(m["memory"]["cgroup_limit_source"], tree.root() + "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(m["memory"]["usable_bytes"], 3 << 28) << "limit - current + inactive_file";
  EXPECT_EQ(m["memory"]["usable_source"],
            "the limit in " + tree.root() + "/sys/fs/cgroup/a/memory.max");
}

// A message names every limit, the tightest first, and none that is not set.
TEST(FreeMemory, NamesEachTerm) {
  Tree tree;
  add_memory(tree)
      .add("/proc/self/cgroup", "0::/a/b/c")
      .add("/sys/fs/cgroup/a/b/c/memory.max", "17179869184")
      .add("/sys/fs/cgroup/a/b/c/memory.current", "0")
      .add("/sys/fs/cgroup/a/b/memory.max", "max")
      .add("/sys/fs/cgroup/a/b/memory.current", "5")
      .add("/sys/fs/cgroup/a/memory.max", "1610612736")
      .add("/sys/fs/cgroup/a/memory.current", "536870912");
  const FreeMemory free = free_memory(tree.root());
  EXPECT_EQ(free.bytes(), uint64_t{1} << 30);
  EXPECT_EQ(free.text(), "1024.0 MiB by the limit in " + tree.root() +
                             "/sys/fs/cgroup/a/memory.max, 8192.0 MiB by MemAvailable of "
                             "/proc/meminfo, 16.0 GiB by the limit in " +
                             tree.root() + "/sys/fs/cgroup/a/b/c/memory.max");
  EXPECT_EQ(free_memory(Tree().root()).text(), "");
}

TEST(Machine, ReadsTheLimitsOfVersion1) {
  Tree tree;
  add_memory(tree)
      .add("/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job/step\n1:name=systemd:/")
      .add("/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "2147483648")
      .add("/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes", "1073741824")
      .add("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
      .add("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000")
      .add("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
      .add("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
      .add("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  const Json m = machine(tree.root());
  EXPECT_EQ(m["cores"]["cgroup_limit"], 2.0);
  EXPECT_EQ(m["memory"]["cgroup_limit_bytes"], uint64_t{2} << 30);
  EXPECT_EQ(m["memory"]["usable_bytes"], 1 << 30);
}

TEST(Machine, SaysThatNoLimitIsSet) {
  Tree tree;
  add_memory(tree)
      .add("/proc/self/cgroup", "4:memory:/\n2:cpu:/")
      .add("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
      .add("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5");
  const Json m = machine(tree.root());
  EXPECT_TRUE(m["memory"]["cgroup_limit_bytes"].is_null());
  EXPECT_EQ(m["memory"]["cgroup_limit_bytes_reason"], "no limit is set");
  EXPECT_EQ(m["cores"]["cgroup_limit_reason"], "no limit is set");
  EXPECT_EQ(m["memory"]["usable_source"], "MemAvailable of /proc/meminfo");
}

TEST(Machine, ReadsHugePages) {
  Tree tree;
  const std::string mm = "/sys/kernel/mm/";
  tree.add(mm + "transparent_hugepage/enabled", "always [madvise] never")
      .add(mm + "transparent_hugepage/shmem_enabled",
           "always within_size [advise] never deny force")
      .add(mm + "transparent_hugepage/hpage_pmd_size", "2097152")
      .add(mm + "hugepages/hugepages-1048576kB/nr_hugepages", "1")
      .add(mm + "hugepages/hugepages-1048576kB/free_hugepages", "0")
      .add(mm + "hugepages/hugepages-2048kB/nr_hugepages", "512")
      .add(mm + "hugepages/odd/nr_hugepages", "3");
  const Json pages = machine(tree.root())["huge_pages"];
  EXPECT_EQ(pages["transparent"], "madvise");
  EXPECT_EQ(pages["transparent_shared"], "advise");
  EXPECT_EQ(pages["transparent_bytes"], 2 << 20);
  ASSERT_EQ(pages["explicit"].size(), 2U) << pages;
  EXPECT_EQ(pages["explicit"][0]["page_bytes"], 2 << 20);
  EXPECT_EQ(pages["explicit"][0]["total"], 512);
  EXPECT_TRUE(pages["explicit"][0]["free"].is_null()) << "this file is missing";
  EXPECT_EQ(pages["explicit"][1]["free"], 0);
}

// Four cores, two of each node, a second-level cache for each pair.
TEST(Machine, SeesTwoNumaNodesAndTheirCaches) {
  Tree tree;
  const std::string cpus = "/sys/devices/system/cpu/";
  const std::string nodes = "/sys/devices/system/node/";
  tree.add(cpus + "online", "0-3").add(cpus + "possible", "0-3").add(cpus + "present", "0-3");
  tree.add(nodes + "online", "0-1").add(nodes + "possible", "0-1");
  for (int i = 0; i < 4; ++i) {
    const std::string cpu = cpus + "cpu" + std::to_string(i);
    const std::string own = i == 0 ? "1" : i == 1 ? "2" : i == 2 ? "4" : "8";
    const std::string pair = i < 2 ? "3" : "c";
    tree.add(cpu + "/online", "1")
        .add(cpu + "/topology/core_id", std::to_string(i % 2))
        .add(cpu + "/topology/physical_package_id", std::to_string(i / 2))
        .add(cpu + "/topology/thread_siblings", own)
        .add(cpu + "/topology/core_cpus", own)
        .add(cpu + "/topology/core_siblings", pair)
        .add(cpu + "/topology/package_cpus", pair)
        .add(cpu + "/cache/index0/level", "1")
        .add(cpu + "/cache/index0/type", "Data")
        .add(cpu + "/cache/index0/size", "32K")
        .add(cpu + "/cache/index0/shared_cpu_map", own)
        .add(cpu + "/cache/index1/level", "2")
        .add(cpu + "/cache/index1/type", "Unified")
        .add(cpu + "/cache/index1/size", "1024K")
        .add(cpu + "/cache/index1/shared_cpu_map", pair);
  }
  for (int i = 0; i < 2; ++i) {
    const std::string node = nodes + "node" + std::to_string(i);
    const std::string prefix = "Node " + std::to_string(i) + " ";
    tree.add(node + "/cpumap", i == 0 ? "3" : "c")
        .add(node + "/meminfo",
             prefix + "MemTotal:       4194304 kB\n" + prefix + "MemFree:        1048576 kB")
        .add(node + "/distance", i == 0 ? "10 20" : "20 10");
  }
  const HwlocLooksAt looks(tree);
  const Json m = machine(tree.root());
  ASSERT_EQ(m["numa_nodes"].size(), 2U) << m.dump(2);
  for (size_t i = 0; i < 2; ++i) {
    const Json& node = m["numa_nodes"][i];
    EXPECT_EQ(node["node"], i);
    EXPECT_EQ(node["total_bytes"], uint64_t{4} << 30);
    EXPECT_EQ(node["free_bytes"], 1 << 30);
    EXPECT_EQ(node["cores"], i == 0 ? "0-1" : "2-3");
  }
  ASSERT_EQ(m["caches"].size(), 2U) << m.dump(2);
  EXPECT_EQ(
      m["caches"][0],
      Json({{"level", 1}, {"kind", "data"}, {"bytes", 32 << 10}, {"shared_by", 1}, {"count", 4}}));
  EXPECT_EQ(
      m["caches"][1],
      Json(
          {{"level", 2}, {"kind", "unified"}, {"bytes", 1 << 20}, {"shared_by", 2}, {"count", 2}}));
}

// Every null has its reason beside it.
void expect_reasons(const Json& object, int& nulls) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) {
      ++nulls;
      ASSERT_TRUE(object.contains(name + "_reason")) << name;
      EXPECT_FALSE(object[name + "_reason"].get<std::string>().empty()) << name;
    }
    if (value.is_object()) expect_reasons(value, nulls);
  }
}

TEST(Machine, WithoutAnyFileIsNullWithReasons) {
  const Tree tree;
  const HwlocLooksAt looks(tree);
  ::testing::internal::CaptureStderr();
  const Json m = machine(tree.root());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "a library prints nothing";
  int nulls = 0;
  expect_reasons(m, nulls);
  EXPECT_GE(nulls, 12) << m.dump(2);
  EXPECT_TRUE(m["memory"]["usable_bytes"].is_null());
  EXPECT_TRUE(m["shared_memory"]["memfd"].is_boolean());
}

TEST(Machine, HereIsReadWithoutAFault) {
  const Json m = machine();
  int nulls = 0;
  expect_reasons(m, nulls);
  EXPECT_GE(m["cores"]["allowed"], 1);
  EXPECT_GT(m["memory"]["usable_bytes"], 1 << 20);
  EXPECT_LE(m["memory"]["usable_bytes"], m["memory"]["total_bytes"]);
}

}  // namespace
}  // namespace outrigger::topology

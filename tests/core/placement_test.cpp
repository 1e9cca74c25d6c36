// SPDX-License-Identifier: Apache-2.0
// Which cores are neighbours, and which memory is near: on machines that hwloc describes.
#include "core/topology/placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/topology/binding.h"

namespace outrigger::topology {
namespace {

using Numbers = std::vector<int32_t>;

// Two packages of 28 cores, a node each, two threads a core; numbered as Linux does on an Intel
// server: even numbers on one package, the second threads behind the first ones.
constexpr const char* kTwoNodes =
    "package:2 [numa(memory=412316860416)] l3:1 core:28 pu:2(indexes=package:core)";
// An AMD server with four nodes a package: 64 cores a package, two threads each; numbered along the
// cores, the second threads behind all first ones.
constexpr const char* kEightNodes =
    "package:2 group:4 [numa(memory=137438953472)] l3:4 core:4 pu:2(indexes=core)";

Numbers range(int32_t first, int32_t count, int32_t stride = 1) {
  Numbers numbers;
  for (int32_t i = 0; i < count; ++i) numbers.push_back(first + i * stride);
  return numbers;
}

Hwloc described(const std::string& description) {
  Hwloc topology = load_hwloc(description);
  if (!topology) ADD_FAILURE() << description;
  return topology;
}

Numbers share(const Numbers& cores, size_t index, size_t ranks) {
  const auto begin = static_cast<ptrdiff_t>(index * cores.size() / ranks);
  const auto end = static_cast<ptrdiff_t>((index + 1) * cores.size() / ranks);
  return {cores.begin() + begin, cores.begin() + end};
}

struct Machine {
  const char* description;
  size_t cores, ranks;
  std::vector<Numbers> nodes;  // of each rank's share
};

TEST(Placement, SharesOfRanksHaveNodesOfTheirOwn) {
  const std::vector<Machine> machines{
      {kTwoNodes, 112, 2, {{0}, {1}}},
      {kTwoNodes, 112, 4, {{0}, {0}, {1}, {1}}},
      {kTwoNodes, 112, 1, {{0, 1}}},
      {kTwoNodes, 112, 3, {{0}, {0, 1}, {1}}},
      {kEightNodes, 256, 8, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
      {kEightNodes, 256, 4, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"numa:1 core:1 pu:1", 1, 1, {{0}}},
      {"core:4 pu:1", 4, 2, {{0}, {0}}},
  };
  for (const Machine& machine : machines) {
    const Hwloc topology = described(machine.description);
    ASSERT_TRUE(topology);
    const Numbers cores = cores_in_order(topology.get());
    Numbers sorted = cores;
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, range(0, static_cast<int32_t>(machine.cores))) << "each once";
    for (size_t rank = 0; rank < machine.ranks; ++rank) {
      EXPECT_EQ(nodes_of_cores(topology.get(), share(cores, rank, machine.ranks)),
                machine.nodes.at(rank))
          << machine.description << ", rank " << rank << " of " << machine.ranks;
    }
  }
}

// A run of the system's own numbers would take all of a package's first threads, or both packages.
TEST(Placement, OrderFollowsTheMachineNotTheNumbers) {
  const Hwloc two = described(kTwoNodes), eight = described(kEightNodes);
  EXPECT_EQ(share(cores_in_order(two.get()), 0, 2).at(0), 0);
  EXPECT_EQ(share(cores_in_order(two.get()), 0, 2).at(1), 56) << "the same core's second thread";
  EXPECT_EQ(nodes_of_cores(two.get(), range(0, 56)), (Numbers{0, 1}));
  EXPECT_EQ(nodes_of_cores(eight.get(), range(0, 128)), range(0, 8));
}

TEST(Placement, MemoryWithoutCoresIsNobodys) {
  // High-bandwidth memory beside each package's own, as hwloc orders them.
  const Hwloc topology = described("package:2 [numa(memory=1GB)] [numa(memory=64MB)] core:2 pu:1");
  EXPECT_EQ(nodes_of_cores(topology.get(), range(0, 2)).size(), 1U);
  EXPECT_EQ(nodes_of_cores(topology.get(), range(0, 4)).size(), 2U);
  EXPECT_TRUE(nodes_of_cores(topology.get(), Numbers{99}).empty());
}

// The XML that hwloc writes of a machine, with a PCI bridge and a device in its second package.
std::string xml_with_device() {
  const Hwloc machine = described(kTwoNodes);
  char* text = nullptr;
  int size = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(machine.get(), &text, &size, 0), 0);
  std::string xml(text);
  hwloc_free_xmlbuffer(machine.get(), text);
  const size_t package = xml.rfind("<object type=\"Package\"");
  const size_t end = xml.find('>', package) + 1;
  // What comes behind the package's own children is its I/O.
  size_t close = xml.find("\n    </object>\n  </object>", end);
  EXPECT_NE(close, std::string::npos);
  xml.insert(close + 1,
             "      <object type=\"Bridge\" gp_index=\"9001\" bridge_type=\"0-1\" depth=\"0\" "
             "bridge_pci=\"0000:[97-97]\">\n"
             "        <object type=\"PCIDev\" gp_index=\"9002\" pci_busid=\"0000:97:00.0\" "
             "pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"63.0\"/>\n"
             "      </object>\n");
  return xml;
}

TEST(Placement, ADevicesNodeIsThatOfItsPackage) {
  const Hwloc topology = described(xml_with_device());
  ASSERT_TRUE(topology);
  EXPECT_EQ(nodes_of_pci(topology.get(), "0000:97:00.0"), Numbers{1});
  EXPECT_EQ(nodes_of_pci(topology.get(), "97:00.0"), Numbers{1});
  for (const char* other : {"0000:98:00.0", "", "97", "no device"}) {
    EXPECT_TRUE(nodes_of_pci(topology.get(), other).empty()) << other;
  }
}

TEST(Binding, IsToThePartOfTheMachineThatAProcessHas) {
  const Hwloc two = described(kTwoNodes), one = described("core:4 pu:1");
  const Numbers cores = cores_in_order(two.get());
  for (size_t rank = 0; rank < 2; ++rank) {
    const Binding half = binding_of(two.get(), share(cores, rank, 2));
    EXPECT_TRUE(half.binds);
    EXPECT_EQ(half.nodes, Numbers{static_cast<int32_t>(rank)});
    EXPECT_EQ(half.reason, "");
  }
  const struct {
    Binding binding;
    const char* reason;
  } cases[] = {
      {binding_of(two.get(), cores), "on all 2 memory nodes"},
      {binding_of(two.get(), Numbers{999}), "does not tell"},
      {binding_of(one.get(), range(0, 2)), "one memory node"},
  };
  for (const auto& [binding, reason] : cases) {
    EXPECT_FALSE(binding.binds) << reason;
    EXPECT_NE(binding.reason.find(reason), std::string::npos) << binding.reason;
  }
  EXPECT_EQ(process_binding().binds, process_binding().reason.empty());
}

// The policy of pages that were bound, and where they came to lie.
TEST(Binding, PagesComeFromTheNodes) {
  const Hwloc topology = load_hwloc();
  if (!topology) GTEST_SKIP() << "the system does not describe its processors under /sys";
  const Numbers nodes = nodes_of_cores(topology.get(), cores_in_order(topology.get()));
  constexpr size_t kBytes = size_t{4} << 20;
  void* const data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  const auto* const bytes = static_cast<const std::byte*>(data);
  const std::vector<const std::byte*> addresses{bytes, bytes + kBytes / 2, bytes + kBytes - 1};
  for (const int32_t node : nodes) {
    EXPECT_TRUE(nodes_of_pages(addresses).empty()) << "none is touched";
    if (!bind_pages(topology.get(), Numbers{node}, data, kBytes)) {
      munmap(data, kBytes);
      GTEST_SKIP() << "the system binds no memory";
    }
    hwloc_bitmap_t const bound = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    EXPECT_EQ(hwloc_get_area_membind(topology.get(), data, kBytes, bound, &policy,
                                     HWLOC_MEMBIND_BYNODESET),
              0);
    EXPECT_EQ(policy, HWLOC_MEMBIND_BIND);
    EXPECT_EQ(hwloc_bitmap_first(bound), node);
    EXPECT_EQ(hwloc_bitmap_weight(bound), 1);
    hwloc_bitmap_free(bound);
    std::memset(data, 1, kBytes);
    EXPECT_EQ(nodes_of_pages(addresses), Numbers{node});
    madvise(data, kBytes, MADV_DONTNEED);
    // What the system refuses leaves the memory as it was.
    EXPECT_FALSE(bind_pages(topology.get(), Numbers{900}, data, kBytes));
    std::memset(data, 1, kBytes);
    EXPECT_EQ(nodes_of_pages(addresses), Numbers{node});
    madvise(data, kBytes, MADV_DONTNEED);
  }
  munmap(data, kBytes);
}

TEST(Placement, RefusesWhatIsNoDescription) {
  for (const char* text : {"", "<", "<topology>", "package:", "package:0", "nonsense:2 pu:1"}) {
    EXPECT_FALSE(load_hwloc(std::string(text))) << text;
  }
}

TEST(Placement, KnowsThisSystem) {
  const Hwloc topology = load_hwloc();
  if (!topology) GTEST_SKIP() << "the system does not describe its processors under /sys";
  const Numbers cores = cores_in_order(topology.get());
  EXPECT_FALSE(cores.empty());
  EXPECT_FALSE(nodes_of_cores(topology.get(), cores).empty());
}

}  // namespace
}  // namespace outrigger::topology

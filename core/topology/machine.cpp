// SPDX-License-Identifier: Apache-2.0
#include "core/topology/machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "core/base/text.h"
#include "core/topology/binding.h"
#include "core/topology/hardware.h"
#include "core/topology/memory.h"
#include "core/topology/reading.h"

namespace outrigger::topology {
namespace {

using Json = nlohmann::ordered_json;

std::string errno_text() { return std::generic_category().message(errno); }

template <typename T>
void put(Json& object, const std::string& name, const Reading<T>& reading) {
  object[name] = reading.value ? Json(*reading.value) : Json();
  if (!reading.value) object[name + "_reason"] = reading.reason;
}

// Applies a parser that may refuse; the reason then shows the text.
template <typename Parse>
auto parsed(const Reading<std::string>& text, const Parse& parse)
    -> Reading<typename std::invoke_result_t<Parse, std::string>::value_type> {
  if (!text.value) return {{}, text.reason};
  auto value = parse(*text.value);
  return {value, value ? "" : format_text("\"{}\" is not understood", *text.value)};
}

// The tightest share of processor time that control groups allow, in cores.
Reading<double> cpu_limit(const std::string& root) {
  Reading<double> lowest{{}, "no limit is set"};
  for (const Group& group : groups_of("cpu", root)) {
    const std::string file = group.folder + (group.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
    const auto quota = number_in(file).value;
    auto period = group.unified ? std::optional<uint64_t>()
                                : number_in(group.folder + "/cpu.cfs_period_us").value;
    if (group.unified && quota) {  // "quota period"
      const std::string line = line_in(file).value.value_or("");
      period = number_after(file, line.substr(0, line.find(' '))).value;
    }
    if (!quota || !period || *period == 0) continue;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    if (!lowest.value || cores < *lowest.value) lowest = {cores, {}};
  }
  return lowest;
}

Json cores(const std::string& root) {
  Json out;
  put(out, "online", parsed(line_in(root + "/sys/devices/system/cpu/online"), count_cores));
  // The calling thread's: a launcher gives each worker a share.
  const auto list = text_after(root + "/proc/thread-self/status", "Cpus_allowed_list:");
  put(out, "allowed", parsed(list, count_cores));
  put(out, "allowed_list", list);
  put(out, "cgroup_limit", cpu_limit(root));
  return out;
}

void put_hardware(Json& out, const std::string& root) {
  const Hardware found = hardware();
  Json caches = Json::array(), nodes = Json::array();
  for (const Cache& c : found.caches) {
    caches.push_back({{"level", c.level},
                      {"kind", c.kind},
                      {"bytes", c.bytes},
                      {"shared_by", c.shared_by},
                      {"count", c.count}});
  }
  for (const NumaNode& n : found.nodes) {
    Json node = {{"node", n.number}, {"cores", n.cores}};
    put(node, "total_bytes",
        n.bytes > 0 ? Reading<uint64_t>{n.bytes, {}}
                    : Reading<uint64_t>{{}, "the system does not say"});
    put(node, "free_bytes",
        kib_after(format_text("{}/sys/devices/system/node/node{}/meminfo", root, n.number),
                  "MemFree:"));
    nodes.push_back(std::move(node));
  }
  const std::string reason = found.reason.empty() ? "the system does not say" : found.reason;
  out["cores"]["order"] = found.cores_in_order.empty() ? Json() : Json(found.cores_in_order);
  if (found.cores_in_order.empty()) out["cores"]["order_reason"] = reason;
  out["caches"] = caches.empty() ? Json() : std::move(caches);
  if (out["caches"].is_null()) out["caches_reason"] = reason;
  out["numa_nodes"] = nodes.empty() ? Json() : std::move(nodes);
  if (out["numa_nodes"].is_null()) out["numa_nodes_reason"] = reason;
}

Json memory(const std::string& root) {
  Json out;
  const std::string meminfo = root + "/proc/meminfo";
  put(out, "total_bytes", kib_after(meminfo, "MemTotal:"));
  put(out, "available_bytes", kib_after(meminfo, "MemAvailable:"));
  const MemoryLimit limit = memory_limit(root);
  put(out, "cgroup_limit_bytes", limit.bytes);
  if (limit.bytes.value) out["cgroup_limit_source"] = limit.source;
  const FreeMemory free = free_memory(root);
  const bool known = free.bytes() != std::numeric_limits<uint64_t>::max();
  put(out, "usable_bytes",
      known ? Reading<uint64_t>{free.bytes(), {}}
            : Reading<uint64_t>{{}, format_text("{} does not tell MemAvailable", meminfo)});
  if (known) out["usable_source"] = free.source();
  return out;
}

Json huge_pages(const std::string& root) {
  Json out;
  const std::string transparent = root + "/sys/kernel/mm/transparent_hugepage";
  put(out, "transparent", parsed(line_in(transparent + "/enabled"), chosen_word));
  put(out, "transparent_shared", parsed(line_in(transparent + "/shmem_enabled"), chosen_word));
  put(out, "transparent_bytes", number_in(transparent + "/hpage_pmd_size"));

  std::vector<uint64_t> found;  // KiB
  const std::string folder = root + "/sys/kernel/mm/hugepages";
  constexpr std::string_view prefix = "hugepages-";  // hugepages-2048kB
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    uint64_t kib = 0;
    if (!name.starts_with(prefix)) continue;
    const char* const digits = name.data() + prefix.size();
    if (std::from_chars(digits, name.data() + name.size(), kib).ec == std::errc()) {
      found.push_back(kib);
    }
  }
  std::ranges::sort(found);
  Json sizes = Json::array();
  for (const uint64_t kib : found) {
    const std::string at = format_text("{}/hugepages-{}kB", folder, kib);
    Json size = {{"page_bytes", kib << 10}};
    put(size, "total", number_in(at + "/nr_hugepages"));
    put(size, "free", number_in(at + "/free_hugepages"));
    sizes.push_back(std::move(size));
  }
  out["explicit"] = error ? Json() : std::move(sizes);
  if (error) out["explicit_reason"] = format_text("{}: {}", folder, error.message());
  return out;
}

Json locked_memory() {
  Json out;
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
  const std::string refused = known ? "" : errno_text();
  const auto reading = [&](rlim_t value) {
    if (!known) return Reading<uint64_t>{{}, refused};
    if (value == RLIM_INFINITY) return Reading<uint64_t>{{}, "no limit is set"};
    return Reading<uint64_t>{value, {}};
  };
  put(out, "soft_bytes", reading(limit.rlim_cur));
  put(out, "hard_bytes", reading(limit.rlim_max));
  return out;
}

// Whether a call that gives a descriptor works here.
void put_descriptor(Json& out, const std::string& name, int fd) {
  out[name] = fd >= 0;
  if (fd < 0) out[name + "_reason"] = errno_text();
  if (fd >= 0) close(fd);
}

Json shared_memory(const std::string& root) {
  Json out;
  const std::string folder = root + "/dev/shm";
  struct statvfs status{};
  const bool known = statvfs(folder.c_str(), &status) == 0;
  const std::string reason = known ? "" : format_text("{}: {}", folder, errno_text());
  const auto reading = [&](fsblkcnt_t blocks) {
    return known ? Reading<uint64_t>{uint64_t{blocks} * status.f_frsize, {}}
                 : Reading<uint64_t>{{}, reason};
  };
  put(out, "dev_shm_bytes", reading(status.f_blocks));
  put(out, "dev_shm_free_bytes", reading(status.f_bavail));
  put_descriptor(out, "memfd", memfd_create("outrigger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  put_descriptor(out, "pidfd", static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  return out;
}

}  // namespace

Json machine(const std::string& root) {
  Json out;
  out["cores"] = cores(root);
  put_hardware(out, root);
  out["memory"] = memory(root);
  out["huge_pages"] = huge_pages(root);
  out["locked_memory"] = locked_memory();
  out["shared_memory"] = shared_memory(root);
  const Binding& binding = process_binding();
  out["memory_binding"] = {{"binds", binding.binds}, {"nodes", binding.nodes}};
  if (!binding.binds) out["memory_binding"]["reason"] = binding.reason;
  return out;
}

}  // namespace outrigger::topology

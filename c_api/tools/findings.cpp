// SPDX-License-Identifier: Apache-2.0
#include "findings.h"
#include "text.h"

namespace outrigger::tools {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::string word_at(const Json& machine, const char* path) {
  const Json::json_pointer at(path);
  return machine.contains(at) && machine[at].is_string() ? machine[at].get<std::string>() : "";
}

bool is_false(const Json& machine, const char* path) {
  const Json::json_pointer at(path);
  return machine.contains(at) && machine[at] == false;
}

void look_at_cores(const Json& machine, std::vector<Finding>& found) {
  const std::string error = word_at(machine, "/instruction_sets/error");
  if (!error.empty()) {
    found.push_back({true, error, "unset OTR_SIMD, or name one of those; no context can be made"});
  } else if (word_at(machine, "/instruction_sets/used") == "oracle") {
    found.push_back({false, "updates run without vector instructions",
                     "unset OTR_SIMD, or use a processor with AVX2, AVX-512 or NEON"});
  }
  const auto allowed = number_at(machine, "/cores/allowed");
  const Json::json_pointer limit("/cores/cgroup_limit");
  if (allowed && machine.contains(limit) && machine[limit].is_number() &&
      machine[limit].get<double>() < static_cast<double>(*allowed)) {
    found.push_back(
        {false,
         format_text("the control group allows the time of {:.3g} cores, and {} are visible",
                     machine[limit].get<double>(), *allowed),
         "have no more threads than that in all: outrigger run --cores, or workers in "
         "otr_context_options; or raise the limit (docker --cpus)"});
  }
}

void look_at_memory(const Json& machine, std::vector<Finding>& found) {
  const auto total = number_at(machine, "/memory/total_bytes");
  const auto limit = number_at(machine, "/memory/cgroup_limit_bytes");
  if (total && limit && *limit < *total) {
    found.push_back(
        {false,
         format_text("the control group allows {} of this machine's {} ({})", bytes_text(*limit),
                     bytes_text(*total), word_at(machine, "/memory/cgroup_limit_source")),
         "raise the limit if that is not meant (docker --memory, systemd MemoryMax, "
         "the job's memory request)"});
  }
  const auto locked = number_at(machine, "/locked_memory/soft_bytes");
  if (locked && *locked < 64 * kMiB) {
    found.push_back({false,
                     format_text("only {} may be locked (RLIMIT_MEMLOCK): too little to pin "
                                 "buffers for a device",
                                 bytes_text(*locked)),
                     "ulimit -l unlimited, LimitMEMLOCK=infinity, or docker --ulimit memlock=-1"});
  }
  const auto pages = machine.find("huge_pages");
  if (pages == machine.end() || !pages->is_object()) return;
  bool reserved = false;
  if (pages->contains("explicit") && (*pages)["explicit"].is_array()) {
    for (const Json& size : (*pages)["explicit"]) {
      reserved |= number_at(size, "/total").value_or(0) > 0;
    }
  }
  const std::string transparent = word_at(machine, "/huge_pages/transparent");
  const std::string shared = word_at(machine, "/huge_pages/transparent_shared");
  if (transparent == "never" && !reserved) {
    found.push_back({false, "there are no huge pages: updates of large states are slower",
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"});
  } else if (shared == "never" || shared == "deny") {
    found.push_back({false,
                     format_text("shared memory gets no huge pages (shmem_enabled is {}): "
                                 "parameters that ranks share have pages of 4 KiB",
                                 shared),
                     "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (as root)"});
  }
}

void look_at_sharing(const Json& machine, std::vector<Finding>& found) {
  if (is_false(machine, "/shared_memory/memfd")) {
    found.push_back({true,
                     format_text("memfd_create is refused ({}): processes cannot share memory",
                                 reason_at(machine, "/shared_memory/memfd")),
                     "allow it in the container's seccomp profile, or use one process"});
  }
  if (is_false(machine, "/shared_memory/pidfd")) {
    found.push_back({false,
                     format_text("pidfd_open is refused ({}): dead ranks are noticed by file locks",
                                 reason_at(machine, "/shared_memory/pidfd")),
                     "allow it in the container's seccomp profile, or use Linux 5.3 or later"});
  }
  const auto shm = number_at(machine, "/shared_memory/dev_shm_bytes");
  if (shm && *shm < 256 * kMiB) {
    found.push_back({false,
                     format_text("/dev/shm has {}: Outrigger does not use it, but MPI, NCCL and "
                                 "data loaders do",
                                 bytes_text(*shm)),
                     "docker --shm-size=8g, or mount -o remount,size=8g /dev/shm"});
  }
}

}  // namespace

std::vector<Finding> findings_of(const Json& machine) {
  std::vector<Finding> found;
  look_at_cores(machine, found);
  look_at_memory(machine, found);
  look_at_sharing(machine, found);
  return found;
}

}  // namespace outrigger::tools

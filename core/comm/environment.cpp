// SPDX-License-Identifier: Apache-2.0
// What launchers say. The first family in kFamilies with one of its two needed variables set is
// taken, and must then be complete; later families are not looked at (torchrun under srun sets
// both).
#include "core/comm/environment.h"

#include <charconv>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::comm {
namespace {

struct Family {
  const char* launcher;
  const char *rank, *world;  // needed
  const char* local_rank;
  const char* local_world[2];  // the first that is set
  const char*
      job[3];  // which variables tell this launch from others, beside MASTER_ADDR and its like
};

constexpr Family kFamilies[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}, {}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"MPI_LOCALNRANKS"}, {"PMI_JOBID"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

constexpr const char* kJobVariables[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_RESTART_COUNT"};

class Reader {
 public:
  Reader(const Family& family, const Lookup& lookup) : family_(family), lookup_(lookup) {}

  Launch read() const {
    Launch launch;
    launch.launcher = family_.launcher;
    launch.world = number(family_.world, 1, INT32_MAX);
    launch.rank = number(family_.rank, 0, launch.world - 1);
    read_local(launch);
    if (has("MASTER_PORT")) number("MASTER_PORT", 1, 65535);
    return launch;
  }

 private:
  // Not every launcher tells the local size; without any word on it, all ranks are on this host.
  void read_local(Launch& launch) const {
    for (const char* size : family_.local_world) {
      if (!has(size)) continue;
      if (!has(family_.local_rank)) complain(format_text("{} is not set", family_.local_rank));
      launch.local_world = number(size, 1, launch.world);
      launch.local_rank = number(family_.local_rank, 0, launch.local_world - 1);
      return;
    }
    launch.local_world = launch.world;
    launch.local_rank = launch.rank;
    if (has(family_.local_rank) && number(family_.local_rank, 0, launch.world - 1) != launch.rank) {
      complain(
          format_text("{} is not set, and {} differs from {}, so not all ranks are on this host",
                      family_.local_world[0], family_.local_rank, family_.rank));
    }
  }

  bool has(const char* name) const { return name != nullptr && lookup_(name).has_value(); }

  int32_t number(const char* name, int32_t low, int32_t high) const {
    const auto given = lookup_(name);
    if (!given) complain(format_text("{} is not set", name));
    const auto text = is_node_list(name) ? tasks_of_node(*given) : given;
    if (!text) complain(format_text("{}='{}' has no entry for SLURM_NODEID", name, *given));
    int32_t value = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc() || stop != end || text->empty()) {
      complain(format_text("{}='{}' is not a whole number", name, *given));
    }
    if (value < low || value > high) {
      complain(format_text("{}={} is outside {}..{}", name, value, low, high));
    }
    return value;
  }

  static bool is_node_list(const char* name) {
    return std::string_view(name) == "SLURM_STEP_TASKS_PER_NODE";
  }

  // Of "4(x2),1" the entry of node SLURM_NODEID: 4, 4 and 1.
  std::optional<std::string> tasks_of_node(const std::string& list) const {
    int32_t node = has("SLURM_NODEID") ? number("SLURM_NODEID", 0, INT32_MAX) : 0;
    for (size_t at = 0; at <= list.size();) {
      const std::string item = list.substr(at, list.find(',', at) - at);
      at += item.size() + 1;
      const size_t repeat = item.find("(x");
      int32_t nodes = 1;
      if (repeat != std::string::npos) {
        std::from_chars(item.data() + repeat + 2, item.data() + item.size(), nodes);
      }
      if (node < nodes) return item.substr(0, repeat);
      node -= nodes;
    }
    return std::nullopt;
  }

  [[noreturn]] void complain(const std::string& what) const {
    std::string seen;
    for (const char* name : {family_.rank, family_.world, family_.local_rank,
                             family_.local_world[0], family_.local_world[1], "MASTER_PORT"}) {
      if (has(name))
        seen += format_text("{}{}='{}'", seen.empty() ? "" : ", ", name, *lookup_(name));
    }
    fail(OTR_E_CONFIG,
         "the environment looks like {}'s, but {}; seen: {}. Set {} and {} (and their local forms) "
         "on every "
         "rank, or none of them",
         family_.launcher, what, seen, family_.rank, family_.world);
  }

  const Family& family_;
  const Lookup& lookup_;
};

bool was_used(const Family& family, const Lookup& lookup) {
  const bool rank = lookup(family.rank).has_value(), world = lookup(family.world).has_value();
  const std::string_view launcher = family.launcher;
  // Slurm tells the number of tasks to scripts and shells that are none.
  if (launcher == "Slurm") {
    const auto name = lookup("SLURM_JOB_NAME");
    return rank && !(name && (*name == "bash" || *name == "interactive"));
  }
  // Slurm speaks PMI, too, but without the local numbers; its own variables say more.
  if (launcher == "PMI") return (rank || world) && lookup(family.local_world[0]).has_value();
  return rank || world;
}

std::string job_of(const Family& family, const Lookup& lookup) {
  if (const auto given = lookup("OTR_JOB")) return *given;
  std::string job;
  const auto add = [&](const char* name) {
    if (name == nullptr) return;
    if (const auto value = lookup(name))
      job += format_text("{}{}={}", job.empty() ? "" : " ", name, *value);
  };
  for (const char* name : kJobVariables) add(name);
  for (const char* name : family.job) add(name);
  return job;
}

}  // namespace

Launch read_launch(const Lookup& lookup) {
  // An empty variable counts as absent: many scripts "unset" that way.
  const Lookup present = [&](const char* name) {
    auto value = lookup(name);
    return value && value->empty() ? std::nullopt : value;
  };
  for (const Family& family : kFamilies) {
    if (!was_used(family, present)) continue;
    Launch launch = Reader(family, present).read();
    launch.job = job_of(family, present);
    return launch;
  }
  Launch alone;
  alone.launcher = "none";
  alone.job = present("OTR_JOB").value_or("");
  return alone;
}

Launch read_launch_environment() {
  return read_launch([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace outrigger::comm

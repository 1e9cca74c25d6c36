// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace outrigger::test {
namespace {

otr_context* make_context(int32_t workers) {
  otr_context_options options;
  NEED(otr_context_options_init(&options, sizeof options));
  options.workers = workers;
  otr_context* context = nullptr;
  NEED(otr_context_create(&options, &context));
  return context;
}

RankResult guarded(const RankBody& body, int32_t rank, otr_context* context, otr_comm* comm) {
  RankResult result;
  try {
    result.bytes = body(rank, context, comm);
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  return result;
}

// A caller's own functions, here over a group of threads.
int32_t custom_all_gather(void* user, const void* mine, size_t bytes, void* all) {
  return otr_comm_all_gather(static_cast<otr_comm*>(user), mine, bytes, all);
}
int32_t custom_broadcast(void* user, void* data, size_t bytes, int32_t root) {
  return otr_comm_broadcast(static_cast<otr_comm*>(user), data, bytes, root);
}
int32_t custom_duplicate(void* user, void** out) {
  otr_comm* made = nullptr;
  const int32_t status = otr_comm_duplicate(static_cast<otr_comm*>(user), &made);
  *out = made;
  return status;
}
int32_t custom_split(void* user, const int32_t* groups, const int32_t* places, void** out) {
  auto* const channel = static_cast<otr_comm*>(user);
  int32_t rank = 0;
  otr_comm* made = nullptr;
  int32_t status = otr_comm_rank(channel, &rank);
  if (status == OTR_OK) status = otr_comm_split(channel, groups[rank], places[rank], &made);
  *out = made;
  return status;
}
void custom_abort(void* user, const char* reason) {
  otr_comm_abort(static_cast<otr_comm*>(user), reason);
}
void custom_destroy(void* user) { otr_comm_destroy(static_cast<otr_comm*>(user)); }

otr_comm* custom_over(otr_context* context, otr_comm* threads) {
  otr_comm_table table;
  NEED(otr_comm_table_init(&table, sizeof table));
  NEED(otr_comm_rank(threads, &table.rank));
  NEED(otr_comm_size(threads, &table.world_size));
  table.user_data = threads;
  table.all_gather = custom_all_gather;
  table.broadcast = custom_broadcast;
  table.duplicate = custom_duplicate;
  table.split = custom_split;
  table.abort = custom_abort;
  table.destroy = custom_destroy;
  otr_comm* made = nullptr;
  NEED(otr_comm_create_custom(context, &table, &made));
  return made;
}

std::vector<RankResult> run_threads(int32_t world, const RankBody& body,
                                    const otr_comm_options& options, int32_t workers, bool custom) {
  otr_context* context = make_context(workers);
  std::vector<otr_comm*> comms(static_cast<size_t>(world));
  NEED(otr_comm_create_threads(context, world, &options, comms.data()));
  std::vector<RankResult> results(comms.size());
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<size_t>(rank);
      if (custom) comms[i] = custom_over(context, comms[i]);
      results[i] = guarded(body, rank, context, comms[i]);
      otr_comm_destroy(comms[i]);
    });
  }
  for (auto& thread : threads) thread.join();
  otr_context_destroy(context);
  return results;
}

void write_all(int fd, const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = write(fd, at, size);
    if (n <= 0) return;
    at += n;
    size -= static_cast<size_t>(n);
  }
}

Bytes read_all(int fd) {
  Bytes bytes;
  unsigned char buffer[65536];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof buffer)) > 0;)
    bytes.insert(bytes.end(), buffer, buffer + n);
  close(fd);
  return bytes;
}

// The child's answer: 'B' and bytes, or 'E' and a text.
void child(int fd, int32_t rank, otr_comm_options options, const RankBody& body, int32_t workers) {
  RankResult result;
  try {
    otr_context* context = make_context(workers);
    options.rank = rank;
    otr_comm* comm = nullptr;
    NEED(otr_comm_create_shm(context, &options, &comm));
    result = guarded(body, rank, context, comm);
    otr_comm_destroy(comm);
    otr_context_destroy(context);
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  write_all(fd, result.error.empty() ? "B" : "E", 1);
  if (result.error.empty()) {
    write_all(fd, result.bytes.data(), result.bytes.size());
  } else {
    write_all(fd, result.error.data(), result.error.size());
  }
  close(fd);
}

std::vector<RankResult> run_processes(int32_t world, const RankBody& body, otr_comm_options options,
                                      int32_t workers) {
  static std::atomic<int> serial{0};
  const std::string job = "test-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
  options.job = job.c_str();
  options.world_size = world;
  std::vector<pid_t> pids;
  std::vector<int> fds;
  for (int32_t rank = 0; rank < world; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
      for (const int fd : fds) close(fd);
      close(ends[0]);
      child(ends[1], rank, options, body, workers);
      _exit(0);
    }
    close(ends[1]);
    pids.push_back(pid);
    fds.push_back(ends[0]);
  }
  std::vector<RankResult> results(static_cast<size_t>(world));
  for (size_t i = 0; i < results.size(); ++i) {
    const Bytes answer = read_all(fds[i]);
    int status = 0;
    waitpid(pids[i], &status, 0);
    if (WIFSIGNALED(status)) results[i].signal = WTERMSIG(status);
    if (answer.empty()) {
      results[i].error = "the process gave no answer";
    } else if (answer[0] == 'E') {
      results[i].error.assign(answer.begin() + 1, answer.end());
    } else {
      results[i].bytes.assign(answer.begin() + 1, answer.end());
    }
  }
  return results;
}

// Of all ranks, on each of them.
std::vector<Bytes> gather(otr_comm* comm, int32_t world, const Bytes& mine) {
  const auto ranks = static_cast<size_t>(world);
  const uint64_t size = mine.size();
  std::vector<uint64_t> sizes(ranks);
  NEED(otr_comm_all_gather(comm, &size, sizeof size, sizes.data()));
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  Bytes padded = mine, all(ranks * most);
  padded.resize(most);
  NEED(otr_comm_all_gather(comm, padded.data(), most, all.data()));
  std::vector<Bytes> bytes;
  for (size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(r * most);
    bytes.emplace_back(begin, begin + static_cast<ptrdiff_t>(sizes[r]));
  }
  return bytes;
}

// Open MPI's launcher and MPICH's say it in variables of their own.
void pretend_two_hosts(int32_t world) {
  const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
  if (text == nullptr) text = std::getenv("PMI_RANK");
  if (text == nullptr) throw std::runtime_error("mpirun has not started this");
  const int32_t rank = std::atoi(text), each = world / 2;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}) {
    setenv(name, std::to_string(rank % each).c_str(), 1);
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    setenv(name, std::to_string(each).c_str(), 1);
  }
}

std::vector<RankResult> run_mpi(Provider provider, int32_t world, const RankBody& body,
                                const otr_comm_options& options, int32_t workers) {
  otr_context* context = make_context(workers);
  otr_comm* comm = nullptr;
  if (provider == Provider::launched) {
    pretend_two_hosts(world);
    NEED(otr_comm_from_env(context, &options, &comm));
  } else {
    NEED(otr_comm_create_mpi(context, nullptr, &options, &comm));
  }
  int32_t rank = 0;
  NEED(otr_comm_rank(comm, &rank));
  const RankResult mine = guarded(body, rank, context, comm);
  std::vector<RankResult> results(static_cast<size_t>(world));
  const std::vector<Bytes> bytes = gather(comm, world, mine.bytes);
  const std::vector<Bytes> errors =
      gather(comm, world, Bytes(mine.error.begin(), mine.error.end()));
  for (size_t r = 0; r < results.size(); ++r) {
    results[r].bytes = bytes[r];
    results[r].error.assign(errors[r].begin(), errors[r].end());
  }
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return results;
}

}  // namespace

const char* name_of(Provider provider) {
  return provider == Provider::self       ? "self"
         : provider == Provider::threads  ? "threads"
         : provider == Provider::custom   ? "custom"
         : provider == Provider::mpi      ? "mpi"
         : provider == Provider::launched ? "launched"
                                          : "shm";
}

void need(int32_t status, const char* call) {
  if (status == OTR_OK) return;
  throw std::runtime_error(std::string(otr_status_name(status)) + ": " + otr_last_error_message() +
                           " [" + call + "]");
}

Levels::Levels(otr_comm* all, int32_t world, int32_t hosts) : all_(all) {
  if (hosts == 0) return;
  const int32_t each = world / hosts;
  int32_t rank = 0;
  NEED(otr_comm_rank(all, &rank));
  otr_comm *host = nullptr, *across = nullptr;
  NEED(otr_comm_split(all, rank / each, rank, &host));
  NEED(otr_comm_split(all, rank % each, rank, &across));
  const int32_t status = otr_comm_create_hierarchical(all, host, across, &made_);
  const std::string text = otr_last_error_message();
  otr_comm_destroy(host);
  otr_comm_destroy(across);
  if (status != OTR_OK) throw std::runtime_error(text);
}

std::vector<RankResult> run_ranks(Provider provider, int32_t world, const RankBody& body,
                                  double timeout, int32_t workers) {
  otr_comm_options options;
  NEED(otr_comm_options_init(&options, sizeof options));
  options.timeout = timeout;
  if (provider >= Provider::mpi) return run_mpi(provider, world, body, options, workers);
  if (provider == Provider::shm) return run_processes(world, body, options, workers);
  if (provider == Provider::threads || provider == Provider::custom) {
    return run_threads(world, body, options, workers, provider == Provider::custom);
  }
  otr_context* context = make_context(workers);
  otr_comm* comm = nullptr;
  NEED(otr_comm_create_self(context, &comm));
  std::vector<RankResult> results{guarded(body, 0, context, comm)};
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return results;
}

}  // namespace outrigger::test

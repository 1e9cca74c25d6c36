// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/custom.h"
#include "core/comm/hierarchical.h"
#include "core/comm/transport.h"
#include "core/comm/wait.h"
#include "tests/comm/fake_transport.h"

namespace outrigger::comm::test {
namespace {

constexpr double kGiveUp = 90;  // seconds until a group counts as hung

struct TestFault : std::runtime_error {
  using runtime_error::runtime_error;
};

Outcome outcome_of(const std::function<void()>& body) {
  Outcome outcome;
  try {
    body();
  } catch (const Error& error) {
    outcome.status = error.status();
    outcome.text = error.what();
  } catch (const TestFault& fault) {
    outcome.status = kTestFault;
    outcome.text = fault.what();
  } catch (const std::exception& error) {
    outcome.status = OTR_E_INTERNAL;
    outcome.text = error.what();
  }
  outcome.ended_at = now();
  return outcome;
}

struct Child {
  pid_t pid;
  int pipe;
  std::string words = {};
  bool open = true;
};

Child start(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    close(ends[0]);
    const Outcome outcome = outcome_of(body);
    const auto words =
        outrigger::format_text("{} {} {}", outcome.status, outcome.ended_at, outcome.text);
    const ssize_t written = write(ends[1], words.data(), words.size());
    _exit(written == static_cast<ssize_t>(words.size()) ? 0 : 1);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

// Reads until all have closed their pipe or the time is over; then ends those that are left.
void listen(std::vector<Child>& children) {
  const double until = now() + kGiveUp;
  for (size_t open = children.size(); open > 0 && now() < until;) {
    std::vector<pollfd> fds;
    for (const auto& child : children) fds.push_back({child.open ? child.pipe : -1, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    for (size_t i = 0; i < children.size(); i++) {
      if (fds[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = read(children[i].pipe, buffer.data(), buffer.size());
      if (n > 0) {
        children[i].words.append(buffer.data(), static_cast<size_t>(n));
      } else {
        children[i].open = false;
        open--;
      }
    }
  }
  for (auto& child : children) {
    if (child.open) {
      ADD_FAILURE() << "process " << child.pid << " hung; it was ended";
      kill(child.pid, SIGKILL);
    }
    close(child.pipe);
    waitpid(child.pid, nullptr, 0);
  }
}

Outcome parse(const std::string& words) {
  Outcome outcome;
  outcome.status = kKilled;
  int read = 0;
  if (std::sscanf(words.c_str(), "%d %lf %n", &outcome.status, &outcome.ended_at, &read) == 2) {
    outcome.text = words.substr(static_cast<size_t>(read));
  }
  return outcome;
}

}  // namespace

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

Board& board() {
  static Board& shared = *[] {
    const char* path = std::getenv("OTR_TEST_BOARD");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, sizeof(Board)) != 0) throw std::runtime_error("ftruncate");
    return static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0));
  }();
  return shared;
}

void die() {
  board().moment = now();
  raise(SIGKILL);
  std::abort();
}

void die_in(std::chrono::milliseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    die();
  }).detach();
}

void require(bool holds, const std::string& what) {
  if (!holds) throw TestFault(what);
}

std::string name_of(const Ranks& group) {
  constexpr std::array kNames{"self",
                              "threads",
                              "shm",
                              "custom",
                              "custom_gather_only",
                              "hierarchical",
                              "hierarchical_threads",
                              "transport",
                              "mpi",
                              "hierarchical_mpi"};
  return outrigger::format_text("{}{}{}", kNames[static_cast<size_t>(group.provider)], group.world,
                                group.liveness == LivenessSource::locks ? "locks" : "");
}

void PrintTo(const Ranks& group, std::ostream* out) { *out << name_of(group); }

std::vector<Outcome> run_processes(int32_t count, const std::function<void(int32_t)>& body) {
  static_cast<void>(board());  // before the fork
  std::vector<Child> children;
  for (int32_t i = 0; i < count; i++) children.push_back(start([&body, i] { body(i); }));
  listen(children);
  std::vector<Outcome> outcomes;
  for (const auto& child : children) outcomes.push_back(parse(child.words));
  return outcomes;
}

std::unique_ptr<Communicator> attach(const Ranks& group, int32_t rank) {
  return make_shm(rank, group.world, group.job, {.timeout = group.timeout}, group.liveness);
}

namespace {

// The functions of a table, over a group of threads.
Communicator& base(void* user_data) { return *static_cast<Communicator*>(user_data); }

template <typename Call>
int32_t answered(const Call& call) {
  try {
    call();
    return 0;
  } catch (const std::exception&) {
    return 7;
  }
}

int32_t all_gather(void* user, const void* mine, size_t bytes, void* all) {
  return answered([&] {
    Communicator& c = base(user);
    c.all_gather({static_cast<const std::byte*>(mine), bytes},
                 {static_cast<std::byte*>(all), bytes * static_cast<size_t>(c.size())}, "custom");
  });
}

int32_t broadcast(void* user, void* data, size_t bytes, int32_t root) {
  return answered(
      [&] { base(user).broadcast({static_cast<std::byte*>(data), bytes}, root, "custom"); });
}

int32_t all_to_all(void* user, const void* parts, size_t bytes, void* received) {
  return answered([&] {
    Communicator& c = base(user);
    const auto ranks = static_cast<size_t>(c.size());
    std::vector<std::byte> all(ranks * ranks * bytes);
    c.all_gather({static_cast<const std::byte*>(parts), ranks * bytes}, all, "custom");
    for (size_t r = 0; r < ranks; r++) {
      std::copy_n(all.data() + (r * ranks + static_cast<size_t>(c.rank())) * bytes, bytes,
                  static_cast<std::byte*>(received) + r * bytes);
    }
  });
}

int32_t duplicate(void* user, void** out) {
  return answered([&] { *out = base(user).duplicate("custom").release(); });
}

int32_t split_of(void* user, const int32_t* groups, const int32_t* places, void** out) {
  return answered([&] {
    const auto rank = static_cast<size_t>(base(user).rank());
    *out = split(base(user), groups[rank], places[rank]).release();
  });
}

std::unique_ptr<Communicator> over(std::unique_ptr<Communicator> threads, Provider provider) {
  otr_comm_table table{};
  table.struct_size = sizeof table;
  table.rank = threads->rank();
  table.world_size = threads->size();
  table.user_data = threads.release();
  table.all_gather = all_gather;
  if (provider == Provider::custom) {
    table.broadcast = broadcast;
    table.all_to_all = all_to_all;
  }
  table.duplicate = duplicate;
  table.split = split_of;
  table.abort = [](void* user, const char* reason) {
    base(user).abort(reason);
    base(user).cancel();
  };
  table.destroy = [](void* user) { delete static_cast<Communicator*>(user); };
  return make_custom(table);
}

}  // namespace

int32_t mpi_world() {
  return std::getenv("OTR_TEST_MPI") == nullptr ? 0 : read_launch_environment().world;
}

namespace {

std::unique_ptr<Communicator> on_hosts_of_two(Communicator& all,
                                              std::unique_ptr<Communicator> across) {
  const auto host = split(all, all.rank() / 2, all.rank());
  return make_hierarchical(all, *host, *across);
}

// The outcome of this process's rank alone.
std::vector<Outcome> run_mpi(const Ranks& group, const Body& body) {
  return {outcome_of([&] {
    static const auto plugin = device::load_transport_plugin("mpi");
    auto all = make_transport(plugin, nullptr, {.timeout = group.timeout});
    require(all->size() == group.world, "mpirun has started as many ranks");
    if (all->rank() == 0) {
      for (auto& number : board().numbers) number = 0;
    }
    all->barrier("the board is clear");
    if (group.provider == Provider::hierarchical_mpi) {
      const auto comm = on_hosts_of_two(*all, split(*all, all->rank() % 2, all->rank()));
      body(*comm);
    } else {
      body(*all);
    }
    all->barrier("the board is full");
  })};
}

}  // namespace

std::vector<Outcome> run(const Ranks& given, const Body& body) {
  if (given.provider >= Provider::mpi) return run_mpi(given, body);
  Ranks group = given;
  static int groups = 0;
  if (group.job.empty()) group.job = outrigger::format_text("test {} {}", getpid(), groups++);
  board().moment = 0;
  for (auto& number : board().numbers) number = 0;

  if (group.provider == Provider::shm) {
    return run_processes(group.world, [&](int32_t rank) {
      const auto comm = attach(group, rank);
      body(*comm);
    });
  }
  std::vector<std::unique_ptr<Communicator>> comms;
  if (group.provider == Provider::self) {
    comms.push_back(make_self());
  } else {
    // A transport's own deadline comes first.
    const double later = group.provider == Provider::transport ? 60 : 0;
    comms = make_threads(group.world, {.timeout = group.timeout + later});
  }
  std::vector<Outcome> outcomes(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); r++) {
    threads.emplace_back([&, r] {
      outcomes[r] = outcome_of([&] {
        auto comm = std::move(comms[r]);  // ends with its rank, as a process's would
        if (group.provider == Provider::custom || group.provider == Provider::gather_only) {
          comm = over(std::move(comm), group.provider);
        } else if (group.provider == Provider::transport) {
          const auto base = std::move(comm);
          comm = make_transport(fake_transport(), base.get(), {.timeout = given.timeout});
          body(*comm);
          comm.reset();
          return;
        } else if (group.provider >= Provider::hierarchical) {
          auto across = split(*comm, comm->rank() % 2, comm->rank());
          if (group.provider == Provider::hierarchical) {
            across = over(std::move(across), Provider::custom);
          }
          comm = on_hosts_of_two(*comm, std::move(across));
        }
        body(*comm);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

void run_all_well(const Ranks& group, const Body& body) {
  const auto outcomes = run(group, body);
  for (size_t r = 0; r < outcomes.size(); r++) {
    EXPECT_EQ(outcomes[r].status, OTR_OK) << "rank " << r << ": " << outcomes[r].text;
  }
}

void expect_says(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
}

}  // namespace outrigger::comm::test

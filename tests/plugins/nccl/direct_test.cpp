// SPDX-License-Identifier: Apache-2.0
// The communicator between devices: what each rank's memory holds, what of a sum is told, and how
// its waits end, over host communicators that know their ranks' processes and one that does not.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/comm/direct.h"
#include "core/device/plugin.h"
#include "mock_nccl.h"
#include "tests/comm/conformance.h"

namespace outrigger::comm::test {
namespace {

double mock_value(const char* name) {
  static void* const kObject =
      dlopen(std::getenv("OTR_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return reinterpret_cast<decltype(&otr_mock_nccl_get)>(dlsym(kObject, "otr_mock_nccl_get"))(name);
}

constexpr size_t kBytes = 100096;  // several of the mock's rings

// A rank's device, and its communicator.
struct Own {
  Own(Communicator& c, Sums sums)
      : device(device::load_plugin("cuda"), c.rank()),
        ranks(std::make_shared<DirectRanks>(c, device::load_collective_plugin("nccl"), device)),
        direct(make_direct(c.duplicate("between devices"), ranks, sums,
                           kBytes * static_cast<size_t>(c.size()))) {}
  device::PluginDevice device;
  std::shared_ptr<DirectRanks> ranks;
  std::unique_ptr<Communicator> direct;

  void put(std::byte* to, const std::vector<std::byte>& bytes) {
    device.upload_now(to, bytes.data(), bytes.size());
  }
  std::vector<std::byte> get(const void* from, size_t bytes) {
    std::vector<std::byte> got(bytes);
    device.download_now(got.data(), from, bytes);
    return got;
  }
};

class DirectConformance : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Providers, DirectConformance,
                         testing::Values(Ranks{Provider::threads, 2}, Ranks{Provider::threads, 3},
                                         Ranks{Provider::threads, 4}, Ranks{Provider::custom, 3},
                                         Ranks{Provider::gather_only, 2}),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(DirectConformance, RanksGetEachOthersSlices) {
  run_all_well(GetParam(), [](Communicator& c) {
    Own own(c, Sums::ranked);
    const auto world = static_cast<size_t>(c.size()), me = static_cast<size_t>(c.rank());
    for (const size_t offset : {size_t{0}, size_t{512}}) {
      for (const size_t slice : {size_t{0}, size_t{1}, size_t{256}, kBytes}) {
        const auto window =
            own.direct->create_window(WindowKind::per_rank, offset + slice * world, "window");
        for (int32_t r = 0; r < c.size(); ++r) {
          require((window->block(r) == nullptr) == (r != c.rank() || window->bytes() == 0),
                  "a device's memory is its rank's");
        }
        if (slice > 0)
          own.put(window->block(c.rank()) + offset, filled(c.rank(), slice * world, 1));
        const auto slices = own.direct->exchange(*window, offset, slice, "slices");
        require(slices.size() == world, "one each");
        for (size_t r = 0; r < world && slice > 0; ++r) {
          const auto all = filled(static_cast<int32_t>(r), slice * world, 1);
          const std::vector<std::byte> expected(
              all.begin() + static_cast<int64_t>(me * slice),
              all.begin() + static_cast<int64_t>((me + 1) * slice));
          require(own.get(slices[r], slice) == expected, "slice");
        }
        require(own.direct->is_drained(own.direct->end_exchange()), "it was sent");
      }
    }
  });
}

TEST_P(DirectConformance, RunsAreGatheredAndMemoryComesAndGoes) {
  run_all_well(GetParam(), [](Communicator& c) {
    Own own(c, Sums::ranked);
    const auto world = static_cast<size_t>(c.size()), me = static_cast<size_t>(c.rank());
    const std::vector<Communicator::SliceRun> runs{{0, 256}, {256 * world, kBytes}, {0, 0}};
    const size_t bytes = (256 + kBytes) * world;
    const auto window = own.direct->create_window(WindowKind::per_rank, bytes, "window");
    for (uint64_t salt = 1; salt <= 3; ++salt) {
      for (const auto& run : runs) {
        own.put(window->block(c.rank()) + run.offset + me * run.slice_bytes,
                filled(c.rank(), run.slice_bytes, salt));
      }
      own.direct->all_gather_runs(*window, runs, "runs");
      for (const auto& run : runs) {
        for (size_t r = 0; r < world; ++r) {
          const std::byte* at = window->block(c.rank()) + run.offset + r * run.slice_bytes;
          require(own.get(at, run.slice_bytes) ==
                      filled(static_cast<int32_t>(r), run.slice_bytes, salt),
                  "gathered");
        }
      }
      const auto registered = [&] {  // by all ranks, which are threads
        c.barrier("counts");
        const double count = mock_value("registrations");
        c.barrier("counted");
        return count;
      };
      const double before = registered();
      window->drop();
      require(window->block(c.rank()) == nullptr, "it is gone");
      require(registered() == before - c.size(), "NCCL knows nothing of it any more");
      window->restore();
      require(registered() == before, "NCCL knows of it again");
    }
  });
}

// Magnitudes over many binades, so that the order of addition shows.
float value_for(int32_t rank, int64_t i) {
  return std::ldexp(1.F / (static_cast<float>((i * 37 + rank * 11) % 97) - 48.5F),
                    static_cast<int>((i + rank * 5) % 23) - 11);
}

// The sums, their norm, and the first element that is not finite: whose it was is told only where
// the ranks' slices were folded.
TEST_P(DirectConformance, SumsAreOfAllRanksAndNameWhoseElementIsNotFinite) {
  for (const Sums sums : {Sums::ranked, Sums::library}) {
    run_all_well(GetParam(), [sums](Communicator& c) {
      Own own(c, sums);
      constexpr int64_t kCount = 1024;
      const size_t slice = kCount * sizeof(float);
      const auto window = own.direct->create_window(
          WindowKind::per_rank, slice * static_cast<size_t>(c.size()), "gradients");
      const auto sum_window = own.direct->create_window(WindowKind::per_rank, slice, "sums");
      std::vector<float> values;
      for (int64_t i = 0; i < kCount * c.size(); ++i) values.push_back(value_for(c.rank(), i));
      if (c.rank() == 1) values[300] = std::numeric_limits<float>::infinity();  // of slice 0
      own.device.upload_now(window->block(c.rank()), values.data(), values.size() * sizeof(float));
      std::byte* const sum = sum_window->block(c.rank());
      kernels::NormSum norm;
      device::Nonfinite origin;
      const int64_t flat = 5000 + c.rank() * kCount;
      own.direct->reduce(
          {*window,
           0,
           slice,
           own.device,
           {{}, device::Format::float32, sum, device::Format::float32, false, kCount, flat},
           &norm,
           &origin},
          "sums");
      std::vector<float> got(kCount);
      own.device.download_now(got.data(), sum, slice);
      double squares = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        const int64_t at = c.rank() * kCount + i;
        // The mock's order is another one: behind this rank, and around.
        const int32_t first = sums == Sums::ranked ? 0 : (c.rank() + 1) % c.size();
        float expected = value_for(first, at);
        for (int32_t k = 1; k < c.size(); ++k) expected += value_for((first + k) % c.size(), at);
        const bool is_infinite = c.rank() == 0 && i == 300;
        require(is_infinite ? std::isinf(got[static_cast<size_t>(i)])
                            : got[static_cast<size_t>(i)] == expected,
                "sum");
        if (c.rank() != 0 || i / 256 != 300 / 256) squares += double{expected} * expected;
      }
      require(std::abs(kernels::value_of(norm) - squares) <= 1e-9 * squares, "norm");
      require(origin.flat == (c.rank() == 0 ? 5300 : -1), "place");
      require(origin.rank == (c.rank() == 0 && sums == Sums::ranked ? 1 : -1), "rank");
    });
  }
}

TEST_P(DirectConformance, WhatItIsNotIsSaid) {
  run_all_well(GetParam(), [](Communicator& c) {
    Own own(c, Sums::ranked);
    require(!own.direct->shares_memory(), "no memory is shared");
    const auto refuses = [](const auto& body, const char* part) {
      try {
        body();
      } catch (const Error& error) {
        require(error.status() == OTR_E_UNSUPPORTED &&
                    std::string_view(error.what()).find(part) != std::string_view::npos,
                error.what());
        return;
      }
      require(false, part);
    };
    refuses([&] { static_cast<void>(own.direct->duplicate("again")); }, "duplicated");
    refuses([&] { static_cast<void>(own.direct->subgroup({0})); }, "split");
    refuses([&] { static_cast<void>(own.direct->create_window(WindowKind::common, 64, "common")); },
            "no common window");
    own.direct->barrier("it goes on");
  });
}

// Devices are at work, and a host has had enough: it hears of it, and so do the others where the
// group knows more of them than the caller's functions tell.
TEST_P(DirectConformance, AWatchEndsWithTheGroup) {
  const bool all_hear = GetParam().provider == Provider::threads;
  const auto outcomes = run(GetParam(), [&](Communicator& c) {
    c.barrier("begun");
    if (c.rank() == 0) c.abort("enough");
    if (c.rank() == 0 || all_hear) c.watch([] { return false; }, "work of devices");
  });
  for (size_t rank = 0; rank < (all_hear ? outcomes.size() : 1); ++rank) {
    EXPECT_EQ(outcomes[rank].status, OTR_E_ABORTED) << outcomes[rank].text;
    expect_says(outcomes[rank].text, {"rank 0", "enough"});
  }
}

// A rank's device is over first, and the rank leaves: the others' devices will be over, too. It is
// missed in what it did not come to the end of.
TEST(Watch, ARankMayGoOnceItsOwnIsOver) {
  std::atomic<bool> is_gone{false};
  run_all_well({Provider::threads, 2}, [&](Communicator& c) {
    auto own = c.duplicate("own");
    own->barrier("begun");
    if (c.rank() == 1) {
      own->watch([] { return true; }, "work");
      own.reset();
      is_gone = true;
      return;
    }
    const auto looked_again = std::chrono::milliseconds(100);  // at the other ranks, while it waits
    std::chrono::steady_clock::time_point end{};
    own->watch(
        [&] {
          if (!is_gone) return false;
          const auto now = std::chrono::steady_clock::now();
          if (end == decltype(end){}) end = now + looked_again;
          return now >= end;
        },
        "work");
    try {
      own->watch([] { return false; }, "more work");
      require(false, "rank 1 is missed");
    } catch (const Error& error) {
      require(error.status() == OTR_E_PEER_DEAD, error.what());
      expect_says(error.what(), {"rank 1", "left", "'more work'"});
    }
  });
}

TEST(Watch, ReturnsOnceReadyAndThrowsWhatItIsTold) {
  run_all_well({Provider::self, 1}, [](Communicator& c) {
    int asked = 0;
    c.watch([&] { return ++asked == 40; }, "work");
    require(asked == 40, "not asked after that");
    try {
      c.watch([]() -> bool { throw Error(OTR_E_DEVICE_FAULT, "broken"); }, "work");
      require(false, "it threw");
    } catch (const Error& error) {
      require(error.status() == OTR_E_DEVICE_FAULT, error.what());
    }
    c.barrier("it goes on");
  });
}

}  // namespace
}  // namespace outrigger::comm::test

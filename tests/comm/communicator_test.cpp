// SPDX-License-Identifier: Apache-2.0
// Every provider as a communicator: windows, sums of what lies in them, duplicates.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/host.h"
#include "tests/comm/conformance.h"

namespace outrigger::comm::test {
namespace {

class Conformance : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Providers, Conformance, testing::ValuesIn(providers()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Conformance, WindowsAreZeroAlignedAndVisible) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{4096}, size_t{100000}, (size_t{5} << 20) + 1}) {
      for (const auto kind : {WindowKind::per_rank, WindowKind::common}) {
        if (kind == WindowKind::common && !c.shares_memory()) continue;
        const auto window = c.create_window(kind, n, "window");
        require(window->bytes() == n, "bytes");
        for (int32_t r = 0; r < c.size(); r++) {
          const std::byte* block = window->block(r);
          if (!c.shares_memory() && r != c.rank()) {
            require(block == nullptr, "another rank's block is not to be seen");
            continue;
          }
          require(reinterpret_cast<uintptr_t>(block) % 4096 == 0, "alignment");
          require(kind != WindowKind::common || block == window->block(0), "common is one block");
          require(n == 0 || (block[0] == std::byte{0} && std::memcmp(block, block + 1, n - 1) == 0),
                  "zero-filled");
        }
        c.barrier("seen empty");
        // per_rank: all of one's own; common: every size()-th byte; of large blocks a sample.
        const size_t stride = n > 200000 ? 97 : 1;
        const auto me = static_cast<size_t>(c.rank()), world = static_cast<size_t>(c.size());
        std::byte* mine = window->block(c.rank());
        for (size_t i = 0; i < n; i += stride) {
          if (kind == WindowKind::per_rank || i % world == me) mine[i] = pattern(c.rank(), i, n);
        }
        c.barrier("written");
        for (int32_t r = 0; r < c.size(); r++) {
          size_t wrong = 0;
          if (window->block(r) == nullptr) continue;
          for (size_t i = 0; i < n; i += stride) {
            const auto writer = kind == WindowKind::per_rank ? r : static_cast<int32_t>(i % world);
            wrong += window->block(r)[i] != pattern(writer, i, n);
          }
          require(wrong == 0,
                  outrigger::format_text("{} of {} bytes in block {} are wrong", wrong, n, r));
        }
        c.barrier("read");
      }
    }
  });
}

TEST_P(Conformance, WindowOutlivesItsCommunicator) {
  run_all_well(GetParam(), [](Communicator& c) {
    auto copy = c.duplicate("short life");
    const auto window = copy->create_window(WindowKind::per_rank, 1000, "window");
    c.barrier("made");
    copy.reset();
    std::memset(window->block(c.rank()), c.rank() + 1, 1000);
    c.barrier("written");
    for (int32_t r = 0; r < c.size(); r++) {
      if (window->block(r) == nullptr) continue;
      require(window->block(r)[999] == static_cast<std::byte>(r + 1), "still shared");
    }
    c.barrier("read");
  });
}

// Fills, reads, and fills again as soon as the ticket is drained: nobody may read the next round.
TEST_P(Conformance, ExchangedSlicesAreDrainedBeforeReuse) {
  run_all_well(GetParam(), [](Communicator& c) {
    if (c.groups() > 1) return;  // only sums are exchanged
    const auto world = static_cast<size_t>(c.size());
    constexpr size_t kSlice = 1000, kOffset = 512;
    const auto window =
        c.create_window(WindowKind::per_rank, kOffset + world * kSlice * sizeof(int32_t), "w");
    auto* mine = reinterpret_cast<int32_t*>(window->block(c.rank()) + kOffset);
    const auto value = [](int32_t round, int32_t rank, size_t i) {
      return round * 1000 + rank * 10 + static_cast<int32_t>(i % 7);
    };
    for (int32_t round = 0; round < 300; round++) {
      for (size_t i = 0; i < world * kSlice; i++) mine[i] = value(round, c.rank(), i);
      const auto slices = c.exchange(*window, kOffset, kSlice * sizeof(int32_t), "gradients");
      require(slices.size() == world, "one slice a rank");
      const size_t first = static_cast<size_t>(c.rank()) * kSlice;
      for (size_t r = 0; r < world; r++) {
        const auto* slice = static_cast<const int32_t*>(slices[r]);
        size_t wrong = 0;
        for (size_t i = 0; i < kSlice; i++)
          wrong += slice[i] != value(round, static_cast<int32_t>(r), first + i);
        require(wrong == 0, outrigger::format_text("round {}: {} values of rank {}'s slice are "
                                                   "wrong",
                                                   round, wrong, r));
      }
      const uint64_t ticket = c.end_exchange();
      if (round % 3 == 0) {
        while (!c.is_drained(ticket)) std::this_thread::yield();
      } else {
        c.wait_drained(ticket, "reuse");
      }
      require(c.is_drained(ticket), "drained");
    }
  });
}

// s = float32(g_0); s += float32(g_1); …, of each host, then over hosts; then the accumulator
// rounds. Values whose sum depends on the order, other ones on each rank.
TEST_P(Conformance, ReducesInRankOrder) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto world = static_cast<size_t>(c.size());
    constexpr size_t kSlice = 256, kSlices = 3;  // three reductions in one window
    const auto value = [](int32_t rank, size_t i) {
      const double size = std::ldexp(1.0 + static_cast<double>((i * 37 + 11) % 101) / 101,
                                     static_cast<int>((i + static_cast<size_t>(rank) * 5) % 30));
      return static_cast<float>((rank + i) % 2 == 0 ? size : -size);
    };
    const size_t bytes = world * kSlice * sizeof(float);
    const auto window = c.create_window(WindowKind::per_rank, kSlices * bytes, "w");
    auto* mine = reinterpret_cast<float*>(window->block(c.rank()));
    for (size_t i = 0; i < kSlices * world * kSlice; i++) mine[i] = value(c.rank(), i);
    // One element of the last slice of all is not finite on the last rank.
    const size_t bad = kSlices * world * kSlice - 3;
    if (c.rank() == c.size() - 1) mine[bad] = HUGE_VALF;
    device::Host host(nullptr);
    kernels::NormSum norm;
    device::Nonfinite origin;
    for (size_t n = 0; n < kSlices; n++) {
      const size_t first = (n * world + static_cast<size_t>(c.rank())) * kSlice;
      std::vector<float> sums(kSlice, 0.5F);
      constexpr auto kFloat32 = kernels::Format::float32;
      c.reduce({*window,
                n * bytes,
                kSlice * sizeof(float),
                host,
                {{}, kFloat32, sums.data(), kFloat32, n > 0, kSlice, static_cast<int64_t>(first)},
                &norm,
                &origin},
               "gradients");
      for (size_t i = 0; i < kSlice; i++) {
        if (first + i == bad) continue;
        const int32_t each = c.size() / c.groups();
        float sum = 0;
        for (int32_t h = 0; h < c.groups(); h++) {
          float on_host = value(h * each, first + i);
          for (int32_t r = 1; r < each; r++) on_host += value(h * each + r, first + i);
          sum = h == 0 ? on_host : sum + on_host;
        }
        if (n > 0) sum += 0.5F;
        require(sums[i] == sum, outrigger::format_text("sum {} of reduction {}", i, n));
      }
    }
    const bool last = c.rank() == c.size() - 1;
    require(norm.nonfinite == (last ? 1 : 0), "elements that are not finite");
    require(origin.flat == (last ? static_cast<int64_t>(bad) : -1), "the first of them");
    require(origin.rank == (last ? c.size() - 1 : -1), "whose it is");
    require(kernels::value_of(norm) > 0, "squares");
  });
}

TEST_P(Conformance, GathersWindowSlices) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto world = static_cast<size_t>(c.size());
    for (const size_t slice : {size_t{0}, size_t{1}, size_t{777}, size_t{300000}}) {
      const size_t offset = slice == 777 ? 64 : 0;
      const auto window =
          c.create_window(WindowKind::per_rank, offset + world * slice, "parameters");
      std::byte* mine = window->block(c.rank());
      for (uint64_t round = 0; round < 5; round++) {
        const auto own = filled(c.rank(), slice, round);
        std::copy(own.begin(), own.end(), mine + offset + static_cast<size_t>(c.rank()) * slice);
        c.all_gather_window(*window, offset, slice, "publish");
        for (int32_t r = 0; r < c.size(); r++) {
          const auto expected = filled(r, slice, round);
          require(std::equal(expected.begin(), expected.end(),
                             mine + offset + static_cast<size_t>(r) * slice),
                  outrigger::format_text("slice {} of {} bytes in round {}", r, slice, round));
        }
      }
    }
  });
}

// Two threads a rank, each with an order of its own, windows and nested duplicates included.
TEST_P(Conformance, DuplicatesWorkSideBySide) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto other = c.duplicate("background");
    const auto shared =
        c.create_window(WindowKind::per_rank, 4096, "made on one, used on the other");
    const auto work = [&](Communicator& comm, int32_t base) {
      for (int32_t i = 0; i < 100; i++) {
        const int32_t mine = base + i * 10 + comm.rank();
        std::vector<int32_t> all(static_cast<size_t>(comm.size()));
        comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                        "all");
        for (int32_t r = 0; r < comm.size(); r++) {
          require(all[static_cast<size_t>(r)] == base + i * 10 + r, "gathered");
        }
        if (i % 20 == 0) {
          const bool common = comm.shares_memory();
          const auto window = comm.create_window(common ? WindowKind::common : WindowKind::per_rank,
                                                 10000, "window");
          const auto nested = comm.duplicate("nested");
          std::byte* block = window->block(common ? 0 : comm.rank());
          if (!common || comm.rank() == 0) block[9999] = static_cast<std::byte>(base + 1);
          nested->barrier("written");
          require(block[9999] == static_cast<std::byte>(base + 1), "window of its own");
          comm.barrier("nested is done");
        }
      }
    };
    std::string trouble;
    std::thread background([&] {
      try {
        work(*other, 100000);
        if (other->groups() > 1) return;
        static_cast<void>(other->exchange(*shared, 0, 4, "shared"));
        const auto ticket = other->end_exchange();
        other->wait_drained(ticket, "shared");
      } catch (const std::exception& error) {
        trouble = error.what();
      }
    });
    work(c, 0);
    background.join();
    require(trouble.empty(), trouble);
    c.barrier("done");
  });
}

TEST_P(Conformance, RefusesBadArgumentsAndGoesOn) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto refused = [](const char* what, auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        require(error.status() == OTR_E_ARGUMENT, std::string(what) + ": " + error.what());
        return;
      }
      require(false, std::string(what) + " was accepted");
    };
    std::vector<std::byte> data(8);
    const auto window = c.create_window(WindowKind::per_rank, 64, "w");
    std::shared_ptr<Window> common;
    if (c.shares_memory()) common = c.create_window(WindowKind::common, 64, "w");
    refused("root below", [&] { c.broadcast(data, -1, "x"); });
    refused("root above", [&] { c.broadcast(data, c.size(), "x"); });
    refused("gather size", [&] { c.all_gather(data, std::span(data).first(7), "x"); });
    if (c.groups() > 1) {
      refused("a window of another job", [&] {
        const auto foreign = make_self()->create_window(WindowKind::per_rank, 64, "w");
        c.all_gather_window(*foreign, 0, 1, "x");
      });
      c.barrier("still in step");
      return;
    }
    refused("slices too large", [&] { static_cast<void>(c.exchange(*window, 0, 65, "x")); });
    refused("offset too large", [&] { static_cast<void>(c.exchange(*window, 65, 0, "x")); });
    refused("overflow", [&] { static_cast<void>(c.exchange(*window, 1, SIZE_MAX, "x")); });
    if (common) refused("common window", [&] { c.all_gather_window(*common, 0, 1, "x"); });
    refused("window of another job", [&] {
      const auto self = make_self();
      const auto foreign = self->create_window(WindowKind::per_rank, 64, "w");
      static_cast<void>(c.exchange(*foreign, 0, 1, "x"));
    });
    if (common) refused("ticket from nowhere", [&] { c.wait_drained(1u << 20, "x"); });
    c.barrier("still in step");
  });
}

TEST(MakeCommunicators, RefuseBadArguments) {
  const auto status_of = [](auto&& make) {
    try {
      static_cast<void>(make());
    } catch (const Error& error) {
      return error.status();
    }
    return int32_t{OTR_OK};
  };
  EXPECT_EQ(status_of([] { return make_threads(0, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(-1, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(1 << 20, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.timeout = 0}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.timeout = std::nan("")}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.spin = -2}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(2, 2, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(-1, 2, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(0, 0, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(0, 1, "", {}); }), OTR_E_ARGUMENT);
}

}  // namespace
}  // namespace outrigger::comm::test

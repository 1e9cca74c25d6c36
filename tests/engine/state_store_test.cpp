// SPDX-License-Identifier: Apache-2.0
// A store that keeps states elsewhere and has room for a few leaves at a time gives the bits of the
// plain simulation, and engines keep the promises of a lease.
#include "core/engine/state_store.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "c_api/src/guard.h"
#include "c_api/src/handles.h"
#include "kernels/update_part.h"
#include "tests/engine/model.h"

namespace outrigger::test {
namespace {

using engine::State;
using engine::StateSet;

constexpr int64_t kRoom = 3 * kernels::kLeaf;
constexpr std::array kAll{State::master, State::exp_avg, State::exp_avg_sq};

std::atomic<int64_t> leases_in_parts{0};

// States of a root's piece lie in a file of their own, as it were; a lease is a copy of a part.
class Paged final : public engine::StateStore {
 public:
  explicit Paged(const engine::StoreContext& context)
      : StateStore(context.model, context.optimizer), context_(context) {}
  ~Paged() override {
    EXPECT_TRUE(leased_.empty()) << leased_.size() << " leases were not given back";
  }

  int64_t room() const override { return kRoom; }
  bool is_in_memory() const override { return false; }

  void fetch(const layout::Piece& piece, StateSet read) override {
    EXPECT_TRUE(fetched_.emplace(key_of(piece), pages_of(piece, read)).second) << "fetched twice";
    expect_room(fetched_elements_ += piece.count);
  }

  Leased lease(const layout::Piece& piece, StateSet read) override {
    Pages pages;
    if (auto node = fetched_.extract(key_of(piece))) {
      pages = std::move(node.mapped());
      fetched_elements_ -= piece.count;
      expect_room(leased_elements_ += piece.count);
      if (piece.first > 0) ++leases_in_parts;
    } else {  // one state by itself, or Muon's matrices, which go one by one
      const bool visit = read.has == engine::kAllStates.has;
      EXPECT_TRUE(!visit || context_.model.at(piece.parameter).matrix) << "leased, not fetched";
      pages = pages_of(piece, read);
    }
    auto [entry, added] = leased_.emplace(key_of(piece), std::move(pages));
    EXPECT_TRUE(added) << "leased twice";
    const auto page = [&](State s) -> Page& { return entry->second[static_cast<size_t>(s)]; };
    const auto data = [&](State s) {
      return page(s).plain.empty() ? nullptr : page(s).plain.data();
    };
    Leased states{data(State::master), data(State::exp_avg), data(State::exp_avg_sq),
                  page(State::exp_avg).scales.data(), page(State::exp_avg_sq).scales.data()};
    if (!context_.plan.side_of(piece.parameter).separate_master)
      states.master = context_.published.at(piece);
    return states;
  }

  void give_back(const layout::Piece& piece, StateSet written) override {
    auto node = leased_.extract(key_of(piece));
    ASSERT_FALSE(node.empty()) << "given back and not leased";
    leased_elements_ = std::max<int64_t>(0, leased_elements_ - piece.count);
    for (const State s : kAll) {
      auto& page = node.mapped()[static_cast<size_t>(s)];
      if (!written[s]) continue;
      const Place to = place(piece, s);
      std::ranges::copy(page.plain, to.plain);
      std::ranges::copy(page.scales, to.scales);
    }
  }

  void settle() override { EXPECT_EQ(fetched_.size(), 0U) << "fetched and not leased"; }

 private:
  struct Page {
    std::vector<std::byte> plain;
    std::vector<float> scales;
    void resize(int64_t count, kernels::Format f, std::byte filling, float scale) {
      plain.resize(static_cast<size_t>(kernels::plain_bytes_of(count, f)), filling);
      scales.resize(static_cast<size_t>(kernels::scale_bytes_of(count, f)) / sizeof(float), scale);
    }
  };
  struct Place {
    std::byte* plain;
    float* scales;
  };
  using Pages = std::array<Page, engine::kStates>;
  using Key = std::pair<int64_t, int64_t>;
  static Key key_of(const layout::Piece& piece) { return {piece.parameter, piece.first}; }
  static void expect_room(int64_t elements) { EXPECT_LE(elements, kRoom); }

  // Not read: any content.
  Pages pages_of(const layout::Piece& piece, StateSet read) {
    Pages pages;
    for (const State s : kAll) {
      const bool kept =
          keeps(s, piece.parameter) &&
          (s != State::master || context_.plan.side_of(piece.parameter).separate_master);
      if (!kept) continue;
      Page& page = pages[static_cast<size_t>(s)];
      page.resize(piece.count, format(s), std::byte{0xa5}, 123);
      if (!read[s]) continue;
      const Place from = place(piece, s);
      std::copy_n(from.plain, page.plain.size(), page.plain.begin());
      std::copy_n(from.scales, page.scales.size(), page.scales.begin());
    }
    return pages;
  }

  // Where a part lies in the file of its whole parameter.
  Place place(const layout::Piece& piece, State s) {
    Page& file = files_[{piece.parameter, static_cast<int64_t>(s)}];
    file.resize(context_.model.at(piece.parameter).count, format(s), std::byte{0}, 0);
    return {kernels::advance(file.plain.data(), piece.first, format(s)),
            kernels::advance_scales(file.scales.data(), piece.first)};
  }

  const engine::StoreContext context_;
  std::map<Key, Page> files_;
  std::map<Key, Pages> fetched_, leased_;
  int64_t fetched_elements_ = 0, leased_elements_ = 0;
};

std::unique_ptr<engine::StateStore> make_paged(const engine::StoreContext& context) {
  return std::make_unique<Paged>(context);
}

int32_t create_paged(otr_comm* comm, const char* config, otr_engine** out) {
  return c_api::guard([&] {
    const auto& kept = c_api::get(comm, "comm");
    *out = new otr_engine(
        std::make_shared<engine::Engine>(kept->context, kept->communicator, config, make_paged));
  });
}

void expect_equal(const Case& c) {
  const Bytes expected = simulate(c).bytes();
  const auto results =
      run_ranks(c.provider, c.world, [&](int32_t rank, otr_context* context, otr_comm* comm) {
        return train(c, rank, context, comm, create_paged).bytes();
      });
  for (const RankResult& result : results) {
    ASSERT_EQ(result.error, "") << text_of(c);
    EXPECT_EQ(first_difference(result.bytes, expected), "") << text_of(c);
  }
}

TEST(StateStore, LeasedInPartsStatesHaveTheBitsOfResidentOnes) {
  int32_t stage = 0;
  for (const std::string& rule : rules()) {
    for (const std::string& precision : precisions()) {
      for (const int32_t world : {1, 2}) {
        Case c{world == 1 ? Provider::self : Provider::threads, world, stage++ % 4, precision};
        c.rule = rule;
        c.order = stage % 2 == 0 ? "boundary" : "micro_step";
        c.clip = 0.5;
        c.bucket = 1500;
        if (legal(c)) expect_equal(c);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(leases_in_parts, 0);
}

}  // namespace
}  // namespace outrigger::test

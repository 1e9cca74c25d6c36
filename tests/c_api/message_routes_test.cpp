// SPDX-License-Identifier: Apache-2.0
// Who sends which rows between two groups.
#include <array>
#include <limits>
#include <numeric>

#include "support.h"

namespace {

using namespace otr_test;

using Routes = std::vector<std::array<int64_t, 5>>;

Routes routes_of(const Shape& from, const Shape& to) {
  int64_t count = 0;
  const auto ask = [&](otr_message_route* routes) {
    return otr_message_routes(from.data(), static_cast<int32_t>(from.size()), to.data(),
                              static_cast<int32_t>(to.size()), routes, &count);
  };
  EXPECT_OK(ask(nullptr));
  std::vector<otr_message_route> routes(static_cast<size_t>(count));
  if (count == 0) return {};
  EXPECT_OK(ask(routes.data()));
  Routes all;
  for (const auto& r : routes)
    all.push_back({r.source, r.target, r.source_row, r.target_row, r.rows});
  return all;
}

TEST(MessageRoutes, GroupsOfDifferentWidthsMeet) {
  EXPECT_EQ(routes_of({4, 4}, {8}), (Routes{{0, 0, 0, 0, 4}, {1, 0, 0, 4, 4}}));
  EXPECT_EQ(routes_of({8}, {4, 4}), (Routes{{0, 0, 0, 0, 4}, {0, 1, 4, 0, 4}}));
  EXPECT_EQ(routes_of({6, 6}, {4, 4, 4}),
            (Routes{{0, 0, 0, 0, 4}, {0, 1, 4, 0, 2}, {1, 1, 0, 2, 2}, {1, 2, 2, 0, 4}}));
  EXPECT_EQ(routes_of({0, 5, 0}, {2, 0, 3, 0}), (Routes{{1, 0, 0, 0, 2}, {1, 2, 2, 0, 3}}));
  EXPECT_EQ(routes_of({0, 0}, {0}), Routes{});
  EXPECT_EQ(routes_of({}, {}), Routes{});
}

// Each row of each rank goes and comes once.
TEST(MessageRoutes, EveryRowHasOneWay) {
  const Shape from{3, 0, 11, 1, 1, 7}, to{5, 5, 0, 13};
  std::vector<int> sent(23), got(23);
  const auto first = [](const Shape& rows, int64_t rank) {
    return std::accumulate(rows.begin(), rows.begin() + rank, int64_t{0});
  };
  for (const auto& [a, b, source_row, target_row, rows] : routes_of(from, to)) {
    EXPECT_EQ(first(from, a) + source_row, first(to, b) + target_row);
    EXPECT_LE(source_row + rows, from[static_cast<size_t>(a)]);
    EXPECT_LE(target_row + rows, to[static_cast<size_t>(b)]);
    for (int64_t row = 0; row < rows; ++row) {
      ++sent[static_cast<size_t>(first(from, a) + source_row + row)];
      ++got[static_cast<size_t>(first(to, b) + target_row + row)];
    }
  }
  EXPECT_EQ(sent, std::vector<int>(23, 1));
  EXPECT_EQ(got, std::vector<int>(23, 1));
}

TEST(MessageRoutes, WrongUseIsRefused) {
  const int64_t good[2] = {3, 4}, less[2] = {3, 3}, negative[2] = {8, -1};
  const int64_t huge[2] = {std::numeric_limits<int64_t>::max(), 1};
  otr_message_route routes[3];
  int64_t count = 3;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_routes(good, 2, less, 2, routes, &count), "7", "6");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_routes(good, 2, negative, 2, routes, &count),
               "target_rows[1] = -1");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_routes(huge, 2, good, 2, routes, &count),
               "source_rows[1]");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_routes(nullptr, 2, good, 2, routes, &count),
               "source_rows");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_routes(good, -1, good, 2, routes, &count), "-1");
  count = 1;
  EXPECT_FAILS(OTR_E_BUFFER_SIZE, otr_message_routes(good, 2, good, 2, routes, &count), "2 routes");
  EXPECT_EQ(count, 2);
}

}  // namespace

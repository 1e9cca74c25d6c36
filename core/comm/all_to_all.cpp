// SPDX-License-Identifier: Apache-2.0
#include "core/comm/all_to_all.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

constexpr const char* kLabel = "otr_comm_all_to_all";
constexpr size_t kWindow = size_t{8} << 20;  // of a rank, for both halves
constexpr size_t kLeast = 4096, kMost = size_t{1} << 20;

// In front of a part's first piece.
struct Head {
  uint64_t bytes;  // of the whole part
};
constexpr size_t kHead = 64;  // so that pieces stay on lines of their own

std::vector<size_t> places_of(std::span<const size_t> sizes) {
  std::vector<size_t> places;
  size_t place = 0;
  for (const size_t size : sizes) {
    places.push_back(place);
    place += size;
  }
  return places;
}

}  // namespace

AllToAll::AllToAll(Communicator& communicator)
    : communicator_(communicator),
      piece_bytes_(
          std::clamp(kWindow / 2 / static_cast<size_t>(communicator.size()), kLeast, kMost) / 64 *
              64 -
          kHead) {
  if (communicator.groups() > 1) {
    fail(OTR_E_UNSUPPORTED,
         "all_to_all over a communicator of two levels ({}); call it on the one that this was made "
         "of, or on a group of otr_comm_split",
         communicator.provider());
  }
}

void AllToAll::run(const std::byte* parts, std::span<const size_t> sizes, std::byte* received,
                   std::span<const size_t> from_sizes) {
  if (window_ == nullptr) {
    const size_t half = (piece_bytes_ + kHead) * sizes.size();
    window_ = communicator_.create_window(WindowKind::per_rank, 2 * half, kLabel);
  }
  uint64_t largest = *std::ranges::max_element(sizes);
  combine_value(
      communicator_, largest, [](uint64_t& into, uint64_t from) { into = std::max(into, from); },
      kLabel);
  try {
    move(parts, sizes, received, from_sizes, largest);
  } catch (const Error& error) {
    if (error.status() == OTR_E_INTERRUPTED)
      communicator_.abort(error.what());  // half of it is there
    throw;
  }
}

void AllToAll::move(const std::byte* parts, std::span<const size_t> sizes, std::byte* received,
                    std::span<const size_t> from_sizes, size_t largest) {
  const size_t slice = piece_bytes_ + kHead;
  const std::vector<size_t> from = places_of(sizes), to = places_of(from_sizes);
  FirstVerdict verdict;
  size_t half = 0;
  for (size_t done = 0; done == 0 || done < largest; done += piece_bytes_, half = 1 - half) {
    const size_t offset = half * slice * sizes.size();
    // No more is sent than the longest rest.
    const size_t bytes = kHead + std::min(piece_bytes_, largest - std::min(largest, done));
    const size_t moved = (bytes + 63) / 64 * 64;
    std::byte* const block = window_->block(communicator_.rank()) + offset;
    for (size_t r = 0; r < sizes.size(); ++r) {
      std::byte* const place = block + r * moved;
      const Head head{sizes[r]};
      std::memcpy(place, &head, sizeof head);
      if (sizes[r] > done) {
        std::memcpy(place + kHead, parts + from[r] + done, std::min(piece_bytes_, sizes[r] - done));
      }
    }
    const auto slices = communicator_.exchange(*window_, offset, moved, kLabel);
    for (size_t r = 0; r < slices.size(); ++r) {
      const auto* place = static_cast<const std::byte*>(slices[r]);
      Head head{};
      std::memcpy(&head, place, sizeof head);
      if (head.bytes != from_sizes[r]) {
        if (verdict.rank < 0) {
          verdict.set(communicator_.rank(), OTR_E_MISMATCH,
                      format_text("rank {} sends {} bytes, and {} are expected", r, head.bytes,
                                  from_sizes[r]));
        }
      } else if (head.bytes > done) {
        std::memcpy(received + to[r] + done, place + kHead,
                    std::min(piece_bytes_, from_sizes[r] - done));
      }
    }
    // A half is written again after the exchange of the other one, to which no rank comes before it
    // has read this one; or in another call, after what ends this one.
    communicator_.end_exchange();
  }
  combine_value(communicator_, verdict, merge_first, kLabel);
  verdict.require(format_text("'{}'", kLabel));
}

}  // namespace outrigger::comm

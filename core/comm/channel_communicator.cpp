// SPDX-License-Identifier: Apache-2.0
#include "core/comm/channel_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/comm/channel.h"
#include "core/comm/gather_values.h"
#include "core/comm/parts.h"
#include "core/comm/region.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

constexpr size_t kAtATime = size_t{4} << 20;  // bytes of parts that a rank receives in one call

// The own block of a window; other ranks' are not to be seen from here.
class LocalWindow final : public Window {
 public:
  LocalWindow(int32_t rank, size_t bytes, const void* fate)
      : rank_(rank),
        bytes_(bytes),
        fate_(fate),
        region_(Region::make_private(std::max(round_up(bytes, page_size()), page_size()))) {
    if (bytes > 0) region_->populate(0, bytes);
    region_->add_user();
  }
  void give_back() noexcept override { region_->give_back(); }
  std::byte* block(int32_t rank) const override {
    return rank == rank_ ? region_->data() : nullptr;
  }
  size_t bytes() const override { return bytes_; }
  [[nodiscard]] const void* fate() const { return fate_; }
  [[nodiscard]] const std::shared_ptr<Region>& owner() const { return region_; }

 private:
  int32_t rank_;
  size_t bytes_;
  const void* fate_;  // whose window it is; never followed
  std::shared_ptr<Region> region_;
};

class ChannelCommunicator final : public Communicator {
 public:
  explicit ChannelCommunicator(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  int32_t rank() const override { return channel_->rank(); }
  int32_t size() const override { return channel_->size(); }
  std::string_view provider() const override { return channel_->provider(); }
  uint64_t identity() const override { return channel_->identity(); }
  bool shares_memory() const override { return false; }
  bool is_one_host() const override { return channel_->is_one_host(); }
  uint64_t completed() const override { return channel_->completed(); }
  std::string waiting() const override { return channel_->waiting(); }

  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    channel_->begin(OperationKind::duplicate, 0, name);
    return std::make_unique<ChannelCommunicator>(channel_->duplicate(name));
  }

  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override;

  void barrier(std::string_view label) override {
    channel_->begin(OperationKind::barrier, 0, label);
  }

  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    require_root(label, root, size());
    channel_->begin(OperationKind::broadcast, data.size(), label, root);
    if (data.empty() || size() == 1) return;
    channel_->broadcast(data, root);
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    require_room(label, mine.size(), all.size(), size());
    channel_->begin(OperationKind::all_gather, mine.size(), label);
    if (mine.empty()) return;
    channel_->all_gather(mine.data(), mine.size(), all.data(), nullptr);
  }

  // Gathered, each rank's at once, unless that would pad most of them.
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    const PartsSummary summary = summarize(parts, size(), label);
    channel_->begin(OperationKind::all_gather_parts, summary.bytes, label,
                    static_cast<int32_t>(parts.size()), summary.hash);
    if (size() == 1 || summary.bytes == 0) return;
    const auto ranks = static_cast<size_t>(size());
    if (channel_->has_broadcast() && ranks * summary.longest() >= 2 * summary.bytes) {
      for (int32_t r = 0; r < size(); ++r) {
        broadcast_parts(parts, r, summary.by_rank[static_cast<size_t>(r)]);
      }
      return;
    }
    const size_t longest = summary.longest();
    const size_t most = std::min(longest, std::max(size_t{1}, kAtATime / ranks));
    std::vector<std::byte> mine(most), all(ranks * most);
    std::vector<PartsCursor> cursors;
    for (int32_t r = 0; r < size(); ++r) cursors.emplace_back(parts, r);
    const auto own = static_cast<size_t>(rank());
    for (size_t done = 0; done < longest; done += most) {
      const size_t n = std::min(most, longest - done);
      const auto size_of = [&](size_t r) {
        return summary.by_rank[r] > done ? std::min(n, summary.by_rank[r] - done) : 0;
      };
      cursors[own].copy_to(mine.data(), size_of(own));
      channel_->all_gather(mine.data(), n, all.data(), nullptr);
      for (size_t r = 0; r < ranks; ++r) {
        if (r != own) cursors[r].copy_from(all.data() + r * n, size_of(r));
      }
    }
  }

  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    channel_->begin(OperationKind::combine, value.size(), label);
    if (size() == 1) return;
    const auto ranks = static_cast<size_t>(size());
    const size_t most = channel_->has_pairs()
                            ? kAtATime
                            : std::max(kMergeUnit, kAtATime / 4 / ranks / kMergeUnit * kMergeUnit);
    for (size_t done = 0; done < value.size(); done += most) {
      const auto part = value.subspan(done, std::min(most, value.size() - done));
      channel_->has_pairs() ? merge_by_pairs(done, part, merge) : merge_all(done, part, merge);
    }
  }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED, "create_window '{}': the ranks of a {} communicator share no memory",
           label, provider());
    }
    channel_->begin(OperationKind::create_window, bytes, label);
    std::shared_ptr<Window> window;
    Verdict verdict;
    try {
      window = std::make_shared<LocalWindow>(rank(), bytes, channel_->fate());
    } catch (const Error& error) {
      verdict.set(error.status(), error.what());
    } catch (const std::bad_alloc&) {
      verdict.set(OTR_E_OUT_OF_MEMORY, "memory ran out");
    }
    agree_on(verdict);
    return window;
  }

  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    const LocalWindow& local = checked(window, offset, slice_bytes, label);
    channel_->begin(OperationKind::reduce, slice_bytes, label, 0, offset);
    const auto ranks = static_cast<size_t>(size());
    std::byte* const received = room_for(ranks * slice_bytes);
    if (slice_bytes > 0) {
      using Owners = std::pair<Channel::Owner, Channel::Owner>;
      channel_->all_to_all(local.block(rank()) + offset, slice_bytes, received,
                           std::make_shared<Owners>(local.owner(), received_));
    }
    slices_.clear();
    for (size_t r = 0; r < ranks; ++r) slices_.push_back(received + r * slice_bytes);
    return slices_;
  }
  uint64_t end_exchange() override { return 0; }
  // The bytes were copied out before exchange returned.
  bool is_drained(uint64_t) const override { return true; }
  void wait_drained(uint64_t, std::string_view) override { check(); }

  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    const LocalWindow& local = checked(window, offset, slice_bytes, label);
    channel_->begin(OperationKind::all_gather_window, slice_bytes, label, 0, offset);
    if (slice_bytes == 0) return;
    std::byte* const all = local.block(rank()) + offset;
    const std::byte* mine = all + static_cast<size_t>(rank()) * slice_bytes;
    if (!channel_->gathers_in_place()) {
      mine = static_cast<const std::byte*>(std::memcpy(room_for(slice_bytes), mine, slice_bytes));
    }
    channel_->all_gather(mine, slice_bytes, all, local.owner());
  }

  void abort(std::string_view reason) noexcept override { channel_->abort(reason); }
  void post(const Error& error) noexcept override { channel_->post(error); }
  void cancel() noexcept override { channel_->cancel(); }
  void give_up(int32_t culprit) noexcept override { channel_->give_up(culprit); }
  void check() const override { channel_->check(); }

 private:
  std::byte* room_for(size_t bytes) {
    if (room_ < bytes) {
      received_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
      room_ = bytes;
    }
    return received_.get();
  }

  void broadcast_parts(std::span<const Part> parts, int32_t root, size_t bytes) {
    std::vector<std::byte> data(std::min(kAtATime, bytes));
    PartsCursor cursor(parts, root);
    for (size_t done = 0; done < bytes; done += data.size()) {
      const size_t n = std::min(data.size(), bytes - done);
      if (root == rank()) cursor.copy_to(data.data(), n);
      channel_->broadcast(std::span(data).first(n), root);
      if (root != rank()) cursor.copy_from(data.data(), n);
    }
  }

  void merge_all(size_t at, std::span<std::byte> part, const Merge& merge) {
    const auto ranks = static_cast<size_t>(size());
    std::vector<std::byte> all(ranks * part.size());
    channel_->all_gather(part.data(), part.size(), all.data(), nullptr);
    std::memcpy(part.data(), all.data(), part.size());
    for (size_t r = 1; r < ranks; ++r) {
      merge(at, part, std::span(all).subspan(r * part.size(), part.size()));
    }
  }

  // Neighbours first, then neighbouring pairs, and so on: ranks are merged in order, and no rank
  // receives more than log2(size) values.
  void merge_by_pairs(size_t at, std::span<std::byte> part, const Merge& merge) {
    std::vector<std::byte> other(part.size());
    for (int32_t apart = 1; apart < size(); apart *= 2) {
      if (rank() % (2 * apart) != 0) {
        channel_->send(part, rank() - apart);
        break;
      }
      if (rank() + apart >= size()) continue;
      channel_->receive(other, rank() + apart);
      merge(at, part, other);
    }
    channel_->broadcast(part, 0);
  }

  const LocalWindow& checked(const Window& window, size_t offset, size_t slice_bytes,
                             std::string_view label) const {
    const auto* local = dynamic_cast<const LocalWindow*>(&window);
    if (local == nullptr || local->fate() != channel_->fate()) {
      fail(OTR_E_ARGUMENT, "'{}': the window was not made by this communicator", label);
    }
    const auto ranks = static_cast<size_t>(size());
    if (offset > local->bytes() || slice_bytes > (local->bytes() - offset) / ranks) {
      fail(OTR_E_ARGUMENT, "'{}': {} slices of {} bytes at offset {} exceed the window of {} bytes",
           label, size(), slice_bytes, offset, local->bytes());
    }
    return *local;
  }

  // Throws on every rank what the first rank with a trouble says; the communicator goes on.
  void agree_on(const Verdict& mine) {
    std::vector<Verdict> all(static_cast<size_t>(size()), mine);
    if (size() > 1) channel_->all_gather(&mine, sizeof mine, all.data(), nullptr);
    for (size_t r = 0; r < all.size(); ++r) {
      all[r].require(channel_->text(), static_cast<int32_t>(r));
    }
  }

  const std::unique_ptr<Channel> channel_;
  std::shared_ptr<std::byte[]> received_;
  size_t room_ = 0;  // of received_
  std::vector<const void*> slices_;
};

// Where a rank is to be: in the group that begins with this one of all ranks, as so many-th.
struct Seat {
  int32_t first, index;
  int32_t cannot;  // 1: its table has no split
};

std::unique_ptr<Communicator> ChannelCommunicator::subgroup(const std::vector<int32_t>& members) {
  constexpr std::string_view kLabel = "split a communicator";
  const auto index = static_cast<int32_t>(std::ranges::find(members, rank()) - members.begin());
  const std::vector<Seat> all = gather_values(
      *this, std::vector<Seat>{{members.empty() ? -1 : members[0], index, !channel_->can_split()}},
      kLabel);
  std::vector<int32_t> firsts, groups, places;  // firsts: of each group
  for (const Seat& seat : all) {
    const auto known = std::ranges::find(firsts, seat.first);
    groups.push_back(seat.first < 0 ? -1 : static_cast<int32_t>(known - firsts.begin()));
    if (seat.first >= 0 && known == firsts.end()) firsts.push_back(seat.first);
    places.push_back(seat.first < 0 ? -1 : seat.index);
  }
  const auto cannot = std::ranges::find(all, 1, &Seat::cannot);
  if (cannot != all.end()) {
    fail(OTR_E_UNSUPPORTED,
         "a custom communicator is divided by its table's split, and rank {} has none: give it "
         "one, or make the smaller group with the library behind it, and a communicator of that",
         cannot - all.begin());
  }
  auto made = channel_->split(groups, places, index, static_cast<int32_t>(members.size()), kLabel);
  return made == nullptr ? nullptr : std::make_unique<ChannelCommunicator>(std::move(made));
}

}  // namespace

std::unique_ptr<Communicator> make_over(std::unique_ptr<Channel> channel) {
  return std::make_unique<ChannelCommunicator>(std::move(channel));
}

}  // namespace outrigger::comm

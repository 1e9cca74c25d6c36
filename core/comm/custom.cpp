// SPDX-License-Identifier: Apache-2.0
#include "core/comm/custom.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/comm/gather_values.h"
#include "core/comm/operation.h"
#include "core/comm/parts.h"
#include "core/comm/region.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

constexpr size_t kAtATime = size_t{4} << 20;  // bytes of parts that a rank receives in one call

// What a group's duplicates on this rank share: the first failure.
class Fate {
 public:
  void check() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
  }
  [[noreturn]] void fail_with(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    throw Error(*failure_);
  }
  void post(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
};

// The own block of a window; other ranks' are not to be seen from here.
class LocalWindow final : public Window {
 public:
  LocalWindow(int32_t rank, size_t bytes, const void* fate)
      : rank_(rank),
        bytes_(bytes),
        fate_(fate),
        region_(Region::make_private(std::max(round_up(bytes, page_size()), page_size()))) {
    if (bytes > 0) region_->populate(0, bytes);
  }
  std::byte* block(int32_t rank) const override {
    return rank == rank_ ? region_->data() : nullptr;
  }
  size_t bytes() const override { return bytes_; }
  [[nodiscard]] const void* fate() const { return fate_; }

 private:
  int32_t rank_;
  size_t bytes_;
  const void* fate_;  // whose window it is; never followed
  std::shared_ptr<Region> region_;
};

class CustomCommunicator final : public Communicator {
 public:
  CustomCommunicator(const otr_comm_table& table, std::shared_ptr<Fate> fate, std::string_view name)
      : table_(table), fate_(std::move(fate)), name_(name), process_(current_process()) {}
  ~CustomCommunicator() override {
    if (owns_ && table_.destroy != nullptr && current_process() == process_) {
      table_.destroy(table_.user_data);
    }
  }
  void own() { owns_ = true; }

  int32_t rank() const override { return table_.rank; }
  int32_t size() const override { return table_.world_size; }
  std::string_view provider() const override { return "custom"; }
  bool shares_memory() const override { return false; }

  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    begin(OperationKind::duplicate, 0, name);
    otr_comm_table table = table_;
    table.user_data = nullptr;
    call("duplicate", [&] { return table_.duplicate(table_.user_data, &table.user_data); });
    auto made = std::make_unique<CustomCommunicator>(table, fate_, name);
    made->own();
    return made;
  }

  std::unique_ptr<Communicator> subgroup(const std::vector<int32_t>& members) override;

  void barrier(std::string_view label) override { begin(OperationKind::barrier, 0, label); }

  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    require_root(label, root, size());
    begin(OperationKind::broadcast, data.size(), label, root);
    if (data.empty() || size() == 1) return;
    if (table_.broadcast != nullptr) {
      call("broadcast",
           [&] { return table_.broadcast(table_.user_data, data.data(), data.size(), root); });
      return;
    }
    std::vector<std::byte> all(data.size() * static_cast<size_t>(size()));
    call("all_gather",
         [&] { return table_.all_gather(table_.user_data, data.data(), data.size(), all.data()); });
    std::memcpy(data.data(), all.data() + static_cast<size_t>(root) * data.size(), data.size());
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    require_room(label, mine.size(), all.size(), size());
    begin(OperationKind::all_gather, mine.size(), label);
    if (mine.empty()) return;
    call("all_gather",
         [&] { return table_.all_gather(table_.user_data, mine.data(), mine.size(), all.data()); });
  }

  // Gathered, each rank's at once, unless that would pad most of them.
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    const PartsSummary summary = summarize(parts, size(), label);
    begin(OperationKind::all_gather_parts, summary.bytes, label, static_cast<int32_t>(parts.size()),
          summary.hash);
    if (size() == 1 || summary.bytes == 0) return;
    const auto ranks = static_cast<size_t>(size());
    if (table_.broadcast != nullptr && ranks * summary.longest() >= 2 * summary.bytes) {
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
      call("all_gather",
           [&] { return table_.all_gather(table_.user_data, mine.data(), n, all.data()); });
      for (size_t r = 0; r < ranks; ++r) {
        if (r != own) cursors[r].copy_from(all.data() + r * n, size_of(r));
      }
    }
  }

  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    constexpr size_t kGathered = size_t{1} << 20;  // at a time, of all ranks
    begin(OperationKind::combine, value.size(), label);
    if (size() == 1) return;
    const auto ranks = static_cast<size_t>(size());
    const size_t most = std::max(kMergeUnit, kGathered / ranks / kMergeUnit * kMergeUnit);
    std::vector<std::byte> all(ranks * std::min(most, value.size()));
    for (size_t done = 0; done < value.size(); done += most) {
      const auto part = value.subspan(done, std::min(most, value.size() - done));
      call("all_gather", [&] {
        return table_.all_gather(table_.user_data, part.data(), part.size(), all.data());
      });
      std::memcpy(part.data(), all.data(), part.size());
      for (size_t r = 1; r < ranks; ++r) {
        merge(done, part, std::span(all).subspan(r * part.size(), part.size()));
      }
    }
  }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    if (kind == WindowKind::common) {
      fail(OTR_E_UNSUPPORTED,
           "create_window '{}': the ranks of a custom communicator share no memory", label);
    }
    begin(OperationKind::create_window, bytes, label);
    std::shared_ptr<Window> window;
    Verdict verdict;
    try {
      window = std::make_shared<LocalWindow>(rank(), bytes, fate_.get());
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
    std::byte* from = checked(window, offset, slice_bytes, label) + offset;
    begin(OperationKind::reduce, slice_bytes, label, 0, offset);
    const auto ranks = static_cast<size_t>(size());
    received_.resize(ranks * slice_bytes);
    if (slice_bytes > 0) swap_slices(from, slice_bytes);
    slices_.clear();
    for (size_t r = 0; r < ranks; ++r) slices_.push_back(received_.data() + r * slice_bytes);
    return slices_;
  }
  uint64_t end_exchange() override { return 0; }
  // The bytes were copied out before exchange returned.
  bool is_drained(uint64_t) const override { return true; }
  void wait_drained(uint64_t, std::string_view) override { check(); }

  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    std::byte* all = checked(window, offset, slice_bytes, label) + offset;
    begin(OperationKind::all_gather_window, slice_bytes, label, 0, offset);
    if (slice_bytes == 0) return;
    const std::byte* mine = all + static_cast<size_t>(rank()) * slice_bytes;
    received_.assign(mine, mine + slice_bytes);  // the caller's function need not work in place
    call("all_gather",
         [&] { return table_.all_gather(table_.user_data, received_.data(), slice_bytes, all); });
  }

  void abort(std::string_view reason) noexcept override {
    try {
      const std::string text = format_text("rank {} aborted the job: {}", rank(),
                                           reason.empty() ? "no reason given" : reason);
      fate_->post(Error(OTR_E_ABORTED, text));
      if (table_.abort != nullptr) table_.abort(table_.user_data, text.c_str());
    } catch (const std::exception&) {  // no memory for the text: the others are told all the same
      if (table_.abort != nullptr) table_.abort(table_.user_data, "a rank aborted the job");
    }
  }
  void post(const Error& error) noexcept override {
    fate_->post(error);
    if (table_.abort != nullptr) table_.abort(table_.user_data, error.what());
  }
  void cancel() noexcept override {
    cancelled_ = true;
    if (in_call_ && table_.abort != nullptr) {
      table_.abort(table_.user_data, "this rank leaves while a call is in progress");
    }
  }
  void check() const override {
    require_process(process_);
    fate_->check();
    if (cancelled_) fail(OTR_E_ABORTED, "'{}' was cancelled on rank {}", name_, rank());
  }

 private:
  // All ranks tell what they are about to do; a difference ends the group everywhere.
  void begin(OperationKind kind, uint64_t bytes, std::string_view label, int32_t root = 0,
             uint64_t offset = 0) {
    check();
    ++current_.number;
    current_.kind = kind;
    current_.root = root;
    current_.bytes = bytes;
    current_.offset = offset;
    current_.set_label(label);
    if (size() == 1) return;
    std::vector<Operation> calls(static_cast<size_t>(size()));
    call("all_gather", [&] {
      return table_.all_gather(table_.user_data, &current_, sizeof current_, calls.data());
    });
    for (size_t r = 1; r < calls.size(); ++r) {
      if (calls[r].number == calls[0].number && calls[r].same_call(calls[0])) continue;
      const auto other = static_cast<int32_t>(r);
      fate_->fail_with(Error(
          OTR_E_MISMATCH, disagreement(current_.number, name_, calls[0], other, calls[r]), other));
    }
  }

  // One of the caller's functions: an answer other than 0 ends the group on this rank.
  template <typename Function>
  void call(const char* name, const Function& function) {
    in_call_ = true;
    const int32_t answer = cancelled_ ? -1 : function();
    in_call_ = false;
    if (answer == 0) return;
    check();  // an abort or a cancel of ours may be why it failed
    fate_->fail_with(
        Error(OTR_E_HOST,
              format_text(
                  "the communicator's {} returned {} in {} (operation {} of '{}') on rank {}; the "
                  "job cannot go on",
                  name, answer, current_.text(), current_.number, name_, rank())));
  }

  void broadcast_parts(std::span<const Part> parts, int32_t root, size_t bytes) {
    std::vector<std::byte> data(std::min(kAtATime, bytes));
    PartsCursor cursor(parts, root);
    for (size_t done = 0; done < bytes; done += data.size()) {
      const size_t n = std::min(data.size(), bytes - done);
      if (root == rank()) cursor.copy_to(data.data(), n);
      call("broadcast", [&] { return table_.broadcast(table_.user_data, data.data(), n, root); });
      if (root != rank()) cursor.copy_from(data.data(), n);
    }
  }

  // received_ becomes what every rank has for this one.
  void swap_slices(const std::byte* parts, size_t bytes) {
    if (size() == 1) {
      std::memcpy(received_.data(), parts, bytes);
      return;
    }
    if (table_.all_to_all != nullptr) {
      call("all_to_all",
           [&] { return table_.all_to_all(table_.user_data, parts, bytes, received_.data()); });
      return;
    }
    // One rank's parts after another, in pieces, so that what everybody gathers stays small.
    constexpr size_t kPiece = size_t{1} << 20;
    const auto ranks = static_cast<size_t>(size());
    std::vector<std::byte> all(ranks * std::min(kPiece, bytes));
    for (size_t begin = 0; begin < bytes; begin += kPiece) {
      const size_t n = std::min(kPiece, bytes - begin);
      for (size_t to = 0; to < ranks; ++to) {
        call("all_gather", [&] {
          return table_.all_gather(table_.user_data, parts + to * bytes + begin, n, all.data());
        });
        if (to != static_cast<size_t>(rank())) continue;
        for (size_t from = 0; from < ranks; ++from) {
          std::memcpy(received_.data() + from * bytes + begin, all.data() + from * n, n);
        }
      }
    }
  }

  std::byte* checked(const Window& window, size_t offset, size_t slice_bytes,
                     std::string_view label) const {
    const auto* local = dynamic_cast<const LocalWindow*>(&window);
    if (local == nullptr || local->fate() != fate_.get()) {
      fail(OTR_E_ARGUMENT, "'{}': the window was not made by this communicator", label);
    }
    const auto ranks = static_cast<size_t>(size());
    if (offset > local->bytes() || slice_bytes > (local->bytes() - offset) / ranks) {
      fail(OTR_E_ARGUMENT, "'{}': {} slices of {} bytes at offset {} exceed the window of {} bytes",
           label, size(), slice_bytes, offset, local->bytes());
    }
    return local->block(rank());
  }

  // Throws on every rank what the first rank with a trouble says; the communicator goes on.
  void agree_on(const Verdict& mine) {
    std::vector<Verdict> all(static_cast<size_t>(size()), mine);
    if (size() > 1) {
      call("all_gather",
           [&] { return table_.all_gather(table_.user_data, &mine, sizeof mine, all.data()); });
    }
    for (size_t r = 0; r < all.size(); ++r) {
      all[r].require(current_.text(), static_cast<int32_t>(r));
    }
  }

  const otr_comm_table table_;
  const std::shared_ptr<Fate> fate_;
  const std::string name_;
  const pid_t process_;
  bool owns_ = false;  // user_data
  std::atomic<bool> cancelled_{false}, in_call_{false};
  Operation current_;
  std::vector<std::byte> received_;
  std::vector<const void*> slices_;
};

// Where a rank is to be: in the group that begins with this one of all ranks, as so many-th.
struct Seat {
  int32_t first, index;
  int32_t cannot;  // 1: its table has no split
};

std::unique_ptr<Communicator> CustomCommunicator::subgroup(const std::vector<int32_t>& members) {
  constexpr std::string_view kLabel = "split a communicator";
  const auto index = static_cast<int32_t>(std::ranges::find(members, rank()) - members.begin());
  const std::vector<Seat> all = gather_values(
      *this, std::vector<Seat>{{members.empty() ? -1 : members[0], index, table_.split == nullptr}},
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
  otr_comm_table table = table_;
  table.rank = index;
  table.world_size = static_cast<int32_t>(members.size());
  table.user_data = nullptr;
  call("split", [&] {
    return table_.split(table_.user_data, groups.data(), places.data(), &table.user_data);
  });
  if (members.empty()) return nullptr;
  auto made = std::make_unique<CustomCommunicator>(table, std::make_shared<Fate>(), kLabel);
  made->own();
  return made;
}

}  // namespace

std::unique_ptr<Communicator> make_custom(const otr_comm_table& table) {
  auto made = std::make_unique<CustomCommunicator>(table, std::make_shared<Fate>(), "main");
  made->barrier("attach");
  made->own();
  return made;
}

}  // namespace outrigger::comm

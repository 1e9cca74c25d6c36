// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/links.h"

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::comm::test {

void Links::carry(int32_t from, int32_t to, size_t bytes, bool stalls, Communicator& group,
                  int32_t sender) {
  bytes_[static_cast<size_t>(from * kMost + to)] += bytes;
  Seconds takes = latency_ + Seconds(stalls ? stall_ : Seconds(0));
  if (bandwidth_ > 0) takes += Seconds(static_cast<double>(bytes) / bandwidth_);
  if (takes <= Seconds(0)) return;
  Clock::time_point until;
  {
    const std::lock_guard lock(mutex_);
    Clock::time_point& free = free_[static_cast<size_t>(to)];
    free = std::max(free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
    until = free;
  }
  for (const auto begun = Clock::now(); Clock::now() < until;) {
    group.check();
    if (Clock::now() - begun > timeout) {
      group.post(Error(OTR_E_TIMEOUT,
                       format_text("what rank {} sent to host {} did not come within {} s", sender,
                                   to, timeout.count()),
                       sender));
    }
    const auto look = Clock::now() + std::chrono::milliseconds(20);
    std::this_thread::sleep_until(std::min(until, look));
  }
}

bool Links::come(int32_t host, int64_t operation) const {
  if (host != broken_ || operation != operation_) return false;
  if (stall_ == Seconds(0)) {
    throw HostDied(format_text("host {} died at operation {}", host, operation));
  }
  return true;
}

namespace {

// Every rank gets what it reads of ranks on other hosts by its own host's cable.
class Linked final : public Forwarding {
 public:
  Linked(std::unique_ptr<Communicator> inner, Links& links, std::vector<int32_t> host_of,
         std::shared_ptr<std::atomic<int64_t>> come)
      : Forwarding(std::move(inner)),
        links_(links),
        host_of_(std::move(host_of)),
        come_(std::move(come)) {}

  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    come();
    auto made = Forwarding::duplicate(name);
    carry_from_each(0);
    return std::make_unique<Linked>(std::move(made), links_, host_of_, come_);
  }
  bool shares_memory() const override { return false; }

  void barrier(std::string_view label) override {
    come();
    Forwarding::barrier(label);
    carry_from_each(0);
  }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    come();
    Forwarding::broadcast(data, root, label);
    carry_from(root, data.size());
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    come();
    Forwarding::all_gather(mine, all, label);
    carry_from_each(mine.size());
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    come();
    Forwarding::all_gather_parts(parts, label);
    for (const Part& part : parts) carry_from(part.rank, part.bytes.size());
  }
  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    come();
    Forwarding::combine(value, merge, label);
    carry_from_each(value.size());
  }
  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    come();
    auto window = Forwarding::create_window(kind, bytes, label);
    carry_from_each(0);
    return window;
  }
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    come();
    const auto slices = Forwarding::exchange(window, offset, slice_bytes, label);
    carry_from_each(slice_bytes);
    return slices;
  }
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    come();
    Forwarding::all_gather_window(window, offset, slice_bytes, label);
    carry_from_each(slice_bytes);
  }

 private:
  void come() {
    ++links_.operations;
    stalls_ = links_.come(host_of(rank()), (*come_)++);
  }
  [[nodiscard]] int32_t host_of(int32_t r) const { return host_of_[static_cast<size_t>(r)]; }
  void carry_from(int32_t r, size_t bytes) {
    if (host_of(r) == host_of(rank())) return;
    links_.carry(host_of(r), host_of(rank()), bytes, std::exchange(stalls_, false), *this, r);
  }
  void carry_from_each(size_t bytes) {
    for (int32_t r = 0; r < size(); ++r) carry_from(r, bytes);
  }

  Links& links_;
  const std::vector<int32_t> host_of_;
  const std::shared_ptr<std::atomic<int64_t>> come_;
  bool stalls_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_linked(std::unique_ptr<Communicator> inner, Links& links,
                                          std::vector<int32_t> host_of,
                                          std::shared_ptr<std::atomic<int64_t>> come) {
  return std::make_unique<Linked>(std::move(inner), links, std::move(host_of), std::move(come));
}

LinkedLevels::LinkedLevels(std::unique_ptr<Communicator> threads, Links& links, int32_t each) {
  const int32_t rank = threads->rank(), hosts = threads->size() / each;
  host = split(*threads, rank / each, rank);
  auto place = split(*threads, rank % each, rank);
  std::vector<int32_t> of_all, of_place;
  for (int32_t r = 0; r < threads->size(); ++r) of_all.push_back(r / each);
  for (int32_t h = 0; h < hosts; ++h) of_place.push_back(h);
  const auto come = std::make_shared<std::atomic<int64_t>>(0);
  all = make_linked(std::move(threads), links, of_all, come);
  across = make_linked(std::move(place), links, of_place, come);
}

}  // namespace outrigger::comm::test

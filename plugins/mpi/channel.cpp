// SPDX-License-Identifier: Apache-2.0
#include "plugins/mpi/channel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <type_traits>

#include "plugins/common/work.h"
#include "plugins/mpi/library.h"

namespace outrigger::mpi {
namespace {

constexpr int kDataTag = 1, kMessageTag = 2;
constexpr int kLooks = 16;  // Open MPI reads its sockets at every eighth call

using Buffer = std::array<std::byte, OTR_PLUGIN_MESSAGE_BYTES>;

void require_running() {
  if (is_running()) return;
  plugins::fail(OTR_E_STATE,
                "MPI_Finalize was called, and a communicator is still in use; destroy engines and "
                "communicators before it");
}

// Calls of one library, one at a time where it wants that.
template <typename Handle>
class Calls {
 public:
  explicit Calls(const Mpi<Handle>& mpi) : mpi(mpi) {}
  const Mpi<Handle>& mpi;

  template <typename... P>
  void operator()(const char* name, int (*function)(P...),
                  std::type_identity_t<P>... arguments) const {
    const auto turn = take_turn();
    check(name, function(arguments...));
  }
  [[nodiscard]] std::unique_lock<std::mutex> take_turn() const {
    return mpi.takes_turns ? std::unique_lock(*mpi.turns) : std::unique_lock<std::mutex>();
  }
  // Of a call's answer, in the caller's turn.
  void check(const char* name, int error) const {
    if (error == 0) return;
    int kind = error;
    mpi.MPI_Error_class(error, &kind);
    std::array<char, 1024> text{};
    int length = 0;
    mpi.MPI_Error_string(error, text.data(), &length);
    leave_unfinished();
    const bool is_dead = kind == mpi.constants.failed || kind == mpi.constants.failed_pending;
    plugins::fail(is_dead ? OTR_E_PEER_DEAD : OTR_E_SYSTEM,
                  std::string(name) + ": " + text.data() + " (" + std::to_string(error) + ")");
  }
};

// How many of a channel's operations are not over, and whether one went wrong: then MPI may still
// need the communicator.
struct Usage {
  std::atomic<int64_t> open{0};
  std::atomic<bool> failed{false};
};

// Some of MPI's requests, all of which must be over.
template <typename Handle>
class Requests final : public Request {
 public:
  Requests(Calls<Handle> calls, std::shared_ptr<Usage> usage, const char* name,
           std::function<void()> then = {})
      : calls_(calls), usage_(std::move(usage)), name_(name), then_(std::move(then)) {
    ++usage_->open;
  }
  // The next one, for a call to fill.
  Handle* add() {
    requests_.push_back(calls_.mpi.constants.request_null);
    return &requests_.back();
  }
  bool test() override {
    for (int looks = kLooks; !requests_.empty();) {
      int done = 0;
      const auto turn = calls_.take_turn();
      const int error =
          calls_.mpi.MPI_Test(&requests_.front(), &done, calls_.mpi.constants.status_ignore);
      if (error != 0) usage_->failed = true;
      calls_.check(name_, error);
      if (done != 0) {
        requests_.pop_front();
      } else if (--looks == 0) {
        return false;
      }
    }
    if (then_) then_();
    then_ = {};
    --usage_->open;
    return true;
  }

 private:
  const Calls<Handle> calls_;
  const std::shared_ptr<Usage> usage_;
  const char* const name_;
  std::function<void()> then_;
  std::list<Handle> requests_;  // at addresses that stay
};

template <typename Handle>
class ChannelOf final : public Channel {
 public:
  explicit ChannelOf(const Mpi<Handle>& mpi) : call_(mpi) {}
  ~ChannelOf() override;
  ChannelOf(const ChannelOf&) = delete;
  ChannelOf& operator=(const ChannelOf&) = delete;

  // A channel over the ranks of `from`.
  static Made copy_of(const Mpi<Handle>& mpi, Handle from);

  int32_t rank() const override { return rank_; }
  int32_t world() const override { return world_; }
  Made duplicate() override {
    require_running();
    return copy_of(call_.mpi, comm_);
  }
  Made split(int32_t color, int32_t key) override;

  Begun all_gather(const void* mine, void* all, size_t bytes) override {
    const auto n = static_cast<int>(bytes);
    const bool in_place = mine == static_cast<std::byte*>(all) + static_cast<size_t>(rank_) * bytes;
    return begin("MPI_Iallgather", [&](Handle* request) {
      return mpi().MPI_Iallgather(in_place ? values().in_place : mine, n, values().byte, all, n,
                                  values().byte, comm_, request);
    });
  }
  Begun broadcast(void* data, size_t bytes, int32_t root) override {
    return begin("MPI_Ibcast", [&](Handle* request) {
      return mpi().MPI_Ibcast(data, static_cast<int>(bytes), values().byte, root, comm_, request);
    });
  }
  Begun all_to_all(const void* parts, void* received, size_t bytes) override {
    const auto n = static_cast<int>(bytes);
    return begin("MPI_Ialltoall", [&](Handle* request) {
      return mpi().MPI_Ialltoall(parts, n, values().byte, received, n, values().byte, comm_,
                                 request);
    });
  }
  Begun smallest(uint64_t* numbers, int64_t count) override {
    return begin("MPI_Iallreduce", [&](Handle* request) {
      return mpi().MPI_Iallreduce(values().in_place, numbers, static_cast<int>(count),
                                  values().uint64, values().min, comm_, request);
    });
  }
  Begun exchange(const otr_plugin_transfer* sends, int64_t send_count,
                 const otr_plugin_transfer* receives, int64_t receive_count) override;

  void send_message(int32_t to, const void* message) override;
  bool receive_message(void* message) override;
  std::vector<int32_t> failed() override;
  void part() noexcept override;
  void let_go() noexcept override;

 private:
  struct Sent {
    Buffer bytes;
    Handle request;
  };

  const Mpi<Handle>& mpi() const { return call_.mpi; }
  const Constants<Handle>& values() const { return call_.mpi.constants; }

  template <typename Call>
  Begun begin(const char* name, const Call& start) {
    require_running();
    auto request = std::make_unique<Requests<Handle>>(call_, usage_, name);
    const auto turn = call_.take_turn();
    call_.check(name, start(request->add()));
    return request;
  }
  // It is made. Errors come back in place of ending the process.
  void own() {
    call_("MPI_Comm_set_errhandler", mpi().MPI_Comm_set_errhandler, comm_, values().errors_return);
    call_("MPI_Comm_rank", mpi().MPI_Comm_rank, comm_, &rank_);
    call_("MPI_Comm_size", mpi().MPI_Comm_size, comm_, &world_);
    is_made_ = true;
  }
  // A message's. One to a process that has ended fails alone, and holds up none to the others.
  enum class State : uint8_t { pending, done, failed };
  State state_of(Handle& request) {
    const auto turn = call_.take_turn();
    int done = 0;
    const int error = mpi().MPI_Test(&request, &done, values().status_ignore);
    if (error == 0) return done != 0 ? State::done : State::pending;
    int kind = error;
    mpi().MPI_Error_class(error, &kind);
    const bool is_pending = kind == values().failed_pending;
    if (!is_pending && kind != values().failed) call_.check("MPI_Test", error);
    leave_unfinished();
    // What is received from anyone goes on for those who live only once that is acknowledged.
    if (mpi().MPIX_Comm_failure_ack != nullptr) mpi().MPIX_Comm_failure_ack(comm_);
    return is_pending ? State::pending : State::failed;
  }
  bool is_over(Handle& request) { return state_of(request) != State::pending; }

  const Calls<Handle> call_;
  int rank_ = 0, world_ = 0;
  Handle comm_{};
  std::atomic<bool> is_made_{false};
  const std::shared_ptr<Usage> usage_ = std::make_shared<Usage>();

  std::mutex messages_;  // guards what is below
  std::list<Sent> sent_;
  bool receives_ = false;
  std::unique_ptr<Buffer> incoming_ = std::make_unique<Buffer>();
  Handle receive_{};
};

template <typename Handle>
ChannelOf<Handle>::~ChannelOf() {
  // A communicator that MPI may still need stays until the process ends, with what it writes to.
  const bool is_clean = usage_->open == 0 && !usage_->failed && sent_.empty() && !receives_;
  if (!is_made_ || !is_running()) return;
  if (usage_->open != 0 || usage_->failed) leave_unfinished();  // others may never answer
  if (!is_clean) {
    static_cast<void>(incoming_.release());
    static_cast<void>(new std::list<Sent>(std::move(sent_)));
    return;
  }
  const auto turn = call_.take_turn();
  mpi().MPI_Comm_free(&comm_);
}

template <typename Handle>
Channel::Made ChannelOf<Handle>::copy_of(const Mpi<Handle>& mpi, Handle from) {
  const Calls<Handle> call(mpi);
  auto made = std::make_shared<ChannelOf>(mpi);
  auto request = std::make_unique<Requests<Handle>>(call, made->usage_, "MPI_Comm_idup",
                                                    [made] { made->own(); });
  call("MPI_Comm_idup", mpi.MPI_Comm_idup, from, &made->comm_, request->add());
  return {std::move(made), std::move(request)};
}

// MPI has no split that does not block. All ranks have come to this one.
template <typename Handle>
Channel::Made ChannelOf<Handle>::split(int32_t color, int32_t key) {
  require_running();
  auto made = std::make_shared<ChannelOf>(mpi());
  call_("MPI_Comm_split", mpi().MPI_Comm_split, comm_, color < 0 ? kUndefined : color, key,
        &made->comm_);
  if (color < 0) {
    made = nullptr;
  } else {
    made->own();
  }
  return {std::move(made), std::make_unique<Requests<Handle>>(call_, usage_, "MPI_Comm_split")};
}

template <typename Handle>
Channel::Begun ChannelOf<Handle>::exchange(const otr_plugin_transfer* sends, int64_t send_count,
                                           const otr_plugin_transfer* receives,
                                           int64_t receive_count) {
  require_running();
  auto request = std::make_unique<Requests<Handle>>(call_, usage_, "a message between ranks");
  for (int64_t i = 0; i < receive_count; ++i) {
    const auto one = plugins::element_of(receives, i);
    call_("MPI_Irecv", mpi().MPI_Irecv, one.data, static_cast<int>(one.bytes), values().byte,
          one.peer, kDataTag, comm_, request->add());
  }
  for (int64_t i = 0; i < send_count; ++i) {
    const auto one = plugins::element_of(sends, i);
    call_("MPI_Isend", mpi().MPI_Isend, one.data, static_cast<int>(one.bytes), values().byte,
          one.peer, kDataTag, comm_, request->add());
  }
  return request;
}

template <typename Handle>
void ChannelOf<Handle>::send_message(int32_t to, const void* message) {
  require_running();
  const std::lock_guard lock(messages_);
  sent_.remove_if([this](Sent& sent) { return is_over(sent.request); });
  Sent& sent = sent_.emplace_back();
  std::memcpy(sent.bytes.data(), message, sent.bytes.size());
  sent.request = values().request_null;
  call_("MPI_Isend", mpi().MPI_Isend, sent.bytes.data(), static_cast<int>(sent.bytes.size()),
        values().byte, to, kMessageTag, comm_, &sent.request);
}

template <typename Handle>
bool ChannelOf<Handle>::receive_message(void* message) {
  require_running();
  const std::lock_guard lock(messages_);
  const State state = receives_ ? state_of(receive_) : State::failed;
  if (state == State::pending) return false;
  const bool has = state == State::done;
  if (has) std::memcpy(message, incoming_->data(), incoming_->size());
  receives_ = false;
  call_("MPI_Irecv", mpi().MPI_Irecv, incoming_->data(), static_cast<int>(incoming_->size()),
        values().byte, values().any_source, kMessageTag, comm_, &receive_);
  receives_ = true;
  return has;
}

template <typename Handle>
std::vector<int32_t> ChannelOf<Handle>::failed() {
  if (mpi().MPIX_Comm_get_failed == nullptr || !is_running()) return {};
  Handle dead{}, all{};
  call_("MPIX_Comm_get_failed", mpi().MPIX_Comm_get_failed, comm_, &dead);
  int count = 0;
  call_("MPI_Group_size", mpi().MPI_Group_size, dead, &count);
  std::vector<int> indices(static_cast<size_t>(count)), ranks(static_cast<size_t>(count));
  if (count > 0) {
    for (int i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = i;
    call_("MPI_Comm_group", mpi().MPI_Comm_group, comm_, &all);
    call_("MPI_Group_translate_ranks", mpi().MPI_Group_translate_ranks, dead, count, indices.data(),
          all, ranks.data());
    call_("MPI_Group_free", mpi().MPI_Group_free, &all);
    if (mpi().MPIX_Comm_failure_ack != nullptr) {
      call_("MPIX_Comm_failure_ack", mpi().MPIX_Comm_failure_ack, comm_);
    }
    leave_unfinished();
  }
  call_("MPI_Group_free", mpi().MPI_Group_free, &dead);
  return {ranks.begin(), ranks.end()};
}

template <typename Handle>
void ChannelOf<Handle>::part() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kMost{1000}, kQuiet{5};
  try {
    uint64_t nothing = 0;
    const Begun all_here = smallest(&nothing, 1);  // after which nobody sends
    const auto begun = Clock::now();
    Buffer message;
    bool is_over = false;
    for (auto last = begun;
         Clock::now() - begun < kMost && (!is_over || Clock::now() - last < kQuiet);) {
      if (receive_message(message.data())) last = Clock::now();
      if (!is_over && (is_over = all_here->test())) last = Clock::now();
      std::this_thread::yield();
    }
    const std::lock_guard lock(messages_);
    sent_.remove_if([this](Sent& sent) { return this->is_over(sent.request); });
    if (!receives_ || !is_over) return;
    call_("MPI_Cancel", mpi().MPI_Cancel, &receive_);
    while (!this->is_over(receive_) && Clock::now() - begun < kMost) std::this_thread::yield();
    receives_ = false;
  } catch (const plugins::Failure&) {  // then it finds something left
  }
}

template <typename Handle>
void ChannelOf<Handle>::let_go() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kMost{300};
  try {
    for (const auto until = Clock::now() + kMost; Clock::now() < until;) {
      {
        const std::lock_guard lock(messages_);
        sent_.remove_if([this](Sent& sent) { return is_over(sent.request); });
        if (sent_.empty()) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const plugins::Failure&) {  // nothing more can be told
  }
}

Channel::Made attach_to(const void* group) {
  return std::visit(
      [&]<typename Handle>(const Mpi<Handle>& mpi) {
        require_running();
        Handle from = mpi.constants.comm_world;
        if (group != nullptr) std::memcpy(&from, group, sizeof from);
        return ChannelOf<Handle>::copy_of(mpi, from);
      },
      library());
}

std::mutex parting;
std::vector<std::shared_ptr<Channel>> attached;  // for messages; until MPI_Finalize

void part_from_all() {
  const std::lock_guard lock(parting);
  // Of a death that this rank heard of by others MPI may know by now.
  try {
    for (const auto& channel : attached) static_cast<void>(channel->failed());
  } catch (const plugins::Failure&) {  // then it has said so
  }
  for (const auto& channel : attached) is_unfinished() ? channel->let_go() : channel->part();
}

}  // namespace

Channel::Made attach(const void* group) {
  Channel::Made made = attach_to(group);
  const std::lock_guard lock(parting);
  attached.push_back(made.first);
  set_farewell(part_from_all);
  return made;
}

std::string version() {
  return std::visit([](const auto& mpi) { return mpi.version + " (" + mpi.path + ")"; }, library());
}

}  // namespace outrigger::mpi

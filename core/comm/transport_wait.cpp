// SPDX-License-Identifier: Apache-2.0
// TransportChannel: waiting for the library, and what is said when it is in vain.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/transport_channel.h"
#include "core/comm/watch.h"
#include "core/comm/watching.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

constexpr auto kGrace = std::chrono::seconds(1);  // for words of others that are on their way
// … of a rank that has ended, on this host and from another one.
constexpr auto kNearWords = std::chrono::milliseconds(100), kFarWords = 3 * kNearWords;
constexpr const char* kStartAgain =
    "The job cannot go on: start all ranks again, from the last checkpoint";

}  // namespace

void TransportChannel::wait(Request request, const Owner& owner) {
  std::optional<std::pair<int32_t, std::string>> failure;
  const auto ready = [&] {
    int32_t done = 0;
    const int32_t status = plugin().test(request, &done);
    if (status != OTR_OK) failure = {status, plugin().last_error()};
    return done != 0 || failure;
  };
  const bool is_meeting = meeting_ != nullptr;
  if (!spin_.wait(ready)) {
    group_->set_place(waited_in());
    const Clock::time_point deadline = deadline_in(group_->job().timeout());
    try {
      watch_until(ready, [&](Clock::time_point now) {
        look_around(now, deadline);
        if (now >= deadline) deadline_passed();
      });
      group_->set_place("");
    } catch (const Error& error) {
      group_->set_place("");
      if (is_meeting && error.status() == OTR_E_INTERRUPTED) throw;
      keep_for_ever(owner);
      throw;
    }
  }
  if (!failure) return;
  keep_for_ever(owner);
  request_failed(failure->first, failure->second);
}

void TransportChannel::look_around(Clock::time_point now, Clock::time_point deadline) {
  check();
  Watching::check();
  look_for_the_gone();
  look_for_the_dead();
  if (now >= deadline || !interrupted(now)) return;
  const std::string text =
      format_text("{} was interrupted by the host of rank {} while it waited", waited_in(), rank());
  if (meeting_ != nullptr) fail(OTR_E_INTERRUPTED, "{}. Make the call again to wait on", text);
  const std::string final = text + ". Ranks were moving data: the job cannot go on";
  abort(final);
  fail(OTR_E_INTERRUPTED, "{}", final);
}

// The first; better one that went by itself.
std::optional<ChannelNews::Gone> TransportChannel::goner() const {
  std::optional<ChannelNews::Gone> goner;
  group_->with(*news_, [&](const ChannelNews& news) {
    for (const ChannelNews::Gone& gone : news.gone) {
      if (gone.number >= current_.number) continue;
      if (!goner || (goner->culprit != goner->rank && gone.culprit == gone.rank)) goner = gone;
    }
  });
  return goner;
}

void TransportChannel::look_for_the_gone() {
  std::optional<ChannelNews::Gone> goner = this->goner();
  if (!goner) return;
  // It went because of another one, and its word has overtaken that one's story, which all others
  // tell.
  for (const auto until = Clock::now() + kGrace;
       goner->culprit != goner->rank && Clock::now() < until; goner = this->goner()) {
    check();
    Watching::check();
    look_for_the_dead();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string cause =
      goner->culprit == goner->rank ? ""
      : goner->culprit < 0 ? format_text(" because of rank {} of all", rank_outside(goner->culprit))
                           : format_text(" because of rank {}", goner->culprit);
  fail_here(goner->culprit,
            format_text("{} left{}, and others waited for it in {}; what was made on this "
                        "communicator cannot go on",
                        group_->name_of(goner->rank), cause, waited_in()));
}

void TransportChannel::look_for_the_dead() {
  const std::vector<int32_t> dead = group_->ended();
  if (dead.empty()) return;
  // Of all that have ended the first, in this group or not: others end because of it.
  const int32_t first = group_->job().ended().front();
  // Its last words may be that it left, or why it ended, and may be on their way: it may have ended
  // because of another one, of which this rank has not heard yet.
  const bool is_near = std::ranges::any_of(
      dead, [&](int32_t r) { return group_->job().is_on_this_host(group_->member(r)); });
  for (const auto until = Clock::now() + (is_near ? kNearWords : kFarWords);;) {
    check();
    Watching::check();
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const bool is_member = group_->member(dead.front()) == first;
  fail_job(
      OTR_E_PEER_DEAD, is_member ? dead.front() : rank_outside(first),
      format_text("{} ended, and others waited {} in {}. {}",
                  is_member ? group_->name_of(dead.front()) : group_->job().name_of(first, first),
                  is_member ? "for it" : "in vain", waited_in(), kStartAgain));
}

// The library gives a reason; who is to blame may be known a moment later.
void TransportChannel::request_failed(int32_t status, const std::string& text) {
  meeting_ = nullptr;           // its request is gone
  if (status == OTR_E_STATE) {  // MPI is over, for messages too
    group_->fate().fail_with(Error(status, format_text("{}: {}", waited_in(), text)));
  }
  const auto until = Clock::now() + kGrace;
  do {
    check();
    look_for_the_gone();
    look_for_the_dead();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < until);
  if (status == OTR_E_PEER_DEAD) {
    fail_job(status, -1,
             format_text("a rank ended, and others waited for it in {}: {}. {}", waited_in(), text,
                         kStartAgain));
  }
  const std::string said = format_text("{} failed on rank {}: {}", waited_in(), rank(), text);
  const Error mine(status, said, rank());
  group_->fate().post(mine);
  TransportMessage message;
  message.status = OTR_E_ABORTED;
  message.culprit = rank();
  message.set_text(said);
  group_->tell(message);
  throw Error(mine);
}

// Ranks that wait, here or elsewhere, say so; who is silent, or is not here, is what held them up.
// Of those who are here the lowest tells all the others, so that all have one text.
void TransportChannel::deadline_passed() {
  const auto ranks = static_cast<size_t>(size());
  group_->with(*news_, [&](ChannelNews& news) { news.answers.assign(ranks, {}); });
  TransportMessage question;
  question.kind = TransportMessage::question;
  question.channel = id_;
  question.number = current_.number;
  group_->tell(question);
  const auto listen = [&](std::chrono::milliseconds time) {
    for (const auto until = Clock::now() + time; Clock::now() < until;) {
      check();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  listen(kGrace);
  std::vector<int32_t> missing, here{rank()};
  std::string silent;
  constexpr size_t kNamed = 4;
  group_->with(*news_, [&](ChannelNews& news) {
    for (int32_t r = 0; r < size(); ++r) {
      const ChannelNews::Answer& answer = news.answers[static_cast<size_t>(r)];
      if (r == rank()) continue;
      if (answer.is_there && answer.number >= current_.number) {
        here.push_back(r);
        continue;
      }
      missing.push_back(r);
      if (missing.size() > kNamed) continue;
      silent += format_text("{}{} ", missing.size() > 1 ? "; " : "", group_->name_of(r));
      silent += !answer.is_there ? "does not answer"
                                 : format_text("has come to operation {}, and waits in {}",
                                               answer.number, answer.text);
    }
    news.answers.clear();
  });
  if (missing.size() > kNamed) silent += "; and more";
  if (missing.empty()) silent = "all ranks are here: the library or the network is slow";
  if (*std::ranges::min_element(here) != rank()) listen(kGrace);
  fail_job(
      OTR_E_TIMEOUT, missing.empty() ? rank() : missing.front(),
      format_text("{} of {} ranks did not come to {} within {} s: {}. Look what holds them up, "
                  "or raise the timeout",
                  missing.size(), size(), waited_in(), group_->job().timeout(), silent));
}

void TransportChannel::fail_job(int32_t status, int32_t culprit, const std::string& text) {
  const Error error(status, text, culprit);
  group_->fate().post(error);
  TransportMessage message;
  message.status = status;
  message.culprit = culprit;
  message.set_text(text);
  group_->tell(message);
  group_->fate().check();
  throw Error(error);
}

void TransportChannel::fail_here(int32_t culprit, const std::string& text) {
  post(Error(OTR_E_PEER_DEAD, text, culprit));
  check();
  throw Error(OTR_E_PEER_DEAD, text, culprit);
}

void TransportChannel::abort(std::string_view reason) noexcept {
  try {
    const std::string text = format_text("rank {} aborted the job: {}", rank(),
                                         reason.empty() ? "no reason given" : reason);
    group_->fate().post(Error(OTR_E_ABORTED, text, rank()));
    TransportMessage message;
    message.status = OTR_E_ABORTED;
    message.culprit = rank();
    message.set_text(text);
    group_->tell(message);
  } catch (const std::exception&) {  // no memory for the text: the others' deadline tells
  }
}

// Of this channel alone.
void TransportChannel::post(const Error& error) noexcept {
  try {
    group_->with(*news_, [&](ChannelNews& news) {
      if (!news.failure) news.failure = error;
    });
    TransportMessage message;
    message.channel = id_;
    message.number = published_number();
    message.status = is_told(error.status()) ? error.status() : OTR_E_ABORTED;
    message.culprit = error.culprit();
    message.set_text(error.what());
    group_->tell(message);
  } catch (const std::exception&) {
  }
}

void TransportChannel::give_up(int32_t culprit) noexcept {
  if (left_.exchange(true) || size() == 1) return;
  TransportMessage message;
  message.kind = TransportMessage::left;
  message.channel = id_;
  message.number = published_number() - (is_over_ ? 0 : 1);
  message.culprit = culprit;
  group_->tell_neighbours(message);
}

// Listens first: a rank that has not waited for a while has not heard of a failure.
void TransportChannel::check() const {
  require_process(process_);
  group_->job().poll();
  group_->fate().check();
  group_->with(*news_, [](const ChannelNews& news) {
    if (news.failure) throw Error(*news.failure);
  });
  if (cancelled_) fail(OTR_E_ABORTED, "'{}' was cancelled on rank {}", name_, rank());
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/transport_group.h"

#include <algorithm>
#include <new>
#include <utility>

namespace outrigger::comm {
TransportGroup::TransportGroup(std::shared_ptr<TransportJob> job, uint64_t id,
                               std::vector<int32_t> members, int32_t rank)
    : job_(std::move(job)), id_(id), members_(std::move(members)), rank_(rank) {
  for (const int32_t member : members_) is_one_host_ &= job_->is_on_this_host(member);
  job_->add(id_, *this);
}

TransportGroup::~TransportGroup() { job_->remove(id_); }

std::shared_ptr<ChannelNews> TransportGroup::add(uint64_t channel) {
  auto news = std::make_shared<ChannelNews>();
  const std::lock_guard lock(mutex_);
  channels_[channel] = news;
  std::erase_if(early_, [&](const auto& early) {
    if (early.first == channel) news->gone.push_back(early.second);
    return early.first == channel;
  });
  return news;
}

void TransportGroup::remove(uint64_t channel) {
  const std::lock_guard lock(mutex_);
  channels_.erase(channel);
}

void TransportGroup::set_place(std::string text) {
  const std::lock_guard lock(mutex_);
  place_ = std::move(text);
}

std::vector<int32_t> TransportGroup::ended() const {
  std::vector<int32_t> ranks;
  const std::vector<int32_t> dead = job_->ended();
  if (dead.empty()) return ranks;
  for (const int32_t rank : dead) {
    const auto found = std::ranges::find(members_, rank);
    const auto r = static_cast<int32_t>(found - members_.begin());
    if (found != members_.end() && r != rank_) ranks.push_back(r);
  }
  return ranks;
}

void TransportGroup::send(int32_t to, TransportMessage message) noexcept {
  message.group = id_;
  message.from = rank_;
  job_->send(members_[static_cast<size_t>(to)], message);
}

void TransportGroup::tell(TransportMessage message) noexcept {
  for (int32_t r = 0; r < size(); ++r) {
    if (r != rank_) send(r, message);
  }
}

void TransportGroup::tell_neighbours(TransportMessage message) noexcept {
  for (int32_t apart = 1; apart < size(); apart *= 2) {
    const int32_t after = (rank_ + apart) % size(), before = (rank_ + size() - apart) % size();
    send(after, message);
    if (before != after) send(before, message);
  }
}

void TransportGroup::answer(const TransportMessage& question) {
  TransportMessage reply;
  reply.kind = TransportMessage::answer;
  reply.channel = question.channel;
  const auto known = channels_.find(question.channel);
  reply.number = known == channels_.end() ? 0 : known->second->number;
  reply.set_text(place_);
  send(question.from, reply);
}

// Who has told of it may end before its word has come to all: a network loses what a process that
// is gone has sent. Ranks of one host hear of it from each other.
void TransportGroup::pass_on(const TransportMessage& message) noexcept {
  for (const int32_t step : {1, size() - 1}) {
    int32_t r = rank_;
    do {
      r = (r + step) % size();
    } while (r != rank_ && !job_->is_on_this_host(member(r)));
    if (r != rank_ && r != message.from) send(r, message);
  }
}

void TransportGroup::take(const TransportMessage& message) {
  if (message.from < 0 || message.from >= size()) return;
  const std::lock_guard lock(mutex_);
  const auto known = channels_.find(message.channel);
  switch (message.kind) {
    case TransportMessage::failure: {
      if (!is_told(message.status)) return;
      const Error error(message.status, std::string(message.text_view()),
                        message.culprit < size() ? message.culprit : -1);
      if (message.channel == 0) {
        if (fate_.post(error)) pass_on(message);
      } else if (known != channels_.end() && !known->second->failure) {
        known->second->failure = error;
        pass_on(message);
      }
      return;
    }
    case TransportMessage::left: {
      constexpr size_t kMost = 256;  // most are of channels that are gone here, too
      const ChannelNews::Gone gone{message.from, message.number, message.culprit};
      if (known != channels_.end()) {
        known->second->gone.push_back(gone);
      } else {
        if (early_.size() == kMost) early_.pop_front();
        early_.emplace_back(message.channel, gone);
      }
      return;
    }
    case TransportMessage::question:
      answer(message);
      return;
    case TransportMessage::answer:
      if (known == channels_.end() || known->second->answers.empty()) return;
      known->second->answers[static_cast<size_t>(message.from)] = {
          message.number, std::string(message.text_view()), true};
      return;
  }
}

}  // namespace outrigger::comm

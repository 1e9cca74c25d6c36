// SPDX-License-Identifier: Apache-2.0
#include "core/comm/custom_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/process.h"
#include "core/base/text.h"
#include "core/comm/identity.h"

namespace outrigger::comm {

CustomTable::CustomTable(const otr_comm_table& table, std::shared_ptr<Fate> fate,
                         std::string_view name)
    : table_(table), fate_(std::move(fate)), name_(name), process_(current_process()) {}

CustomTable::~CustomTable() {
  if (owns_ && table_.destroy != nullptr && current_process() == process_) {
    table_.destroy(table_.user_data);
  }
}

template <typename Function>
void CustomTable::call(const char* name, const Function& function) {
  in_call_ = true;
  const int32_t answer = cancelled_ ? -1 : function();
  in_call_ = false;
  if (answer == 0) return;
  check();  // an abort or a cancel of ours may be why it failed
  fate_->fail_with(Error(
      OTR_E_HOST,
      format_text("the communicator's {} returned {} in {} (operation {} of '{}') on rank {}; the "
                  "job cannot go on",
                  name, answer, current_.text(), current_.number, name_, rank())));
}

void CustomTable::meet(Operation operation) {
  check();
  operation.number = current_.number + 1;
  current_ = operation;
  if (size() == 1) return;
  std::vector<Operation> calls(static_cast<size_t>(size()));
  all_gather(&current_, sizeof current_, calls.data(), nullptr);
  for (size_t r = 1; r < calls.size(); ++r) {
    if (calls[r].number == calls[0].number && calls[r].same_call(calls[0])) continue;
    const auto other = static_cast<int32_t>(r);
    fate_->fail_with(Error(OTR_E_MISMATCH,
                           disagreement(current_.number, name_, calls[0], other, calls[r]), other));
  }
}

void CustomTable::all_gather(const void* mine, size_t bytes, void* all, const Owner&) {
  call("all_gather", [&] { return table_.all_gather(table_.user_data, mine, bytes, all); });
}

void CustomTable::broadcast(std::span<std::byte> data, int32_t root) {
  if (table_.broadcast != nullptr) {
    call("broadcast",
         [&] { return table_.broadcast(table_.user_data, data.data(), data.size(), root); });
    return;
  }
  std::vector<std::byte> all(data.size() * static_cast<size_t>(size()));
  all_gather(data.data(), data.size(), all.data(), nullptr);
  std::memcpy(data.data(), all.data() + static_cast<size_t>(root) * data.size(), data.size());
}

void CustomTable::all_to_all(const std::byte* parts, size_t bytes, std::byte* received,
                             const Owner&) {
  if (size() == 1) {
    std::memcpy(received, parts, bytes);
    return;
  }
  if (table_.all_to_all != nullptr) {
    call("all_to_all", [&] { return table_.all_to_all(table_.user_data, parts, bytes, received); });
    return;
  }
  // One rank's parts after another, in pieces, so that what everybody gathers stays small.
  constexpr size_t kPiece = size_t{1} << 20;
  const auto ranks = static_cast<size_t>(size());
  std::vector<std::byte> all(ranks * std::min(kPiece, bytes));
  for (size_t begin = 0; begin < bytes; begin += kPiece) {
    const size_t n = std::min(kPiece, bytes - begin);
    for (size_t to = 0; to < ranks; ++to) {
      all_gather(parts + to * bytes + begin, n, all.data(), nullptr);
      if (to != static_cast<size_t>(rank())) continue;
      for (size_t from = 0; from < ranks; ++from) {
        std::memcpy(received + from * bytes + begin, all.data() + from * n, n);
      }
    }
  }
}

std::unique_ptr<Channel> CustomTable::duplicate(std::string_view name) {
  otr_comm_table table = table_;
  table.user_data = nullptr;
  call("duplicate", [&] { return table_.duplicate(table_.user_data, &table.user_data); });
  auto made = std::make_unique<CustomTable>(table, fate_, name);
  made->own();
  made->set_identity(child_of(identity_, current_.number));
  return made;
}

std::unique_ptr<Channel> CustomTable::split(const std::vector<int32_t>& groups,
                                            const std::vector<int32_t>& places, int32_t rank,
                                            int32_t size, std::string_view name) {
  otr_comm_table table = table_;
  table.rank = rank;
  table.world_size = size;
  table.user_data = nullptr;
  call("split", [&] {
    return table_.split(table_.user_data, groups.data(), places.data(), &table.user_data);
  });
  if (size == 0) return nullptr;
  auto made = std::make_unique<CustomTable>(table, std::make_shared<Fate>(), name);
  made->own();
  const auto group = static_cast<uint64_t>(groups[static_cast<size_t>(this->rank())]);
  made->set_identity(child_of(identity_, current_.number, group + 1));
  return made;
}

void CustomTable::abort(std::string_view reason) noexcept {
  try {
    const std::string text = format_text("rank {} aborted the job: {}", rank(),
                                         reason.empty() ? "no reason given" : reason);
    fate_->post(Error(OTR_E_ABORTED, text));
    if (table_.abort != nullptr) table_.abort(table_.user_data, text.c_str());
  } catch (const std::exception&) {  // no memory for the text: the others are told all the same
    if (table_.abort != nullptr) table_.abort(table_.user_data, "a rank aborted the job");
  }
}

void CustomTable::post(const Error& error) noexcept {
  fate_->post(error);
  if (table_.abort != nullptr) table_.abort(table_.user_data, error.what());
}

void CustomTable::cancel() noexcept {
  cancelled_ = true;
  if (in_call_ && table_.abort != nullptr) {
    table_.abort(table_.user_data, "this rank leaves while a call is in progress");
  }
}

void CustomTable::check() const {
  require_process(process_);
  fate_->check();
  if (cancelled_) fail(OTR_E_ABORTED, "'{}' was cancelled on rank {}", name_, rank());
}

}  // namespace outrigger::comm

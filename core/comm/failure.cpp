// SPDX-License-Identifier: Apache-2.0
#include "core/comm/failure.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "core/base/error.h"

namespace outrigger::comm {

void FailureBoard::post(int32_t status, int32_t culprit, uint64_t sequence, std::string_view text,
                        const Error* cause) noexcept {
  const std::lock_guard lock(posting_);
  if (is_set()) return;  // and so this rank's record, perhaps pointed at, is never rewritten
  try {
    if (cause != nullptr && !cause_) cause_ = *cause;
  } catch (const std::bad_alloc&) {  // then the post alone is told
  }
  FailureRecord& record = record_(rank_);
  record.status = status;
  record.culprit = culprit;
  record.sequence = sequence;
  const size_t n = std::min(text.size(), record.text.size() - 1);
  std::memcpy(record.text.data(), text.data(), n);
  record.text[n] = '\0';
  uint32_t nobody = 0;
  failed_by_.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1,
                                     std::memory_order_acq_rel);
}

void FailureBoard::throw_failure() const {
  const uint32_t by = failed_by_.load(std::memory_order_acquire);
  if (by > static_cast<uint32_t>(world_)) {
    fail(OTR_E_INTERNAL, "the control block is damaged: failure posted by rank {} of {}", by - 1,
         world_);
  }
  if (by == static_cast<uint32_t>(rank_) + 1 && cause_) throw Error(*cause_);
  const FailureRecord record = record_(static_cast<int32_t>(by) - 1);
  const std::string text(record.text.data(), strnlen(record.text.data(), record.text.size()));
  switch (record.status) {
    case OTR_E_PEER_DEAD:
    case OTR_E_TIMEOUT:
    case OTR_E_MISMATCH:
    case OTR_E_ABORTED:
      throw Error(record.status, text, record.culprit < world_ ? record.culprit : -1);
    default:
      fail(OTR_E_INTERNAL, "the control block is damaged: failure status {}", record.status);
  }
}

}  // namespace outrigger::comm

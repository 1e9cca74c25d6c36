// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/damage.h"

#include "core/base/text.h"
#include "core/checkpoint/table.h"

namespace outrigger::checkpoint {

std::string tensor_in(std::string_view file, std::string_view tensor) {
  return format_text("tensor {} of {}", in_quotes(tensor), file);
}

// A file that cannot be read is as lost as one that is not there.
bool Damage::is_damage(int32_t status) {
  return status == OTR_E_CORRUPT || status == OTR_E_NOT_FOUND || status == OTR_E_UNSUPPORTED ||
         status == OTR_E_IO;
}

void Damage::note(const std::string& at, const Error& error) {
  ++count_;
  if (!first_) {
    first_ = error;
  } else if (count_ <= kNamed) {
    others_ += (others_.empty() ? "" : ", ") + at;
  }
}

void Damage::require_none() const {
  if (!first_) return;
  if (count_ == 1) throw Error(*first_);
  const std::string more =
      count_ > kNamed ? format_text(", and {} more", count_ - kNamed) : std::string();
  throw Error(first_->status(), format_text("{} damages; the first: {}; the others: {}{}", count_,
                                            first_->what(), others_, more));
}

}  // namespace outrigger::checkpoint

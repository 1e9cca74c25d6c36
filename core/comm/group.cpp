// SPDX-License-Identifier: Apache-2.0
#include "core/comm/group.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/settings.h"
#include "core/comm/watch.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {

// Of a group that knows no more of its ranks than its functions tell.
void Group::watch(const std::function<bool()>& ready, std::string_view label) {
  const double timeout = Settings{}.timeout;
  const Clock::time_point deadline = deadline_in(timeout);
  watch_until(ready, [&](Clock::time_point now) {
    check();
    if (now >= deadline) {
      const Error late(OTR_E_TIMEOUT,
                       format_text("'{}' was not over within {} s of rank {}: a rank's device "
                                   "hangs, or its process has ended",
                                   label, timeout, rank()));
      post(late);
      throw Error(late);
    }
    if (!interrupted(now)) return;
    const std::string text = format_text(
        "'{}' was interrupted by the host of rank {} while ranks were moving data: the job cannot "
        "go on",
        label, rank());
    abort(text);
    fail(OTR_E_INTERRUPTED, "{}", text);
  });
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

std::vector<const Call*> by_weight() {
  std::vector<const Call*> rows;
  for (const auto area : {context_calls(), comm_calls(), custom_calls(), device_calls(),
                          engine_calls(), query_calls(), parameter_calls(), value_calls(),
                          pass_calls(), step_calls(), shard_calls(), model_calls()}) {
    for (const Call& call : area) rows.insert(rows.end(), call.weight, &call);
  }
  return rows;
}

}  // namespace

const Call& drawn_call(uint32_t number) {
  static const std::vector<const Call*> kRows = by_weight();
  return *kRows[number % kRows.size()];
}

}  // namespace otr_fuzz

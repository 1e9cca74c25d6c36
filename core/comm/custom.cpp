// SPDX-License-Identifier: Apache-2.0
#include "core/comm/custom.h"

#include <utility>

#include "core/comm/channel_communicator.h"
#include "core/comm/custom_table.h"

namespace outrigger::comm {

std::unique_ptr<Communicator> make_custom(const otr_comm_table& table) {
  auto functions = std::make_unique<CustomTable>(table, std::make_shared<Fate>(), "main");
  CustomTable& first = *functions;
  auto made = make_over(std::move(functions));
  made->barrier("attach");
  first.own();
  return made;
}

}  // namespace outrigger::comm

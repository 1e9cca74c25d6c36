// SPDX-License-Identifier: Apache-2.0
#include "core/comm/custom.h"

#include <span>
#include <utility>

#include "core/comm/channel_communicator.h"
#include "core/comm/custom_table.h"
#include "core/comm/identity.h"

namespace outrigger::comm {

std::unique_ptr<Communicator> make_custom(const otr_comm_table& table) {
  auto functions = std::make_unique<CustomTable>(table, std::make_shared<Fate>(), "main");
  CustomTable& first = *functions;
  auto made = make_over(std::move(functions));
  uint64_t identity = new_identity();  // that of rank 0
  made->broadcast(std::as_writable_bytes(std::span(&identity, 1)), 0, "attach");
  first.set_identity(identity);
  first.own();
  return made;
}

}  // namespace outrigger::comm

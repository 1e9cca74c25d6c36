// SPDX-License-Identifier: Apache-2.0
// The library's handles as unique pointers, and its statuses as exceptions.
#pragma once

#include <outrigger.h>

#include <memory>
#include <stdexcept>
#include <string>

struct Failure : std::runtime_error {
  explicit Failure(int32_t code)
      : std::runtime_error(std::string(otr_status_name(code)) + " " + otr_last_error_message()),
        status(code) {}
  int32_t status;
};

inline void check(int32_t status) {
  if (status != OTR_OK) throw Failure(status);
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using Context = std::unique_ptr<otr_context, Destroy<otr_context_destroy>>;
using Comm = std::unique_ptr<otr_comm, Destroy<otr_comm_destroy>>;
using Engine = std::unique_ptr<otr_engine, Destroy<otr_engine_destroy>>;
using Pass = std::unique_ptr<otr_pass, Destroy<otr_pass_destroy>>;
using Shard = std::unique_ptr<otr_shard, Destroy<otr_shard_destroy>>;
using Optimizer = std::unique_ptr<otr_optimizer, Destroy<otr_optimizer_destroy>>;

// Calls create(arguments…, &handle).
template <class Handle, class Create, class... Arguments>
Handle made(Create create, Arguments... arguments) {
  typename Handle::pointer handle = nullptr;
  check(create(arguments..., &handle));
  return Handle(handle);
}

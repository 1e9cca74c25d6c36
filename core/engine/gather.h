// SPDX-License-Identifier: Apache-2.0
// Parameters for the host. On one host the published parameters are mapped by every rank, so
// acquiring one is a pointer; a float32 copy of a bfloat16 parameter is made on demand and lives
// until its release.
#pragma once

#include <vector>

#include "core/context/workers.h"
#include "core/engine/storage.h"
#include "core/layout/model.h"
#include "outrigger.h"

namespace outrigger::engine {

class Gather {
 public:
  Gather(const layout::Model& model, const layout::Layout& layout, const Storage& storage,
         memory::Ledger& ledger, Workers& workers);

  // Both: all or none of the ids. Tensors refer to the model's shapes.
  void acquire(const int64_t* ids, int64_t count, bool as_float32, otr_tensor* out);
  void release(const int64_t* ids, int64_t count);
  // The root's published value was written: float32 copies of it follow.
  void refresh(int64_t root);
  // The published parameters are about to change: every acquire ends.
  void end_all();

 private:
  struct Entry {
    int64_t acquired = 0;
    memory::Block widened;  // float32
  };
  void widen(int64_t root);
  [[nodiscard]] otr_tensor tensor_of(int64_t id, bool as_float32);

  const layout::Model* model_;
  const layout::Layout* layout_;
  const Storage* storage_;
  memory::Ledger* ledger_;
  Workers* workers_;
  std::vector<Entry> entries_;  // by root
};

}  // namespace outrigger::engine

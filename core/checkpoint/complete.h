// SPDX-License-Identifier: Apache-2.0
// The last steps of every save: whoever wrote the tensors' files makes a checkpoint of them.
#pragma once

#include <string>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"

namespace outrigger::checkpoint {

// Of a save: no other one has it.
[[nodiscard]] std::string new_id();

// Writes index and manifest beside the files, which are durable, makes the whole appear under its
// tag and names it the latest.
void complete(Lock& lock, Staging& staging, const std::string& tag, const Index& index,
              Manifest& manifest, bool replace);

}  // namespace outrigger::checkpoint

// SPDX-License-Identifier: Apache-2.0
// Weights of others as a checkpoint: a safetensors file, or the files of a Hugging Face model.
#pragma once

#include <string>

#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {

struct ImportOptions {
  bool replace = false;
  bool skip_other_dtypes = false;  // tensors that are no floats: buffers, counters
};

// source: a file; or a folder with model.safetensors.index.json or model.safetensors. What it names
// is a plain name in that folder, and may be a link to a file. Untrusted. Weights are kept as
// bfloat16 or float16 where all are of that dtype, else as float32. A key of the metadata that is
// no tensor, with a tensor's name as value, is an alias of it. Holds a few MiB besides the headers.
// Throws OTR_E_NOT_FOUND, OTR_E_CORRUPT, OTR_E_UNSUPPORTED, and what Assembly does.
void import_weights(Files& files, const std::string& source, const std::string& directory,
                    const std::string& tag, const ImportOptions& options);

}  // namespace outrigger::checkpoint

// SPDX-License-Identifier: Apache-2.0
// A checkpoint's weights as files for others: one safetensors file, or several with an index as
// Hugging Face has them.
#pragma once

#include <cstdint>
#include <string>

#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/source.h"
#include "kernels/kernels.h"

namespace outrigger::checkpoint {

struct ExportOptions {
  kernels::Format format = kernels::Format::float32;  // or bfloat16, float16: to nearest even
  int64_t max_shard_bytes = 0;                        // of tensors in a file; 0: path is the file
  bool replace = false;
};

// path: the file; or with max_shard_bytes the folder, which is there. Parameters stand there in
// their order, frozen ones too; an alias is left out, and the metadata of the file with its root
// has {alias: root}. Holds a few MiB besides. The files are written under other
// names, made durable and renamed, the index last; after a failure before the first rename nothing
// has changed. Throws OTR_E_DUPLICATE where there is such a file, unless it is to be replaced.
void export_weights(Source& source, const Manifest& manifest, Files& files, const std::string& path,
                    const ExportOptions& options);

}  // namespace outrigger::checkpoint

// SPDX-License-Identifier: Apache-2.0
// All files of a folder with one checkpoint, as one text.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/memory_files.h"

namespace otr_fuzz_checkpoint {

inline constexpr size_t kFiles = 5;
inline constexpr size_t kLatest = 0, kManifest = 1, kIndex = 2, kRanks = 3;
inline constexpr std::array<const char*, kFiles> kPaths{
    "dir/latest", "dir/a/manifest.json", "dir/a/index.safetensors", "dir/a/rank-00000.safetensors",
    "dir/a/rank-00001.safetensors"};

// By kPaths; an empty text: no such file.
using Bundle = std::array<std::string, kFiles>;

// Each file behind its length in four bytes. Any text is a bundle; what is missing is empty.
[[nodiscard]] std::string text_of(const Bundle& bundle);
[[nodiscard]] Bundle bundle_of(std::string_view text);
// As files in memory.
void fill(otr_fuzz::MemoryFiles& files, const Bundle& bundle);

// Checkpoints of engines: of one rank with composed formats, an alias, a frozen parameter and bytes
// of the host; and of two ranks. The same in every process.
[[nodiscard]] const std::vector<Bundle>& seeds();

// Sizes and hashes in the manifest are made those of the files, where it is JSON.
void reseal(Bundle& bundle);

}  // namespace otr_fuzz_checkpoint

// SPDX-License-Identifier: Apache-2.0
// Which precisions, stages and offloads go together: one table for the validator, its error texts
// and docs/legality.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/config/config.h"

namespace outrigger::config {

enum class Device : uint8_t { none, cpu, nvme };
enum class Autocast : uint8_t { off, bfloat16, float16 };

// What a configuration asks for.
struct Combination {
  int32_t stage = 0;
  bool bf16 = false, fp16 = false;                  // compute modes that are enabled
  bool bf16_master = false, fp16_master = false;    // low-precision master weights
  bool bf16_states = false, fp16_states = false;    // both moments, by a DeepSpeed key
  bool split_master = false, block_states = false;  // a moment in 8-bit blocks
  Device offload_optimizer = Device::none, offload_param = Device::none;
  Autocast autocast = Autocast::off;
};

enum class Verdict : uint8_t { legal, illegal, not_built };
enum class Need : uint8_t { any, no, yes };

// A row holds for the combinations that meet all its conditions; the first such row decides.
struct Rule {
  std::string_view name = {};
  Verdict verdict = Verdict::legal;
  std::string_view reason = {};
  std::string_view ways_out = {};  // empty for legal rows

  uint8_t stages = 0b1111;  // bit s: stage s
  uint8_t engines = 0b11;   // bit of EngineKind
  Need bf16 = Need::any, fp16 = Need::any;
  Need bf16_master = Need::any, fp16_master = Need::any;
  Need bf16_states = Need::any, fp16_states = Need::any;
  Need split_master = Need::any, block_states = Need::any;
  uint8_t offload_optimizer = 0b111, offload_param = 0b111;  // bit of Device
};

[[nodiscard]] std::span<const Rule> rules();

// The deciding row; every combination has one.
[[nodiscard]] const Rule& judge(const Combination& combination, EngineKind engine);

// "bf16, stage 1, low-precision master, …" for messages.
[[nodiscard]] std::string describe(const Combination& combination);

}  // namespace outrigger::config

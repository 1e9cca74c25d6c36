// SPDX-License-Identifier: Apache-2.0
// A program: bytes that say what one to three ranks do, all the same in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace otr_fuzz {

// Runs it, and ends the process with a report if something does not hold. timeout: of the ranks'
// collective calls, in seconds. prints: every rank's calls, to stderr, also when all is well.
void run_program(std::span<const uint8_t> bytes, double timeout, bool prints = false);

// The program that a number stands for.
std::vector<uint8_t> program_of(uint64_t seed);

}  // namespace otr_fuzz

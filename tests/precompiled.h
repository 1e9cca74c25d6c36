// SPDX-License-Identifier: Apache-2.0
// What most tests read, for OTR_PCH. Each test includes what it uses; this is not a place for it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

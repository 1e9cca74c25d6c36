// SPDX-License-Identifier: Apache-2.0
#include "cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <memory>
#include <stdexcept>

#include "fault.h"
#include "text.h"

namespace outrigger::tools {

Cores available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    throw std::runtime_error("the system does not tell which cores this process may use");
  }
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

namespace {

int parse_number(std::string_view text, std::string_view whole) {
  int number = -1;
  const char* const begin = std::to_address(text.begin());
  const char* const end = begin + text.size();
  const auto [stop, fault] = std::from_chars(begin, end, number);
  if (fault != std::errc() || stop != end || number < 0) {
    throw Misuse(format_text("--cores '{}': '{}' is not a core number; write a list such as 0-3,8",
                             whole, text));
  }
  return number;
}

}  // namespace

Cores parse_cores(std::string_view text) {
  const Cores available = available_cores();
  Cores cores;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int first = parse_number(part.substr(0, dash), text);
    const int last = dash == part.npos ? first : parse_number(part.substr(dash + 1), text);
    if (last < first || last >= CPU_SETSIZE) {
      throw Misuse(
          format_text("--cores '{}': '{}' is no range of cores from 0 to {}; write a list "
                      "such as 0-3,8",
                      text, part, CPU_SETSIZE - 1));
    }
    for (int core = first; core <= last; core++) cores.push_back(core);
    begin = end + 1;
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  for (const int core : cores) {
    if (!std::binary_search(available.begin(), available.end(), core)) {
      throw Misuse(format_text("--cores '{}': core {} is not among those this command may use ({})",
                               text, core, format_cores(available)));
    }
  }
  return cores;
}

Cores in_machine_order(Cores cores, const Json& machine) {
  auto end = cores.begin();  // of those that have their place
  for (const Json& core : machine.at("cores").at("order")) {
    const auto found = std::find(end, cores.end(), core.get<int>());
    if (found != cores.end()) std::rotate(end++, found, found + 1);
  }
  return cores;
}

Cores share_of(const Cores& cores, int index, int workers) {
  const int count = static_cast<int>(cores.size());
  if (count == 0) return {};
  if (count < workers) return {cores[static_cast<size_t>(index % count)]};
  Cores share(cores.begin() + index * count / workers,
              cores.begin() + (index + 1) * count / workers);
  std::sort(share.begin(), share.end());
  return share;
}

std::string format_cores(const Cores& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size(); i++) {
    const size_t first = i;
    while (i + 1 < cores.size() && cores[i + 1] == cores[i] + 1) i++;
    if (!text.empty()) text += ',';
    text += first == i ? format_text("{}", cores[i]) : format_text("{}-{}", cores[first], cores[i]);
  }
  return text;
}

bool bind_to(const Cores& cores) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/save.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <ostream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr std::array kFiles = {"rank0.safetensors", "rank1.safetensors"};
constexpr int64_t kCount = 100;

void write_rank(Folder& folder, std::string_view name, int value) {
  const std::vector<int32_t> values(kCount, value);
  Writer writer(folder, name, {{"a", Dtype::i32, {kCount}}, {"b", Dtype::i32, {kCount}}}, {});
  const auto bytes = std::as_bytes(std::span(values));
  writer.write(1, 0, bytes);
  writer.write(0, 0, bytes.first(40));
  writer.write(0, 40, bytes.subspan(40));
  writer.finish();
}

std::optional<int64_t> age_of(const Folder& parent, const std::string& tag) {
  const Folder folder = open_checkpoint(parent, tag);
  return std::stoll(tag.substr(1));
}

bool is_one_of(const Scenario& scenario, const std::string& tag, int value) {
  const auto is = [&](const Save& save) { return save.tag == tag && save.value == value; };
  return is(scenario.after) || std::ranges::any_of(scenario.before, is);
}

// What is wrong with all that can be seen.
std::string fault_of_view(const std::string& path, const Scenario& scenario) {
  const Folder parent = Folder::open(quick_files(), path);
  for (const std::string& tag : tags(parent)) {
    const int value = load(quick_files(), path, tag);
    if (!is_one_of(scenario, tag, value)) return format_text("{} holds {}", tag, value);
  }
  const std::optional<std::string> latest = read_latest(parent);
  if (!latest) return scenario.before.empty() ? "" : "there is no latest";
  const int value = load(quick_files(), path, *latest);
  const bool is_known = value == scenario.after.value ||
                        (!scenario.before.empty() && value == scenario.before.back().value);
  return is_known ? "" : format_text("latest is {}, which holds {}", *latest, value);
}

std::string fault_of_names(const std::string& path) {
  const Folder parent = Folder::open(quick_files(), path);
  std::vector<std::string> names = parent.names();
  std::erase_if(names, [](const std::string& name) {
    return name == kLockName || name == kLatestName || name[0] == 's';
  });
  return names.empty() ? "" : format_text("{} is left", names.front());
}

}  // namespace

void write_files(Folder& folder, int value) {
  for (const char* name : kFiles) write_rank(folder, name, value);
}

void save(Files& files, const std::string& path, const Save& what) {
  Lock lock(Folder::open(files, path));
  sweep(lock);
  Staging staging(lock, what.tag);
  write_files(staging.folder(), what.value);
  staging.commit(what.replace);
  set_latest(lock, what.tag);
  keep_last(lock, 2, [&](const std::string& tag) { return age_of(lock.folder(), tag); });
}

int load(Files& files, const std::string& path, const std::string& tag) {
  const Folder folder = open_checkpoint(Folder::open(files, path), tag);
  std::optional<int> value;
  for (const char* name : kFiles) {
    const Reader reader(folder, name);
    for (const char* tensor : {"a", "b"}) {
      const std::string text = read_tensor(reader, tensor);
      for (size_t at = 0; at < text.size(); at += sizeof(int32_t)) {
        int32_t number = 0;
        std::memcpy(&number, text.data() + at, sizeof number);
        if (value && *value != number) {
          fail(OTR_E_CORRUPT, "{}: {} holds {} and {}", tag, name, *value, number);
        }
        value = number;
      }
    }
  }
  return *value;
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"first", {}, {"s1", 10}},
      {"third", {{"s1", 10}, {"s2", 20}}, {"s3", 30}},
      {"replaced", {{"s1", 10}}, {"s1", 11, true}},
  };
  return all;
}

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

void prepare(const std::string& path, const Scenario& scenario) {
  for (const Save& one : scenario.before) save(quick_files(), path, one);
}

std::string fault_after(const std::string& path, const Scenario& scenario) try {
  std::string fault = fault_of_view(path, scenario);
  if (!fault.empty()) return fault;
  {
    Lock lock(Folder::open(quick_files(), path));
    sweep(lock);
  }
  fault = fault_of_names(path);
  if (fault.empty()) fault = fault_of_view(path, scenario);
  return fault.empty() ? fault : fault + " after the sweep";
} catch (const Error& error) {
  return error.what();
}

}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/directory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/manifest.h"

namespace outrigger::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kOld = ".old-";
constexpr size_t kMaxTag = 200;
constexpr std::string_view kLatestRule =
    "it is to be a text with the tag of a checkpoint beside it. Remove it: a checkpoint loads by "
    "its "
    "tag without it, and the next save writes it";

std::string old_name(std::string_view tag) { return std::string(kOld) + std::string(tag); }

bool is_tag(std::string_view tag) {
  const auto is_bad = [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '/';
  };
  return !tag.empty() && tag.size() <= kMaxTag && tag[0] != '.' && tag != kLatestName &&
         is_utf8(tag) && std::ranges::none_of(tag, is_bad);
}

// A name that is free: only the holder of the lock takes such names, and another process of this
// number may have left some.
std::string temporary_name(const Folder& parent, std::string_view tag) {
  for (int64_t i = 0;; ++i) {
    std::string name = format_text("{}{}-{}-{}", kTemporary, tag, getpid(), i);
    if (!parent.has(name)) return name;
  }
}

// The name of a complete checkpoint's folder, if there is one.
std::optional<std::string> find_checkpoint(const Folder& parent, std::string_view tag) {
  // Twice: between two looks a replacement may have ended.
  for (int look = 0; look < 2; ++look) {
    if (parent.has_folder(tag)) return std::string(tag);
    if (parent.has_folder(old_name(tag))) return old_name(tag);
  }
  return std::nullopt;
}

// What is removed must not be seen half removed.
void remove_checkpoint(Folder& parent, const std::string& tag) {
  const std::string name = temporary_name(parent, tag);
  parent.rename(tag, name);
  parent.sync();
  parent.remove_all(name);
}

std::optional<File> find_latest(const Folder& parent) {
  try {
    return parent.find_file(kLatestName);
  } catch (const Error& error) {
    if (error.status() != OTR_E_CORRUPT) throw;
    fail(OTR_E_CORRUPT, "{}: {}", error.what(), kLatestRule);
  }
}

bool is_own_name(std::string_view name) {
  if (name == kManifestName || name == kIndexName) return true;
  const size_t digit = name.find_first_of("0123456789");
  int64_t rank = 0;
  if (digit == name.npos) return false;
  std::from_chars(name.data() + digit, name.data() + name.size(), rank);
  return name == rank_file(rank);
}

// .old-<tag>, which <tag> has replaced. What a user has put into it stays.
void remove_replaced(Folder& parent, std::string_view tag) {
  const std::string old = old_name(tag);
  if (parent.has_folder(old) && parent.has_folder(tag)) {
    Folder to = parent.open_folder(tag);
    bool moved = false;
    for (const std::string& name : parent.open_folder(old).names()) {
      if (is_own_name(name) || to.has(name)) continue;
      parent.move_between(old, tag, name);
      moved = true;
    }
    if (moved) to.sync();
  }
  parent.remove_all(old);
}

// For what a later sweep does as well.
template <typename Call>
void try_to(const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception&) {
    // the failure that led here is the one to report
  }
}

}  // namespace

void require_tag(std::string_view tag) {
  if (is_tag(tag)) return;
  fail(OTR_E_ARGUMENT,
       "'{}' is no tag of a checkpoint: 1 to {} bytes of UTF-8 without '/', spaces and control "
       "characters, no dot in front, and not \"{}\"",
       printable(tag, 300), kMaxTag, kLatestName);
}

Folder open_checkpoint(const Folder& parent, std::string_view tag) {
  require_tag(tag);
  const std::optional<std::string> name = find_checkpoint(parent, tag);
  if (!name) fail(OTR_E_NOT_FOUND, "{}: there is no such checkpoint", parent.path_of(tag));
  return parent.open_folder(*name);
}

std::vector<std::string> tags(const Folder& parent) {
  std::vector<std::string> found;
  for (const std::string& name : parent.names()) {
    const std::string tag = name.starts_with(kOld) ? name.substr(kOld.size()) : name;
    if (is_tag(tag) && parent.has_folder(name)) found.push_back(tag);
  }
  std::ranges::sort(found);
  const auto rest = std::ranges::unique(found);
  found.erase(rest.begin(), rest.end());
  return found;
}

std::optional<std::string> read_latest(const Folder& parent) {
  const std::optional<File> file = find_latest(parent);
  if (!file) return std::nullopt;
  const int64_t bytes = file->size();
  if (bytes > static_cast<int64_t>(kMaxTag) + 2) {
    fail(OTR_E_CORRUPT, "{}: {} bytes are no tag of a checkpoint: {}", file->path(), bytes,
         kLatestRule);
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  text.resize(text.find_last_not_of(" \r\n") + 1);  // others write it without a newline
  if (!is_tag(text)) {
    fail(OTR_E_CORRUPT, "{}: '{}' is no tag of a checkpoint: {}", file->path(), printable(text),
         kLatestRule);
  }
  return text;
}

std::string tag_or_latest(const Folder& parent, const std::string& tag) {
  if (!tag.empty()) return tag;
  for (std::optional<std::string> before;;) {
    const std::optional<std::string> latest = read_latest(parent);
    if (!latest) {
      fail(OTR_E_NOT_FOUND, "{}: there is no checkpoint: no file names the latest", parent.path());
    }
    const std::optional<std::string> name = find_checkpoint(parent, *latest);
    if (name && parent.open_folder(*name).has(kManifestName)) return *latest;
    if (latest == before) {  // else a save named another one meanwhile, and removed this one
      fail(
          OTR_E_CORRUPT,
          "{}: there is no whole checkpoint '{}', which it names: bring that back, or load another "
          "one by its tag",
          parent.path_of(kLatestName), *latest);
    }
    before = latest;
  }
}

Folder open_to_write(Files& files, const std::string& path, std::string_view tag) {
  require_tag(tag);
  Folder folder = Folder::open(files, path);
  static_cast<void>(read_latest(folder));
  return folder;
}

// ---- Staging ------------------------------------------------------------------------------------

Staging::Staging(Lock& lock, std::string tag) : lock_(&lock), tag_(std::move(tag)) {
  require_tag(tag_);
  Folder& parent = lock.folder();
  name_ = temporary_name(parent, tag_);
  parent.make_folder(name_);
  try {
    folder_.emplace(parent.open_folder(name_));
  } catch (...) {
    try_to([&] { parent.remove_all(name_); });
    throw;
  }
}

Staging::~Staging() {
  if (ours_) try_to([&] { lock_->folder().remove_all(name_); });
}

void require_free(const Folder& parent, std::string_view tag, bool replace) {
  if (!parent.has(tag)) return;
  const std::string path = parent.path_of(tag);
  if (!parent.has_folder(tag)) {
    fail(OTR_E_DUPLICATE, "{}: something else than a folder has the checkpoint's name", path);
  }
  if (replace) return;
  const bool checkpoint = parent.open_folder(tag).has(kManifestName);
  fail(OTR_E_DUPLICATE, "{}: there is such a {}", path, checkpoint ? "checkpoint" : "folder");
}

// At every instant one of <tag> and .old-<tag> is complete and durable, if there was one before.
void Staging::commit(bool replace) {
  if (!ours_) fail(OTR_E_STATE, "checkpoint {} was committed before", tag_);
  Folder& parent = lock_->folder();
  const std::string old = old_name(tag_);
  const bool taken = parent.has(tag_), kept = parent.has(old);
  if (kept && !replace) {
    fail(OTR_E_DUPLICATE, "{}: there is such a checkpoint", parent.path_of(tag_));
  }
  require_free(parent, tag_, replace);
  folder_->sync();
  if (taken && kept) {
    parent.sync();  // the name that made the old one superfluous
    remove_replaced(parent, tag_);
  }
  if (taken) parent.rename(tag_, old);
  try {
    parent.rename(name_, tag_);
  } catch (...) {
    if (taken) try_to([&] { parent.rename(old, tag_); });
    throw;
  }
  ours_ = false;
  parent.sync();
  if (taken || kept) try_to([&] { remove_replaced(parent, tag_); });
}

std::vector<std::string> sweep(Lock& lock) {
  Folder& parent = lock.folder();
  std::vector<std::string> found = parent.names();
  std::erase_if(found, [](const std::string& name) {
    return !name.starts_with(kTemporary) && !name.starts_with(kOld);
  });
  for (const std::string& name : found) {
    const std::string tag = name.starts_with(kOld) ? name.substr(kOld.size()) : "";
    if (is_tag(tag) && !parent.has(tag)) {
      parent.rename(name, tag);
    } else {
      // a replaced one goes only once the name of the new one is durable
      if (!tag.empty()) parent.sync();
      if (is_tag(tag)) {
        remove_replaced(parent, tag);
      } else {
        parent.remove_all(name);
      }
    }
  }
  if (!found.empty()) parent.sync();
  return found;
}

void set_latest(Lock& lock, std::string_view tag) {
  Folder& parent = lock.folder();
  require_tag(tag);
  if (!find_checkpoint(parent, tag)) {
    fail(OTR_E_NOT_FOUND, "{}: there is no such checkpoint", parent.path_of(tag));
  }
  const std::string name = temporary_name(parent, kLatestName), text = std::string(tag) + '\n';
  try {
    parent.write_text(name, text);
    parent.rename(name, kLatestName);
  } catch (...) {
    try_to([&] { parent.remove_all(name); });
    throw;
  }
  parent.sync();
}

std::vector<std::string> keep_last(Lock& lock, size_t count, const Age& age) {
  Folder& parent = lock.folder();
  const std::optional<std::string> latest = read_latest(parent);
  std::vector<std::pair<int64_t, std::string>> known;
  for (const std::string& tag : tags(parent)) {
    const std::optional<int64_t> step = parent.has_folder(tag) ? age(tag) : std::nullopt;
    if (step) known.emplace_back(*step, tag);
  }
  std::ranges::sort(known, std::ranges::greater());
  std::vector<std::string> removed;
  for (size_t i = count; i < known.size(); ++i) {
    const std::string& tag = known[i].second;
    if (tag == latest) continue;
    remove_checkpoint(parent, tag);
    removed.push_back(tag);
  }
  return removed;
}

}  // namespace outrigger::checkpoint

// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints. Each is a folder with its tag as name; `latest` is a text with the tag
// of one. A checkpoint appears as a whole: whenever a process or the machine ends, the ones that
// were complete are found, and nothing else is. What else lies there begins with a dot:
//   .lock           who may write                 .tmp-<tag>-…  not complete, or on its way out
//   .old-<tag>      the complete checkpoint <tag>, while a new one takes its name
// Whoever changes something holds the lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/lock.h"

namespace outrigger::checkpoint {

inline constexpr std::string_view kLatestName = "latest";

// Throws OTR_E_ARGUMENT: a tag is a plain name of at most 200 bytes of UTF-8 without spaces and
// control characters; it does not begin with a dot and is not "latest".
void require_tag(std::string_view tag);

// ---- Reading: without the lock ------------------------------------------------------------------

// Throws OTR_E_NOT_FOUND.
[[nodiscard]] Folder open_checkpoint(const Folder& parent, std::string_view tag);
// Of all complete checkpoints, sorted as texts.
[[nodiscard]] std::vector<std::string> tags(const Folder& parent);
// Nothing where there is no `latest`; OTR_E_CORRUPT where it is no file, or holds no tag.
[[nodiscard]] std::optional<std::string> read_latest(const Folder& parent);
// The tag, or where it is empty the latest. Throws OTR_E_NOT_FOUND where there is none;
// OTR_E_CORRUPT where there should be one: as read_latest, and of a tag that is not there.
[[nodiscard]] std::string tag_or_latest(const Folder& parent, const std::string& tag);

// ---- Writing ------------------------------------------------------------------------------------

// The folder of a writer, who is about to lock it. Throws what is known before anything is written:
// as require_tag and read_latest.
[[nodiscard]] Folder open_to_write(Files& files, const std::string& path, std::string_view tag);

// What a commit would refuse; before everything is written, this costs nobody the work. Throws
// OTR_E_DUPLICATE.
void require_free(const Folder& parent, std::string_view tag, bool replace);

// A checkpoint that is being written, in a folder of its own beside the others. Without a commit
// all of it is removed.
class Staging {
 public:
  // The lock is kept by reference.
  Staging(Lock& lock, std::string tag);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // Flat: each file in it is durable before the commit, Writer::finish sees to that.
  [[nodiscard]] Folder& folder() { return *folder_; }
  // By which other ranks find it in the parent.
  [[nodiscard]] const std::string& name() const { return name_; }

  // Makes it durable under its tag. OTR_E_DUPLICATE where there is something, unless it is a folder
  // and to be replaced: what in that is not a checkpoint's own goes over to the new one, but for
  // names that this has, too. After any other failure the checkpoint may be there or not, and what
  // was there before is there unless the new one is.
  void commit(bool replace = false);

 private:
  Lock* lock_;
  std::string tag_, name_;
  std::optional<Folder> folder_;
  bool ours_ = true;  // `name_` is to be removed
};

// Removes what writers left that ended before they were done, and puts back a checkpoint that was
// about to be replaced. Not while a Staging lives. Returns the names that it dealt with.
std::vector<std::string> sweep(Lock& lock);

// The checkpoint exists. Other readers see the former text or this one.
void set_latest(Lock& lock, std::string_view tag);

// How far a checkpoint's training was; nothing for one that is not known to be complete.
using Age = std::function<std::optional<int64_t>(const std::string& tag)>;
// Removes checkpoints but the `count` with the highest age, and never the one that `latest` names.
// What has no age neither counts nor is removed. Returns what it removed.
std::vector<std::string> keep_last(Lock& lock, size_t count, const Age& age);

}  // namespace outrigger::checkpoint

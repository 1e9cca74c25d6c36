// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/complete.h"

#include <random>

#include "core/base/text.h"

namespace outrigger::checkpoint {

std::string new_id() {
  std::random_device random;
  return format_text("{:08x}{:08x}", random(), random());
}

void complete(Lock& lock, Staging& staging, const std::string& tag, const Index& index,
              Manifest& manifest, bool replace) {
  Folder& folder = staging.folder();
  write_index(folder, index, manifest);
  folder.write_text(kManifestName, to_json(manifest));
  staging.commit(replace);
  set_latest(lock, tag);
}

}  // namespace outrigger::checkpoint

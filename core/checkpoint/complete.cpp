// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/complete.h"

#include <random>
#include <span>

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
  const std::string text = to_json(manifest);
  File file = folder.create_file(kManifestName);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  staging.commit(replace);
  set_latest(lock, tag);
}

}  // namespace outrigger::checkpoint

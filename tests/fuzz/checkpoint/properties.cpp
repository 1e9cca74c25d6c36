// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/checkpoint/properties.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/engine/open_checkpoint.h"
#include "tests/fuzz/checkpoint/model.h"

namespace otr_fuzz_checkpoint {
namespace {

using namespace outrigger;  // NOLINT(google-build-using-namespace)
using Json = nlohmann::ordered_json;
using otr_fuzz::MemoryFiles;

constexpr size_t kLongestMessage = 4000;
constexpr int64_t kMostRead = 700;  // elements of one parameter
constexpr int32_t kValues[] = {OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED, OTR_VALUE_EXP_AVG,
                               OTR_VALUE_EXP_AVG_SQ};

class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw Broken(format_text(text, std::forward<Args>(args)...));
}

// False: it failed, with one of the statuses and one printable line.
bool succeeds(const char* call, const std::vector<int32_t>& statuses,
              const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    const std::string text = error.what();
    require(std::ranges::find(statuses, error.status()) != statuses.end(), "{}: status {}: {}",
            call, error.status(), text);
    require(text.size() <= kLongestMessage, "{}: a message that is too long: {}", call, text);
    require(printable(text, kLongestMessage) == text, "{}: more than one line: {}", call, text);
  }
  return false;
}

// All that can be read of it, by name; floats by their bits.
using Answers = std::map<std::string, std::string>;

int64_t count_of(const Json& parameter) {
  int64_t count = 1;
  for (const Json& extent : parameter["shape"]) count *= extent.get<int64_t>();
  return count;
}

bool has_state(const Json& all, const Json& parameter, int32_t value) {
  const Json& root = all["parameters"][parameter["root"].get<size_t>()];
  if (count_of(root) == 0) return true;
  const char* const name = value == OTR_VALUE_EXP_AVG ? "exp_avg" : "exp_avg_sq";
  const Json& states = root["states"];
  return value == OTR_VALUE_MASTER || value == OTR_VALUE_PUBLISHED ||
         std::ranges::find(states, Json(name)) != states.end();
}

void read_parameter(engine::OpenCheckpoint& opened, const Json& all, const Json& parameter,
                    bool verified, Answers& answers) {
  const auto name = parameter["name"].get<std::string>();
  const auto count = std::min(kMostRead, count_of(parameter));
  for (const int32_t value : kValues) {
    std::vector<float> out(static_cast<size_t>(count));
    const bool done = succeeds("read", {OTR_E_CORRUPT, OTR_E_NOT_FOUND},
                               [&] { opened.read(name, value, 0, out); });
    if (has_state(all, parameter, value)) {
      require(done || !verified, "{} {} is verified and not read", name, value);
    } else {
      require(!done || count == 0, "{} {} is not there and read", name, value);
    }
    if (!done) continue;
    std::string& bits = answers[format_text("{}/{}", name, value)];
    bits.resize(out.size() * sizeof(float));
    if (!bits.empty()) std::memcpy(bits.data(), out.data(), bits.size());
  }
}

// What a tool does with a description.
void require_usable(const Json& all) {
  const Json& progress = all.at("progress");
  if (progress.contains("imported")) {
    if (!progress["imported"].is_null()) (void)progress["imported"].at("applied").get<int64_t>();
  } else {
    (void)progress.at("steps").at("micro").get<int64_t>();
  }
  require(all.at("parts").size() == all.at("files").size(), "parts are not by rank");
}

Answers look_at(MemoryFiles& files, Verdict& verdict) {
  const std::vector<int32_t> any{OTR_E_CORRUPT, OTR_E_NOT_FOUND, OTR_E_UNSUPPORTED};
  Answers answers;
  std::optional<engine::OpenCheckpoint> opened;
  const auto folder = checkpoint::Folder::open(files, "dir");
  verdict.opened = succeeds("open", any, [&] { opened.emplace(folder, ""); });
  if (!verdict.opened) return answers;
  std::string text;
  const bool described = succeeds("describe", any, [&] { text = opened->describe(); });
  verdict.verified = succeeds("verify", any, [&] { opened->verify(); });
  require(described || !verdict.verified, "verified and not described");
  if (!described) return answers;
  const Json all = Json::parse(text);
  require_usable(all);
  for (const Json& parameter : all["parameters"]) {
    read_parameter(*opened, all, parameter, verdict.verified, answers);
  }
  for (size_t rank = 0; rank < all["parts"].size(); ++rank) {
    for (const Json& name : all["parts"][rank]) {
      std::vector<std::byte> bytes;
      const auto part = name.get<std::string>();
      const bool done =
          succeeds("part", any, [&] { bytes = opened->part(part, static_cast<int32_t>(rank)); });
      require(done || !verdict.verified, "part {} is verified and not read", part);
      if (!done) continue;
      answers[format_text("part {} {}", rank, part)] =
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  if (verdict.verified) answers["description"] = text;
  return answers;
}

// Broken properties become a text.
Verdict checked(const std::function<void(Verdict&)>& body) {
  Verdict verdict;
  try {
    body(verdict);
  } catch (const Broken& broken) {
    verdict.broken = broken.what();
  } catch (const std::exception& error) {
    verdict.broken = format_text("an exception that is no Error: {}", error.what());
  }
  return verdict;
}

// What a load of a seed gives, and the engine that loads.
class Target {
 public:
  Target() : model_(self_comm(), Model::Kind::composed, -0.5F) {
    own_.add_folder("dir");
    model_.step();
    model_.engine().save("dir", "a", {}, own_);
    before_ = model_.values();
    for (const Bundle& seed : seeds()) {
      MemoryFiles files;
      fill(files, seed);
      std::vector<Values>& of = loaded_.emplace_back();
      for (const bool weights_only : {false, true}) {
        load(files, weights_only);
        of.push_back(model_.values());
        reset();
      }
    }
  }
  // seed: whose manifest it has; −1: of none. True: it was loaded.
  bool check(MemoryFiles& files, int64_t seed, bool weights_only) {
    const bool done = succeeds(
        "load", {OTR_E_CORRUPT, OTR_E_NOT_FOUND, OTR_E_UNSUPPORTED, OTR_E_SHAPE, OTR_E_CONFIG},
        [&] { load(files, weights_only); });
    model_.engine().check();
    const Values after = model_.values();
    if (!done) {
      require(after == before_, "a load was refused and changed something");
      return false;
    }
    if (seed >= 0) {
      require(after == loaded_[static_cast<size_t>(seed)][weights_only ? 1 : 0],
              "a load gave other values");
    }
    reset();
    return true;
  }

 private:
  void load(MemoryFiles& files, bool weights_only) {
    model_.engine().load("dir", "", {weights_only, !weights_only, {}}, files);
  }
  void reset() {
    load(own_, false);
    require(model_.values() == before_, "the engine does not come back");
  }

  MemoryFiles own_;
  Model model_;
  Values before_;
  std::vector<std::vector<Values>> loaded_;
};

const std::vector<Answers>& answers_of_seeds() {
  static const std::vector<Answers> kAll = [] {
    std::vector<Answers> all;
    for (const Bundle& seed : seeds()) {
      MemoryFiles files;
      fill(files, seed);
      Verdict verdict;
      all.push_back(look_at(files, verdict));
    }
    return all;
  }();
  return kAll;
}

void require_original(const Answers& given, const Answers& saved) {
  for (const auto& [name, bits] : given) {
    const auto found = saved.find(name);
    require(found != saved.end() && found->second == bits, "{} is not what was saved", name);
  }
}

int64_t seed_with(const std::string& manifest) {
  for (size_t i = 0; i < seeds().size(); ++i) {
    if (seeds()[i][kManifest] == manifest) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace

Verdict check_open(const Bundle& bundle) {
  return checked([&](Verdict& verdict) {
    MemoryFiles files;
    fill(files, bundle);
    std::optional<engine::OpenCheckpoint> opened;
    const std::vector<int32_t> any{OTR_E_CORRUPT, OTR_E_NOT_FOUND, OTR_E_UNSUPPORTED};
    const auto folder = checkpoint::Folder::open(files, "dir");
    verdict.opened = succeeds("open", any, [&] { opened.emplace(folder, ""); });
    verdict.verified = opened && succeeds("verify", any, [&] { opened->verify(); });
  });
}

Verdict check(const Bundle& bundle) {
  static Target target;
  return checked([&](Verdict& verdict) {
    MemoryFiles files;
    fill(files, bundle);
    const auto before = files.files();
    const int64_t seed = seed_with(bundle[kManifest]);
    const Answers answers = look_at(files, verdict);
    if (seed >= 0) require_original(answers, answers_of_seeds()[static_cast<size_t>(seed)]);
    require(files.open_descriptors() == 0, "{} descriptors are left", files.open_descriptors());
    verdict.loaded = target.check(files, seed, false);
    require(!verdict.loaded || verdict.opened, "loaded and not opened");
    target.check(files, seed, true);
    require(files.escaped().empty(), "{} was opened", files.escaped());
    require(files.files() == before, "a reader changed a file");
  });
}

}  // namespace otr_fuzz_checkpoint

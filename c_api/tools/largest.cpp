// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "changes.h"
#include "fault.h"

namespace outrigger::tools {
namespace {

constexpr int64_t kMostTensors = int64_t{1} << 16;  // more take seconds

// A model's tensors, one after the other and from the first again after the last.
class Repeated {
 public:
  explicit Repeated(const std::vector<NamedShape>& shapes) : shapes_(&shapes) {
    for (const NamedShape& p : shapes) {
      int64_t count = 1;
      for (const int64_t extent : p.shape) count *= extent;
      ends_.push_back(count + (ends_.empty() ? 0 : ends_.back()));
    }
  }
  [[nodiscard]] std::vector<NamedShape> first(int64_t tensors) const {
    std::vector<NamedShape> all;
    for (int64_t i = 0; i < tensors; ++i) {
      all.push_back((*shapes_)[static_cast<size_t>(i % size())]);
      if (i >= size()) all.back().name += '#' + std::to_string(i / size());
    }
    return all;
  }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  [[nodiscard]] int64_t whole() const { return ends_.back(); }
  [[nodiscard]] int64_t after_copies(int64_t tensors) const {
    return tensors % size() == 0 ? 0 : ends_[static_cast<size_t>(tensors % size() - 1)];
  }
  // As a double: of more tensors than fit it may be beyond 2^63.
  [[nodiscard]] double parameters(int64_t tensors) const {
    return static_cast<double>(tensors / size()) * static_cast<double>(whole()) +
           static_cast<double>(after_copies(tensors));
  }
  // With at most so many parameters.
  [[nodiscard]] int64_t tensors(double parameters) const {
    const double copies = std::floor(parameters / static_cast<double>(whole()));
    if (copies >= static_cast<double>(kMostTensors)) return kMostTensors;
    const double rest = parameters - copies * static_cast<double>(whole());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), static_cast<int64_t>(rest));
    return static_cast<int64_t>(copies) * size() + (end - ends_.begin());
  }

 private:
  const std::vector<NamedShape>* shapes_;
  std::vector<int64_t> ends_;  // parameters up to each
};

}  // namespace

Largest largest_of(const std::string& config, const std::vector<NamedShape>& shapes,
                   const Setting& setting, const Bytes& room) {
  constexpr double kExact = 1e-3;
  const Repeated all(shapes);
  if (all.size() == 0 || all.whole() == 0) return {0, 0, false};
  const auto needed = [&](int64_t tensors) -> std::optional<Bytes> {
    try {
      return Model(config, all.first(tensors), setting).needed();
    } catch (const Fault&) {  // more than 2^56 elements or 2^63 bytes
      return {};
    }
  };
  int64_t fit = 0, too_many = kMostTensors + 1;
  int64_t next = std::min(all.size(), kMostTensors);
  for (int tries = 1;; ++tries) {
    const std::optional<Bytes> bytes = needed(next);
    const bool fits = bytes && bytes->fit_in(room);
    (fits ? fit : too_many) = next;
    const double least = all.parameters(fit), most = all.parameters(too_many);
    if (too_many - fit <= 1 || most - least <= kExact * least) break;
    next = fit + (too_many - fit) / 2;
    // Bytes are nearly proportional to parameters: aim a little beyond where the room ends, so that
    // the two bounds come near each other.
    constexpr int kAimed = 12;
    if (!bytes || tries > kAimed) continue;
    const double used = std::max(
        static_cast<double>(bytes->host) / static_cast<double>(room.host),
        room.device == 0 ? 0
                         : static_cast<double>(bytes->device) / static_cast<double>(room.device));
    const double beyond = fits ? 1 + kExact / 3 : 1 - kExact / 3;
    const int64_t aimed = all.tensors((fits ? least : most) / used * beyond);
    next = std::clamp(aimed, fit + 1, too_many - 1);
  }
  return {fit / all.size() * all.whole() + all.after_copies(fit), fit, fit < kMostTensors};
}

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/assembly.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/complete.h"
#include "core/checkpoint/decoder.h"
#include "outrigger.h"

namespace outrigger::checkpoint {

using kernels::Format;

namespace {

// Of values that come as another program has them: what goes past the system's cache comes from
// front to back.
constexpr BulkFile::Sizes kAnyOrder{.direct_from = std::numeric_limits<int64_t>::max()};
constexpr int64_t kMostUpdates = int64_t{1} << 53;

void require_updates(std::optional<int64_t> updates, std::string_view of) {
  if (!updates || (*updates >= 0 && *updates <= kMostUpdates)) return;
  fail(OTR_E_ARGUMENT, "{} = {}; legal is 0 to 2^53", of, *updates);
}

}  // namespace

// A plane of a parameter's state, or a part of the host.
struct Assembly::Tensor {
  IndexRow row;
  Format format = Format::float32;
  TensorSpec spec;
  // Of what came from front to back so far; a hasher lives while its tensor is being written.
  int64_t hashed = 0;
  std::unique_ptr<Hasher> hasher;
  std::vector<uint64_t> sums;

  [[nodiscard]] int64_t bytes() const {
    if (row.parameter < 0) return row.count;
    return planes_of(format)[static_cast<size_t>(row.plane)].bytes(row.count);
  }
  void hash(int64_t offset, std::span<const std::byte> data) {
    if (offset != hashed) return;
    if (!hasher) hasher = std::make_unique<Hasher>();
    hasher->add(data);
    hashed += static_cast<int64_t>(data.size());
    if (hashed != bytes()) return;
    sums = hasher->take();
    hasher.reset();
  }
};

Assembly::Assembly(Files& files, const std::string& directory, std::string tag,
                   AssemblyOptions options)
    : tag_(std::move(tag)),
      options_(std::move(options)),
      lock_(open_to_write(files, directory, tag_)) {
  require_updates(options_.applied_steps, "applied_steps");
  sweep(lock_);
  require_free(lock_.folder(), tag_, options_.replace);
  staging_.emplace(lock_, tag_);
  manifest_.id = new_id();
  manifest_.library = OTR_VERSION_STRING;
  manifest_.configuration = "{}";
  const auto set = [&](Kept kept, std::optional<Format> format) {
    manifest_.formats.at(static_cast<size_t>(kept)) = format;
  };
  set(Kept::master, options_.weights);
  const Format seen = options_.weights == Format::split ? Format::bfloat16 : options_.weights;
  set(Kept::published, options_.published.value_or(seen));
  set(Kept::exp_avg, options_.exp_avg);
  set(Kept::exp_avg_sq, options_.exp_avg_sq);
}

Assembly::~Assembly() = default;

void Assembly::require(Stage last, const char* what) const {
  if (stage_ <= last) return;
  if (stage_ == Stage::ended) {
    fail(OTR_E_STATE,
         "{}: checkpoint {} is finished, or could not be finished: make another writer", what,
         tag_);
  }
  fail(OTR_E_STATE, "{}: checkpoint {} has values already: declare all parameters and parts first",
       what, tag_);
}

void Assembly::add(AssembledParameter p) {
  const std::lock_guard guard(mutex_);
  require(Stage::declaring, "add a parameter");
  if (p.name.empty() || !is_utf8(p.name)) {
    fail(OTR_E_ARGUMENT, "parameter \"{}\": a name is UTF-8 and not empty", printable(p.name));
  }
  if (numbers_.contains(p.name)) {
    fail(OTR_E_DUPLICATE, "parameter \"{}\" was added before", printable(p.name));
  }
  static_cast<void>(tensor::count_of(p.shape, format_text("parameter \"{}\"", printable(p.name))));
  require_updates(p.updates, format_text("updates of \"{}\"", printable(p.name)));
  const auto number = static_cast<int64_t>(manifest_.parameters.size());
  Manifest::Parameter entry{p.name, p.shape, p.trainable, number, p.group};
  if (!p.alias_of.empty()) {
    const auto found = numbers_.find(p.alias_of);
    if (found == numbers_.end()) {
      fail(OTR_E_NOT_FOUND,
           "parameter \"{}\" is to be an alias of \"{}\", which was not added before",
           printable(p.name), printable(p.alias_of));
    }
    entry.root = manifest_.parameters[static_cast<size_t>(found->second)].root;
    const Manifest::Parameter& root = manifest_.parameters[static_cast<size_t>(entry.root)];
    if (root.count() != entry.count()) {
      fail(OTR_E_SHAPE, "parameter \"{}\" has {} elements, and \"{}\", whose alias it is to be, {}",
           printable(p.name), entry.count(), printable(root.name), root.count());
    }
    entry.trainable = root.trainable;
    entry.group = root.group;
  }
  numbers_.emplace(p.name, number);
  manifest_.parameters.push_back(std::move(entry));
  declared_.push_back(std::move(p));
}

void Assembly::add_part(const std::string& name, std::vector<std::byte> bytes) {
  const std::lock_guard guard(mutex_);
  require(Stage::declaring, "add a part");
  if (!is_utf8(name)) fail(OTR_E_ARGUMENT, "part \"{}\": a name is UTF-8", printable(name));
  if (!parts_.emplace(name, std::move(bytes)).second) {
    fail(OTR_E_DUPLICATE, "part \"{}\" was added before", printable(name));
  }
}

// Lays the file out and writes its header and the host's parts.
void Assembly::begin() {
  for (size_t i = 0; i < declared_.size(); ++i) {
    const Manifest::Parameter& p = manifest_.parameters[i];
    const auto number = static_cast<int64_t>(i);
    if (p.root != number || p.count() == 0) continue;
    const auto keep = [&](Kept kept, bool has) {
      const auto format = manifest_.formats.at(static_cast<size_t>(kept));
      if (!has || !format) return;
      places_.emplace(std::pair(number, kept), tensors_.size());
      int64_t number_of_plane = 0;
      for (const Plane& plane : planes_of(*format)) {
        Tensor& t = tensors_.emplace_back();
        t.row = {0, number, static_cast<int64_t>(kept), number_of_plane++, 0, p.count(), 0};
        t.format = *format;
        t.spec = {tensor_name(p, kept, plane.suffix, 0, p.count()), plane.dtype,
                  plane.per == 1 ? p.shape : std::vector<int64_t>{plane.extent(p.count())}};
      }
    };
    keep(p.trainable ? Kept::master : Kept::published, true);
    keep(Kept::exp_avg, p.trainable && declared_[i].exp_avg);
    keep(Kept::exp_avg_sq, p.trainable && declared_[i].exp_avg_sq);
  }
  const size_t first_part = tensors_.size();
  for (const auto& [name, bytes] : parts_) {
    Tensor& t = tensors_.emplace_back();
    const auto size = static_cast<int64_t>(bytes.size());
    t.row = {0, -1, 0, 0, part_hash(name), size, 0};
    t.spec = {part_name(name), Dtype::u8, {size}};
  }
  std::vector<TensorSpec> specs;
  for (const Tensor& t : tensors_) specs.push_back(t.spec);
  writer_.emplace(staging_->folder(), rank_file(0), std::move(specs),
                  Metadata{{"checkpoint", manifest_.id}, {"rank", "0"}},
                  options_.in_order ? BulkFile::Sizes() : kAnyOrder);
  stage_ = Stage::writing;
  size_t part = first_part;
  for (const auto& [name, bytes] : parts_) put(part++, 0, bytes);
  parts_.clear();
}

size_t Assembly::place_of(const std::string& name, Kept kept) {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    fail(OTR_E_NOT_FOUND, "no parameter \"{}\" was added", printable(name));
  }
  const Manifest::Parameter& p = manifest_.parameters[static_cast<size_t>(found->second)];
  if (p.root != found->second) {
    fail(OTR_E_ARGUMENT, "\"{}\" is an alias: write \"{}\", whose values it has", printable(name),
         printable(manifest_.parameters[static_cast<size_t>(p.root)].name));
  }
  if (kept == Kept::master && !p.trainable) kept = Kept::published;
  const auto place = places_.find({found->second, kept});
  if (place == places_.end()) {
    fail(OTR_E_NOT_FOUND, "the checkpoint that is written has no {} of \"{}\"", name_of(kept),
         printable(name));
  }
  return place->second;
}

void Assembly::put(size_t place, int64_t offset, std::span<const std::byte> bytes) {
  writer_->write(place, offset, bytes);
  tensors_[place].hash(offset, bytes);
}

void Assembly::require_writing() {
  require(Stage::writing, "write values");
  if (stage_ == Stage::declaring) begin();
}

void Assembly::write_stored(const std::string& name, Kept kept, const Run& values) {
  const std::lock_guard guard(mutex_);
  require_writing();
  if (values.count == 0) return;
  const size_t place = place_of(name, kept);
  const Format format = tensors_[place].format;
  for (size_t plane = 0; plane < planes_of(format).size(); ++plane) {
    put(place + plane, 0, plane_bytes(format, plane, values));
  }
}

void Assembly::write(const std::string& name, Kept kept, int64_t first,
                     const tensor::View& values) {
  const std::lock_guard guard(mutex_);
  require_writing();
  const auto found = numbers_.find(name);
  if (found != numbers_.end() && values.count == 0 &&
      manifest_.parameters[static_cast<size_t>(found->second)].count() == 0) {
    return;
  }
  const size_t place = place_of(name, kept);
  const Tensor& t = tensors_[place];
  if (first < 0 || values.count > t.row.count || first > t.row.count - values.count) {
    fail(OTR_E_ARGUMENT,
         "parameter \"{}\" has {} elements; {} from element {} on are not among them",
         printable(name), t.row.count, values.count, first);
  }
  for (int64_t done = 0; done < values.count; done += kDecodedAtATime) {
    const int64_t n = std::min(kDecodedAtATime, values.count - done);
    scratch_.resize(static_cast<size_t>(kernels::bytes_of(n, t.format)));
    tensor::for_each_part(values, done, n, [&](const tensor::View& part, int64_t offset) {
      tensor::read(scratch_.data() + kernels::bytes_of(offset, t.format), t.format, part);
    });
    put(place, kernels::bytes_of(first + done, t.format), scratch_);
  }
}

// What is known of the training: the engine that loads it has the rest.
std::string Assembly::progress() const {
  if (!options_.progress.empty()) return options_.progress;
  nlohmann::ordered_json imported;  // null
  if (options_.applied_steps) {
    nlohmann::ordered_json others = nlohmann::ordered_json::array();
    for (size_t i = 0; i < declared_.size(); ++i) {
      const AssembledParameter& p = declared_[i];
      const bool is_root = manifest_.parameters[i].root == static_cast<int64_t>(i);
      if (is_root && p.trainable && p.updates && *p.updates != *options_.applied_steps) {
        others.push_back({p.name, *p.updates});
      }
    }
    imported = {{"applied", *options_.applied_steps}, {"other_updates", others}};
  }
  const nlohmann::ordered_json json = {{"version", 1}, {"imported", imported}};
  return json.dump();
}

Index Assembly::index() {
  Index index;
  std::optional<Reader> reader;
  for (Tensor& t : tensors_) {
    if (t.hashed != t.bytes()) {
      if (!reader) reader.emplace(staging_->folder(), rank_file(0));
      t.sums = checksums_of(*reader, reader->at(t.spec.name));  // came out of order
    }
    t.row.checksum = static_cast<int64_t>(index.checksums.size());
    index.rows.push_back(t.row);
    index.checksums.insert(index.checksums.end(), t.sums.begin(), t.sums.end());
  }
  return index;
}

void Assembly::finish() {
  const std::lock_guard guard(mutex_);
  require(Stage::writing, "finish");
  if (stage_ == Stage::declaring) begin();
  writer_->require_complete();
  stage_ = Stage::ended;
  writer_->finish();
  manifest_.file_bytes = {writer_->file_bytes()};
  manifest_.progress = progress();
  const Index all = index();
  complete(lock_, *staging_, tag_, all, manifest_, options_.replace);
}

}  // namespace outrigger::checkpoint

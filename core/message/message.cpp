// SPDX-License-Identifier: Apache-2.0
#include "core/message/message.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/text.h"
#include "core/checkpoint/checksums.h"
#include "core/message/elements.h"

namespace outrigger::message {
namespace {

using checkpoint::Entry;
using checkpoint::in_quotes;
using checkpoint::kLengthBytes;

constexpr std::string_view kWhat = "message";  // in texts
constexpr std::string_view kKey = "outrigger.message";
constexpr std::string_view kMicroBatch = "outrigger.message.micro_batch";
constexpr std::string_view kLossScale = "outrigger.message.loss_scale";
constexpr std::string_view kAccumulation = "outrigger.message.accumulation";
constexpr std::string_view kRanks = "outrigger.message.ranks";
constexpr std::string_view kUser = "user.";  // before the names of the host's attributes
constexpr std::string_view kUnsealed = "0000000000000000";
constexpr int kVersion = 1;

// What every header begins with, up to the version. No other key sorts before it.
constexpr std::string_view kOpening = R"({"__metadata__":{"outrigger.message":")";
constexpr size_t kVersionAt = static_cast<size_t>(kLengthBytes) + kOpening.size();

constexpr size_t kDigitsAt = kVersionAt + 2;  // behind "1:"

class Hash {
 public:
  Hash() {
    if (!state_) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  // Never that of an unsealed message.
  [[nodiscard]] std::string digits() const {
    return format_text("{:016x}", std::max<uint64_t>(XXH3_64bits_digest(state_.get()), 1));
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

// Of all bytes, as if it were unsealed.
std::string checksum_of(std::span<const std::byte> buffer) {
  Hash hash;
  hash.add(buffer.first(kDigitsAt));
  hash.add(std::as_bytes(std::span(kUnsealed)));
  hash.add(buffer.subspan(kDigitsAt + kUnsealed.size()));
  return hash.digits();
}

std::string_view digits_in(std::span<const std::byte> buffer) {
  return {reinterpret_cast<const char*>(buffer.data()) + kDigitsAt, kUnsealed.size()};
}

void write_digits(std::byte* buffer, std::string_view digits) {
  std::memcpy(buffer + kDigitsAt, digits.data(), digits.size());
}

// ---- Packing ------------------------------------------------------------------------------------

checkpoint::Metadata metadata_of(const Notes& notes) {
  if (notes.micro_batch < 0) {
    fail(OTR_E_ARGUMENT, "micro_batch = {}; legal is 0 or more", notes.micro_batch);
  }
  checkpoint::Metadata metadata;
  const auto add = [&](std::string_view key, std::string value) {
    metadata.emplace(std::string(key), std::move(value));
  };
  add(kKey, format_text("{}:{}", kVersion, kUnsealed));
  add(kMicroBatch, std::to_string(notes.micro_batch));
  if (const tensor::Tag& tag = notes.tag; tag.loss_scale != 0) {
    add(kLossScale, format_text("{}", tag.loss_scale));  // reads back to the same bits
    add(kAccumulation, std::to_string(tag.accumulation));
    add(kRanks, std::to_string(tag.ranks));
  }
  for (const auto& [name, text] : notes.attributes) add(std::string(kUser) + name, text);
  return metadata;
}

checkpoint::Outline outline_of(const std::vector<Tensor>& tensors, const Notes& notes) {
  std::vector<checkpoint::TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    const std::string what = "tensor " + in_quotes(tensor.name);
    require_view(tensor.view, what);
    const auto shape = shape_of(tensor.view);
    specs.push_back({tensor.name, dtype_of(tensor.view.dtype, what), {shape.begin(), shape.end()}});
  }
  return {std::move(specs), metadata_of(notes)};
}

// ---- Reading ------------------------------------------------------------------------------------

// The header's bytes, once they are known to be there and to be a message's.
std::string header_in(std::span<const std::byte> buffer) {
  uint64_t length = 0;
  if (buffer.size() >= sizeof length) std::memcpy(&length, buffer.data(), sizeof length);
  if (buffer.size() <= kDigitsAt + kUnsealed.size() ||
      std::memcmp(buffer.data() + kLengthBytes, kOpening.data(), kOpening.size()) != 0) {
    fail(OTR_E_CORRUPT, "{} bytes are no message: it begins with a length and {}", buffer.size(),
         kOpening);
  }
  const uint64_t rest = buffer.size() - kLengthBytes;
  const uint64_t least = kDigitsAt + kUnsealed.size() - kLengthBytes;
  if (length < least || length > static_cast<uint64_t>(checkpoint::kMaxHeader) || length > rest) {
    fail(OTR_E_CORRUPT, "{}: a header of {} bytes; legal is {} to {}, and {} more are there", kWhat,
         length, least, checkpoint::kMaxHeader, rest);
  }
  return {reinterpret_cast<const char*>(buffer.data()) + kLengthBytes, length};
}

void require_version(std::string_view header) {
  const std::string_view text = header.substr(kOpening.size());
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end == text.data() + text.size() || *end != ':' || version < 1) {
    fail(OTR_E_CORRUPT, "{}: its version is '{}'", kWhat, printable(text, 8));
  }
  if (version > kVersion) {
    fail(OTR_E_UNSUPPORTED, "{}: version {}; this library reads version {}", kWhat, version,
         kVersion);
  }
  // What is read here is read byte for byte: the digits have a fixed place.
  constexpr size_t kBegin = kDigitsAt - kVersionAt, kEnd = kBegin + kUnsealed.size();
  if (!text.starts_with("1:") || text.find_first_not_of("0123456789abcdef", kBegin) != kEnd ||
      text[kEnd] != '"') {
    fail(OTR_E_CORRUPT,
         "{}: '{}' is no version and checksum; legal is '1:' and {} digits of 0 to f", kWhat,
         printable(text, kEnd), kUnsealed.size());
  }
}

void require_checksum(std::span<const std::byte> buffer) {
  const std::string stored(digits_in(buffer)), right = checksum_of(buffer);
  if (stored == right) return;
  if (stored == kUnsealed) {
    fail(OTR_E_CORRUPT,
         "{}: it has no checksum: whoever fills its places calls otr_message_seal, then sends it",
         kWhat);
  }
  fail(OTR_E_CORRUPT, "{}: its checksum is {}, and its bytes have {}: it was damaged on the way",
       kWhat, printable(stored), right);
}

// The value of a key, which has to be there and be a number as a whole.
template <typename Number>
Number number_in(const checkpoint::Metadata& metadata, std::string_view key) {
  const auto found = metadata.find(std::string(key));
  const std::string text = found == metadata.end() ? "" : found->second;
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0)) {
    fail(OTR_E_CORRUPT, "{}: {} is '{}'; legal is a number of 0 or more", kWhat, key,
         printable(text));
  }
  return number;
}

// C's texts end there.
void refuse_nul(std::string_view text, std::string_view what) {
  if (text.find('\0') != std::string_view::npos) {
    fail(OTR_E_CORRUPT, "{}: {} {} has a NUL inside", kWhat, what, in_quotes(text));
  }
}

Notes notes_in(const checkpoint::Metadata& metadata) {
  Notes notes;
  notes.micro_batch = number_in<int64_t>(metadata, kMicroBatch);
  if (metadata.contains(std::string(kLossScale))) {
    notes.tag = {number_in<double>(metadata, kLossScale),
                 number_in<int32_t>(metadata, kAccumulation), number_in<int32_t>(metadata, kRanks)};
    if (!std::isfinite(notes.tag.loss_scale) || notes.tag.loss_scale == 0) {
      fail(OTR_E_CORRUPT, "{}: {} is {}; legal is a finite number above 0", kWhat, kLossScale,
           notes.tag.loss_scale);
    }
  }
  for (const auto& [key, value] : metadata) {
    if (!key.starts_with(kUser)) continue;
    refuse_nul(key, "the name");
    refuse_nul(value, "the text");
    notes.attributes.emplace(key.substr(kUser.size()), value);
  }
  return notes;
}

}  // namespace

Packed::Packed(const std::vector<Tensor>& tensors, const Notes& notes)
    : outline_(outline_of(tensors, notes)) {
  views_.reserve(tensors.size());
  for (const Tensor& tensor : tensors) views_.push_back(tensor.view);
}

void Packed::write(std::byte* buffer) const {
  for (size_t i = 0; i < views_.size(); ++i) {
    if (!overlaps(views_[i], {buffer, bytes()})) continue;
    fail(OTR_E_ARGUMENT,
         "tensor {} lies in the buffer that the message goes to: give another buffer, or leave its "
         "place free (data NULL) and fill it in there",
         in_quotes(outline_.entries[i].name));
  }
  Hash hash;
  std::memcpy(buffer, outline_.head.data(), outline_.head.size());
  hash.add({buffer, outline_.head.size()});
  bool is_whole = true;
  // Block by block, so that a block is in the cache when it is hashed.
  for (const checkpoint::TensorBlock& block : checkpoint::blocks_of(outline_)) {
    const otr_tensor& view = views_[block.tensor];
    std::byte* const place = buffer + outline_.place_of(block.tensor);
    is_whole = is_whole && view.data != nullptr;
    if (view.data == nullptr) continue;
    if (is_row_major(view)) {
      const auto* from = static_cast<const std::byte*>(view.data) + view.byte_offset;
      std::memcpy(place + block.offset, from + block.offset, static_cast<size_t>(block.bytes));
    } else if (block.offset == 0) {
      copy_row_major(view, place);
    }
    hash.add({place + block.offset, static_cast<size_t>(block.bytes)});
  }
  if (is_whole) write_digits(buffer, hash.digits());
}

Message::Message(std::span<std::byte> buffer, bool checked)
    : buffer_(buffer), table_({}, {}, 0, kWhat) {
  const std::string header = header_in(buffer);
  require_version(header);
  data_begin_ = static_cast<size_t>(kLengthBytes) + header.size();
  table_ =
      checkpoint::parse_table(header, static_cast<int64_t>(buffer.size() - data_begin_), kWhat);
  if (checked) require_checksum(buffer);
  for (const Entry& entry : entries()) {
    const std::string what = "tensor " + in_quotes(entry.name);
    refuse_nul(entry.name, "the name");
    static_cast<void>(dtype_of(entry.dtype, what));
    const size_t place = data_begin_ + static_cast<size_t>(entry.begin);
    if (entry.bytes > 0 && place % static_cast<size_t>(size_of(entry.dtype)) != 0) {
      fail(OTR_E_CORRUPT, "{}: {} of {} begins at byte {}, which is no multiple of {}", kWhat, what,
           name_of(entry.dtype), place, size_of(entry.dtype));
    }
  }
  notes_ = notes_in(table_.metadata());
}

otr_tensor Message::tensor(const Entry& entry) const {
  otr_tensor view{};
  view.data = buffer_.data() + data_begin_ + entry.begin;
  view.device = {OTR_DEVICE_CPU, 0};
  view.ndim = static_cast<int32_t>(entry.shape.size());
  view.dtype = dtype_of(entry.dtype, entry.name);
  view.shape = const_cast<int64_t*>(entry.shape.data());
  return view;
}

otr_tensor Message::tensor(std::string_view name) const {
  const Entry* entry = table_.find(name);
  if (entry != nullptr) return tensor(*entry);
  std::vector<std::string> names;
  for (const Entry& each : entries()) names.push_back(each.name);
  const std::string guess = nearest(name, names);
  fail(OTR_E_NOT_FOUND, "message has no tensor {} among its {}{}", in_quotes(name), names.size(),
       guess.empty() ? "" : "; the nearest is " + in_quotes(guess));
}

void seal(std::span<std::byte> buffer) {
  static_cast<void>(Message(buffer, false));
  write_digits(buffer.data(), checksum_of(buffer));
}

}  // namespace outrigger::message

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

std::string noise(size_t bytes, unsigned seed) {
  std::minstd_rand random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

std::string write_all(Folder& folder, std::string_view name, const std::vector<TensorSpec>& specs,
                      const Metadata& metadata = {}) {
  Writer writer(folder, name, specs, metadata);
  std::string all;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string text =
        noise(static_cast<size_t>(writer.entries()[i].bytes), static_cast<unsigned>(i));
    writer.write(i, 0, bytes_of_text(text));
    all += text;
  }
  writer.finish();
  return all;
}

TEST(SafetensorsWriter, EveryDtypeAndShapeComesBack) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  std::vector<TensorSpec> specs;
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const std::string name(name_of(dtype));
    EXPECT_EQ(dtype_named(name), dtype);
    specs.push_back({name + ".scalar", dtype, {}});
    specs.push_back({name + ".odd", dtype, {3, 5}});
    specs.push_back({name + ".empty", dtype, {2, 0, 4}});
  }
  const std::string all = write_all(folder, "f", specs);
  const Reader reader(folder, "f");
  ASSERT_EQ(reader.entries().size(), specs.size());
  size_t at = 0;
  for (const TensorSpec& spec : specs) {
    const Entry& entry = reader.at(spec.name);
    EXPECT_EQ(entry.dtype, spec.dtype);
    EXPECT_EQ(entry.shape, spec.shape);
    EXPECT_EQ(read_tensor(reader, spec.name), all.substr(at, static_cast<size_t>(entry.bytes)));
    at += static_cast<size_t>(entry.bytes);
  }
}

// Whoever maps the file finds each value at an address that its type may have.
TEST(SafetensorsWriter, ValuesAreAligned) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  for (size_t extra = 1; extra <= 16; ++extra) {
    const std::string file(extra, 'f');
    std::vector<TensorSpec> specs;
    for (int i = 0; i < kDtypes; ++i) {
      specs.push_back({std::to_string(i) + file, static_cast<Dtype>(i), {1}});
    }
    write_all(folder, file, specs);
    uint64_t length = 0;
    const std::string text = read_text(temporary / file);
    std::memcpy(&length, text.data(), sizeof length);
    EXPECT_EQ(length % 8, 0U);
    const Reader reader(folder, file);
    for (const Entry& entry : reader.entries()) {
      EXPECT_EQ(entry.begin % size_of(entry.dtype), 0) << entry.name;
    }
  }
}

TEST(SafetensorsWriter, NamesAndMetadataComeBack) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  const std::string names[] = {"",         "a.b/c", "\"quoted\"\\", std::string("zero\0", 5),
                               "\n\t\x01", "étape", "\U0001F6F6",   "__metadata",
                               "\x7F",     "dtype", "\u2028",       std::string(5000, 'n')};
  std::vector<TensorSpec> specs;
  Metadata metadata;
  for (const std::string& name : names) {
    specs.push_back({name, Dtype::bf16, {2}});
    metadata[name] = name + "!";
  }
  write_all(folder, "f", specs, metadata);
  const Reader reader(folder, "f");
  EXPECT_EQ(reader.metadata(), metadata);
  for (const std::string& name : names) EXPECT_NE(reader.find(name), nullptr);
  EXPECT_EQ(reader.find("absent"), nullptr);
  expect_error(OTR_E_NOT_FOUND, {temporary / "f", "'absent'"}, [&] { (void)reader.at("absent"); });
}

TEST(SafetensorsWriter, NothingAtAll) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  write_all(folder, "f", {});
  const Reader reader(folder, "f");
  EXPECT_TRUE(reader.entries().empty());
  EXPECT_TRUE(reader.metadata().empty());
}

TEST(SafetensorsWriter, AHundredThousandTensors) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 100000; ++i) {
    specs.push_back({format_text("model.layers.{}.weight", i), Dtype::f32, {i % 3, 2}});
  }
  Writer writer(folder, "f", specs, {});
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string text = noise(static_cast<size_t>(writer.entries()[i].bytes), 1);
    writer.write(i, 0, bytes_of_text(text));
  }
  writer.finish();
  const Reader reader(folder, "f");
  ASSERT_EQ(reader.entries().size(), specs.size());
  EXPECT_EQ(reader.at("model.layers.99998.weight").shape, (std::vector<int64_t>{2, 2}));
}

TEST(SafetensorsWriter, PiecesInAnyOrder) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  std::minstd_rand random(7);
  for (int round = 0; round < 100; ++round) {
    const std::string name = format_text("f{}", round),
                      text = noise(1 + random() % 500, static_cast<unsigned>(round));
    Writer writer(folder, name, {{"a", Dtype::u8, {static_cast<int64_t>(text.size())}}}, {});
    std::vector<size_t> cuts{0, text.size()};
    for (size_t i = random() % 8; i > 0; --i) cuts.push_back(random() % text.size());
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (round % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      EXPECT_THROW(writer.finish(), Error);
      writer.write(0, static_cast<int64_t>(cuts[i]),
                   bytes_of_text(text).subspan(cuts[i], cuts[i + 1] - cuts[i]));
      EXPECT_THROW(writer.write(0, static_cast<int64_t>(cuts[i]), bytes_of_text(text).first(1)),
                   Error);
    }
    writer.finish();
    EXPECT_EQ(read_tensor(Reader(folder, name), "a"), text);
  }
}

TEST(SafetensorsWriter, EveryByteOnce) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  Writer writer(folder, "f", {{"a", Dtype::u8, {10}}, {"b", Dtype::u8, {10}}}, {});
  const std::string ten(10, 'x');
  const auto write = [&](size_t index, int64_t offset, size_t count) {
    writer.write(index, offset, bytes_of_text(ten).first(count));
  };
  write(0, 2, 3);
  write(0, 8, 2);
  for (const auto& [offset, count] : {std::pair(0, 3), {4, 1}, {2, 3}, {4, 5}, {0, 10}, {9, 1}}) {
    expect_error(OTR_E_STATE, {"/f", "'a'", "written before"},
                 [&] { write(0, offset, static_cast<size_t>(count)); });
  }
  for (const auto& [offset, count] :
       {std::pair(int64_t{-1}, 1), {10, 1}, {5, 6}, {std::numeric_limits<int64_t>::max(), 2}}) {
    expect_error(OTR_E_ARGUMENT, {"'b' has 10 bytes"},
                 [&] { write(1, offset, static_cast<size_t>(count)); });
  }
  expect_error(OTR_E_ARGUMENT, {"tensor 2 of 2"}, [&] { write(2, 0, 1); });
  expect_error(OTR_E_STATE, {"'a' is incomplete: byte 0 of 10"}, [&] { writer.finish(); });
  write(0, 0, 2);
  expect_error(OTR_E_STATE, {"'a' is incomplete: byte 5 of 10"}, [&] { writer.finish(); });
  write(0, 5, 3);
  write(0, 10, 0);
  expect_error(OTR_E_STATE, {"'b' is incomplete: byte 0 of 10"}, [&] { writer.finish(); });
  write(1, 0, 10);
  writer.finish();
  expect_error(OTR_E_STATE, {"finished"}, [&] { writer.finish(); });
  expect_error(OTR_E_STATE, {"finished"}, [&] { write(1, 0, 0); });
}

TEST(SafetensorsWriter, RefusesWhatNoReaderTakes) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  const auto refuse = [&](std::vector<TensorSpec> specs, Metadata metadata,
                          std::initializer_list<std::string_view> words) {
    expect_error(OTR_E_ARGUMENT, words, [&] { const Writer writer(folder, "f", specs, metadata); });
    EXPECT_FALSE(folder.has("f"));
  };
  constexpr int64_t kHalf = int64_t{1} << 32;
  refuse({{"a", Dtype::u8, {-1}}}, {}, {"'a'", "[-1]"});
  refuse({{"a", Dtype::u8, {kHalf, kHalf}}}, {}, {"'a'", "2^56"});
  refuse({{"a", Dtype::u8, {kHalf, kHalf, 0}}}, {}, {"'a'", "2^56"});
  refuse({{"a", Dtype::u8, std::vector<int64_t>(65, 1)}}, {}, {"'a'", "64 extents"});
  refuse({{"a", Dtype::u8, {1}}, {"a", Dtype::u8, {1}}}, {}, {"two tensors", "'a'"});
  refuse({{"__metadata__", Dtype::u8, {1}}}, {}, {"'__metadata__'"});
  refuse({{"\xFF", Dtype::u8, {1}}}, {}, {"UTF-8"});
  refuse({}, {{"k", "\xED\xA0\x80"}}, {"metadata 'k'", "UTF-8"});
  refuse(std::vector<TensorSpec>(1, {"a", Dtype::u8, {1}}), {{"\xFF", ""}}, {"metadata", "UTF-8"});
  std::vector<TensorSpec> huge;
  for (int i = 0; i < 9; ++i) {
    huge.push_back({std::to_string(i), Dtype::f64, {int64_t{1} << 56}});
  }
  refuse(huge, {}, {"'7'", "2^62"});
  expect_error(OTR_E_DUPLICATE, {"/f"}, [&] {
    const Writer first(folder, "f", {}, {});
    const Writer second(folder, "f", {}, {});
  });
}

TEST(SafetensorsWriter, AHeaderThatIsTooLongIsRefused) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  const std::string value(static_cast<size_t>(kMaxHeader) - 30, 'x');
  expect_error(OTR_E_ARGUMENT, {"100000000"},
               [&] { const Writer writer(folder, "long", {}, {{"key", value + "xxxxxxxxxx"}}); });
  Writer writer(folder, "f", {}, {{"key", value}});
  writer.finish();
  EXPECT_EQ(Reader(folder, "f").metadata().at("key").size(), value.size());
}

}  // namespace
}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
// Folders of Hugging Face models that somebody made to harm, or made wrong: what they name is
// theirs, and a refusal leaves nothing.
#include "core/checkpoint/import.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"
#include "tests/sanitizers.h"

namespace outrigger::checkpoint::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// A file of one tensor with one element.
std::string file_with(std::string_view tensor, std::string_view dtype = "F32",
                      std::string_view data = "\1\1\xC0\x3F") {
  return file_of(format_text(R"({{"{}":{{"dtype":"{}","shape":[1],"data_offsets":[0,{}]}}}})",
                             tensor, dtype, data.size()),
                 data);
}

// a.safetensors has "v", b.safetensors "w".
struct HostileModel {
  HostileModel() {
    fs::create_directory(folder / "out");
    fs::create_directory(folder / "model");
    write("a.safetensors", file_with("v"));
    write("b.safetensors", file_with("w"));
    map(R"("v":"a.safetensors","w":"b.safetensors")");
  }
  void write(std::string_view name, std::string_view text) const { write_text(path(name), text); }
  void map(std::string_view entries) const {
    write(kIndexFile, format_text(R"({{"weight_map":{{{}}}}})", entries));
  }
  [[nodiscard]] std::string path(std::string_view name) const {
    return folder / ("model/" + std::string(name));
  }
  void import() const { import_weights(quick_files(), folder / "model", folder / "out", "x", {}); }
  void expect_refused(int32_t status, std::initializer_list<std::string_view> words) const {
    expect_error(status, words, [&] { import(); });
    for (const auto& entry : fs::directory_iterator(folder / "out")) {
      EXPECT_EQ(entry.path().filename(), ".lock");
    }
  }
  const TemporaryFolder folder;
};

TEST(HostileModelIndex, NamesPlainFilesOfItsFolder) {
  const HostileModel model;
  write_text(model.folder / "secret", file_with("v"));
  for (const std::string name : {"../secret", "/etc/passwd", "..", ".", "", "sub/a.safetensors",
                                 "a.safetensors/", "a\\u0000", "a.safetensors\\u0000"}) {
    SCOPED_TRACE(name);
    model.map(format_text(R"("v":"{}","w":"b.safetensors")", name));
    model.expect_refused(OTR_E_CORRUPT, {kIndexFile, "tensor 'v'", "is no name of a file"});
  }
  model.map(format_text(R"("v":"{}","w":"b.safetensors")", std::string(256, 'a')));
  model.expect_refused(OTR_E_CORRUPT, {kIndexFile, "tensor 'v'", "is no name of a file"});
}

TEST(HostileModelIndex, SaysExactlyWhatTheFilesHave) {
  const HostileModel model;
  struct Case {
    std::string_view map;
    std::initializer_list<std::string_view> words;
    int32_t status = OTR_E_CORRUPT;
  };
  const Case cases[] = {
      {R"("v":"c.safetensors","w":"b.safetensors")", {"c.safetensors"}, OTR_E_NOT_FOUND},
      {R"("v":"a.safetensors","w":"a.safetensors")", {"a.safetensors", "tensor 'w'"}},
      {R"("v":"b.safetensors","w":"a.safetensors")", {"a.safetensors", "tensor 'v'"}},
      {R"("v":"a.safetensors","u":"b.safetensors")", {"b.safetensors", "tensor 'w'"}},
      {R"("v":"a.safetensors","w":"b.safetensors","u":"b.safetensors")",
       {"b.safetensors", "tensor 'u'"}},
      {R"("v":"a.safetensors","v":"a.safetensors")", {kIndexFile, "\"v\"", "second time"}},
      {R"("v":1)", {kIndexFile, "weight_map.v", "a string"}},
      {R"("v":null)", {kIndexFile, "weight_map.v"}},
      {R"("v":["a.safetensors"])", {kIndexFile, "weight_map.v"}},
      {R"()", {"no tensor to import"}, OTR_E_NOT_FOUND},
      {R"("v":"model.safetensors.index.json")", {kIndexFile, "header"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.map);
    model.map(each.map);
    model.expect_refused(each.status, each.words);
  }
}

TEST(HostileModelIndex, TextThatIsNone) {
  const HostileModel model;
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("{\"weight_map\":[]}"),
        std::string("{\"weight_map\":{}"), std::string("\0", 1), std::string(100000, '['),
        std::string("{\"weight_map\":{\"\xFF\":\"a\"}}"),
        std::string("{\"weight_map\":{},\"weight_map\":{}}")}) {
    SCOPED_TRACE(text.substr(0, 40));
    model.write(kIndexFile, text);
    model.expect_refused(OTR_E_CORRUPT, {kIndexFile});
  }
  fs::resize_file(model.path(kIndexFile), (uintmax_t{1} << 28) + 1);
  model.expect_refused(OTR_E_CORRUPT, {kIndexFile, "at most"});
}

TEST(HostileModelIndex, AnyCutOfAnyFileIsRefused) {
  const HostileModel model;
  for (const std::string_view name :
       {kIndexFile, std::string_view("a.safetensors"), std::string_view("b.safetensors")}) {
    const std::string good = read_text(model.path(name));
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      SCOPED_TRACE(format_text("{} cut to {}", name, bytes));
      model.write(name, good.substr(0, bytes));
      model.expect_refused(OTR_E_CORRUPT, {name});
    }
    model.write(name, good);
  }
  EXPECT_NO_THROW(model.import());
}

TEST(HostileModelIndex, PipesAndFoldersAreRefusedAndLinksFollowed) {
  for (const std::string_view name :
       {kIndexFile, std::string_view("a.safetensors"), std::string_view("b.safetensors")}) {
    SCOPED_TRACE(name);
    const HostileModel model;
    const std::string path = model.path(name), moved = model.folder / "moved";
    fs::rename(path, moved);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    model.expect_refused(OTR_E_CORRUPT, {name, "a pipe"});
    fs::remove(path);
    fs::create_directory(path);
    model.expect_refused(OTR_E_CORRUPT, {name, "a folder"});
    fs::remove(path);
    ASSERT_EQ(symlink("nowhere", path.c_str()), 0);
    model.expect_refused(OTR_E_NOT_FOUND, {name});
    fs::remove(path);
    ASSERT_EQ(symlink(moved.c_str(), path.c_str()), 0);
    EXPECT_NO_THROW(model.import()) << "as the cache of Hugging Face has them";
  }
}

TEST(HostileModelIndex, TensorsInTwoFilesOrOfNoFloats) {
  const HostileModel model;
  model.write("b.safetensors", file_with("v"));
  model.map(R"("v":"a.safetensors","w":"b.safetensors")");
  model.expect_refused(OTR_E_CORRUPT, {"b.safetensors", "tensor 'v'"});
  model.write("b.safetensors", file_with("w", "I32"));
  model.expect_refused(OTR_E_UNSUPPORTED, {"b.safetensors", "tensor 'w' is I32"});
  model.write("b.safetensors", file_with("w", "F4", "\1"));
  model.expect_refused(OTR_E_UNSUPPORTED, {"b.safetensors", "tensor 'w'", "F4"});
  model.write("b.safetensors", file_with("", "F32"));
  model.map(R"("v":"a.safetensors","":"b.safetensors")");
  model.expect_refused(OTR_E_ARGUMENT, {"not empty"});
}

// A mixture of experts has so many. Each of two files has the same number.
TEST(HostileModelIndex, AHundredThousandTensorsAreNoTrouble) {
  constexpr int kTensors = outrigger::test::rounds(100000);
  const HostileModel model;
  std::string headers[2] = {"{", "{"}, map;
  for (int i = 0; i < kTensors; ++i) {
    std::string& header = headers[i % 2];
    const int at = i / 2 * 2;
    header += format_text(R"({}"e{}":{{"dtype":"BF16","shape":[1],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", i, at, at + 2);
    map += format_text(R"({}"e{}":"{}.safetensors")", i > 0 ? "," : "", i, i % 2 == 0 ? 'a' : 'b');
  }
  model.write("a.safetensors", file_of(headers[0] + "}", std::string(kTensors, '\1')));
  model.write("b.safetensors", file_of(headers[1] + "}", std::string(kTensors, '\2')));
  model.map(map);
  model.import();
  engine::OpenCheckpoint opened(model.folder / "out", "x");
  std::vector<float> out(1);
  for (const auto& [number, bits] :
       {std::pair(kTensors - 2, 0x01010000U), {kTensors - 1, 0x02020000U}}) {
    const std::string name = format_text("e{}", number);
    opened.read(name, OTR_VALUE_MASTER, 0, out);
    EXPECT_EQ(std::bit_cast<uint32_t>(out[0]), bits) << name;
  }
}

}  // namespace
}  // namespace outrigger::checkpoint::test

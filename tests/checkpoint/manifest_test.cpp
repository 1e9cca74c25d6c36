// SPDX-License-Identifier: Apache-2.0
// Manifests and files `latest` that somebody made to harm, or made wrong; all are sealed, so that
// the checksum does not say it first.
#include "core/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/made.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

void open_all(const TemporaryFolder& folder) {
  engine::OpenCheckpoint opened(folder.path(), "");
  opened.verify();
}

struct Lie {
  const char* what;
  std::function<void(Json&)> edit;
  std::string_view words[2];
  int32_t status = OTR_E_CORRUPT;
};

const std::vector<Lie>& lies() {
  static const std::vector<Lie> all = {
      {"format", [](Json& m) { m["format"] = "another"; }, {"format", "outrigger checkpoint"}},
      {"version 0", [](Json& m) { m["version"] = 0; }, {"version"}},
      {"version 2", [](Json& m) { m["version"] = 2; }, {"format version 2"}, OTR_E_UNSUPPORTED},
      {"version 1.0", [](Json& m) { m["version"] = 1.0; }, {"version"}},
      {"version 2^63", [](Json& m) { m["version"] = uint64_t{1} << 63; }, {"version"}},
      {"a member more", [](Json& m) { m["more"] = 1; }, {"more", "not known"}},
      {"a member less", [](Json& m) { m.erase("formats"); }, {"formats", "missing"}},
      {"no progress", [](Json& m) { m["progress"] = Json::object(); }, {"progress"}},
      {"progress of a later release", [](Json& m) { m["progress"]["version"] = 2; }, {"progress"}},
      {"progress without steps", [](Json& m) { m["progress"] = {{"version", 1}}; }, {"steps"}},
      {"updates", [](Json& m) { m["progress"]["imported"]["applied"] = -1; }, {"applied"}},
      {"other updates",
       [](Json& m) { m["progress"]["imported"]["other_updates"] = {{"w"}}; },
       {"other_updates"}},
      {"no files", [](Json& m) { m["files"] = Json::array(); }, {"files"}},
      {"a file of another folder",
       [](Json& m) { m["files"][1]["name"] = "../b/rank-00001"; },
       {"files[1].name"}},
      {"one file twice", [](Json& m) { m["files"][1] = m["files"][0]; }, {"files[1].name"}},
      {"a file's size",
       [](Json& m) { m["files"][1]["bytes"] = 3; },
       {"rank-00001.safetensors", "the manifest says 3"}},
      {"a negative size", [](Json& m) { m["files"][1]["bytes"] = -1; }, {"files[1].bytes"}},
      {"a size of 2^63",
       [](Json& m) { m["files"][0]["bytes"] = uint64_t{1} << 63; },
       {"files[0].bytes"}},
      {"a file more",
       [](Json& m) { m["files"].push_back({{"name", "rank-00002.safetensors"}, {"bytes", 8}}); },
       {"rank-00002.safetensors"},
       OTR_E_NOT_FOUND},
      {"a file less", [](Json& m) { m["files"].erase(1); }, {"index", "names no file"}},
      {"another index", [](Json& m) { m["index"]["name"] = "/etc/passwd"; }, {"index.name"}},
      {"an index of 2^62 bytes",
       [](Json& m) { m["index"]["bytes"] = int64_t{1} << 62; },
       {"index.safetensors", "bytes"}},
      {"a hash of capitals",
       [](Json& m) { m["index"]["xxh3"] = "00112233AABBCCDD"; },
       {"index.xxh3"}},
      {"a short hash", [](Json& m) { m["index"]["xxh3"] = "0"; }, {"index.xxh3"}},
      {"another hash",
       [](Json& m) { m["index"]["xxh3"] = "0011223344556677"; },
       {"index.safetensors", "checksum"}},
      {"a format that is none",
       [](Json& m) { m["formats"]["master"] = "float8"; },
       {"formats.master"}},
      {"a state that is none",
       [](Json& m) { m["formats"]["momentum"] = "float32"; },
       {"formats.momentum"}},
      {"a larger format",
       [](Json& m) { m["formats"]["published"] = "float32"; },
       {"f/published", "60 bytes"}},
      {"a format of as many bytes",
       [](Json& m) { m["formats"]["published"] = "float16"; },
       {"f/published", "F16"}},
      {"a format of more planes",
       [](Json& m) { m["formats"]["published"] = "split"; },
       {"published of parameter \"f\"", "as a whole"}},
      {"no format", [](Json& m) { m["formats"].erase("exp_avg"); }, {"index", "names no state"}},
      {"a name twice", [](Json& m) { m["parameters"][1]["name"] = "w"; }, {"two parameters", "w"}},
      {"an alias of a later one",
       [](Json& m) { m["parameters"][0]["root"] = 2; },
       {"parameters[0].root"}},
      {"an alias of itself and none",
       [](Json& m) { m["parameters"][2]["root"] = -1; },
       {"parameters[2].root"}},
      {"an alias of an alias",
       [](Json& m) {
         m["parameters"].push_back(m["parameters"][2]);
         m["parameters"][3]["name"] = "u";
         m["parameters"][3]["root"] = 2;
       },
       {"parameters[3]", "alias"}},
      {"an alias of another size",
       [](Json& m) { m["parameters"][2]["shape"] = {601}; },
       {"parameters[2]", "alias"}},
      {"a root that was an alias",
       [](Json& m) { m["parameters"][2]["root"] = 2; },
       {"master of parameter \"t\"", "not there"}},
      {"a negative extent",
       [](Json& m) { m["parameters"][0]["shape"] = {-600}; },
       {"parameters[0].shape[0]"}},
      {"a shape that overflows",
       [](Json& m) { m["parameters"][0]["shape"] = {int64_t{1} << 40, int64_t{1} << 40}; },
       {"parameters[0].shape[1]", "2^56"}},
      {"zero and a shape that overflows",
       [](Json& m) { m["parameters"][0]["shape"] = {0, int64_t{1} << 40, int64_t{1} << 40}; },
       {"parameters[0].shape[2]", "2^56"}},
      {"more elements",
       [](Json& m) { m["parameters"][0]["shape"] = m["parameters"][2]["shape"] = {601}; },
       {"index", "row"}},
      {"fewer elements",
       [](Json& m) { m["parameters"][0]["shape"] = m["parameters"][2]["shape"] = {599}; },
       {"index", "row"}},
      {"frozen", [](Json& m) { m["parameters"][0]["trainable"] = false; }, {"index", "has not"}},
      {"trainable", [](Json& m) { m["parameters"][1]["trainable"] = true; }, {"index", "has not"}},
      {"another id", [](Json& m) { m["id"] = "ffffffffffffffff"; }, {"another checkpoint or rank"}},
  };
  return all;
}

TEST(HostileManifest, EveryLieIsRefusedByName) {
  for (const Lie& lie : lies()) {
    SCOPED_TRACE(lie.what);
    const TemporaryFolder folder;
    Made().write(folder.path());
    edit_manifest(folder.path(), lie.edit);
    expect_error(lie.status, {folder.path(), lie.words[0], lie.words[1]},
                 [&] { open_all(folder); });
  }
}

TEST(HostileManifest, WhatIsLegalIsTaken) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  EXPECT_EQ(fault_of_open(folder.path()), "");
  edit_manifest(folder.path(), [](Json&) {});
  EXPECT_EQ(fault_of_open(folder.path()), "") << "the seal is what the page says";
  edit_manifest(folder.path(), [](Json& m) { m["parameters"][0]["shape"] = {20, 30}; });
  EXPECT_EQ(fault_of_open(folder.path()), "") << "as many elements";
}

// What no rule on a member would find.
TEST(HostileManifest, TheSealFindsEveryOtherValue) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  const std::string path = folder / "a/manifest.json", good = read_text(path);
  for (const auto& [from, to] : {std::pair("\"applied\": 3", "\"applied\": 4"),
                                 {"\"name\": \"t\"", "\"name\": \"u\""},
                                 {"\"default\"", "\"defaulT\""},
                                 {"0.1.0", "0.1.1"},
                                 {"\"configuration\": {}", "\"configuration\": 1 "}}) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, std::string_view(from).size(), to);
    write_text(path, bad);
    expect_error(OTR_E_CORRUPT, {"manifest.json", "checksum"}, [&] { open_all(folder); });
  }
  for (const auto& bad : {good + " ", good + "\n", good.substr(0, good.size() - 1), " " + good}) {
    write_text(path, bad);
    expect_error(OTR_E_CORRUPT, {"manifest.json", "checksum"}, [&] { open_all(folder); });
  }
}

TEST(HostileManifest, TextThatIsNone) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  const std::string path = folder / "a/manifest.json";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\0{}", 3),
        std::string("{\"format\": \"outrigger checkpoint\", \"format\": 1}"),
        std::string(100000, '['), "\"" + std::string(100000, 'a'), std::string("\xFF\xFE{}"),
        std::string("{\"a\": 1e999}"), std::string("{\"a\": \"\xC0\"}")}) {
    SCOPED_TRACE(text.substr(0, 40));
    write_text(path, text);
    expect_error(OTR_E_CORRUPT, {"manifest.json"}, [&] { open_all(folder); });
  }
  // Of a size that nobody asks memory for.
  std::filesystem::resize_file(path, (uintmax_t{1} << 28) + 1);
  expect_error(OTR_E_CORRUPT, {"manifest.json", "at most"}, [&] { open_all(folder); });
}

// Each of a checkpoint's files, and `latest`, is a plain file of its folder or refused.
TEST(HostileFiles, LinksPipesAndFoldersAreRefused) {
  for (const char* name : {"latest", "a/manifest.json", "a/index.safetensors",
                           "a/rank-00000.safetensors", "a/rank-00001.safetensors"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder, other;
    Made().write(folder.path());
    const std::string path = folder / name, plain = std::filesystem::path(name).filename();
    const std::string moved = other / plain;
    std::filesystem::rename(path, moved);
    ASSERT_EQ(symlink(moved.c_str(), path.c_str()), 0);
    expect_error(OTR_E_CORRUPT, {plain, "links are not followed"}, [&] { open_all(folder); });
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    expect_error(OTR_E_CORRUPT, {plain, "a pipe"}, [&] { open_all(folder); });
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    expect_error(OTR_E_CORRUPT, {plain, "a folder"}, [&] { open_all(folder); });
  }
  const TemporaryFolder folder, other;
  Made().write(other.path());
  ASSERT_EQ(symlink((other / "a").c_str(), (folder / "a").c_str()), 0);
  write_text(folder / "latest", "a\n");
  expect_error(OTR_E_CORRUPT, {"/latest", "no whole checkpoint 'a'"}, [&] { open_all(folder); });
}

// Whatever byte is changed or missing, the file is named.
TEST(HostileFiles, AnyCutAndAnyChangedByteIsFound) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  for (const std::string name :
       {"manifest.json", "index.safetensors", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string path = folder / ("a/" + name), good = read_text(path);
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      for (const std::string& text : {bad, good.substr(0, at)}) {
        write_text(path, text);
        const std::string fault = fault_of_open(folder.path());
        ASSERT_NE(fault.find(name), std::string::npos) << name << " byte " << at << ": " << fault;
      }
    }
    write_text(path, good);
  }
  EXPECT_EQ(fault_of_open(folder.path()), "");
}

TEST(HostileLatest, IsOneTagOrRefused) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("../a"), std::string("/a"), std::string("."),
        std::string("a/../a"), std::string("a\nb\n"), std::string("a\0", 2), std::string("a b"),
        std::string(201, 'a'), "a" + std::string(300, '\n'), "a" + std::string(250, ' ') + "b",
        std::string("\xFF"), std::string(".old-a"), std::string("latest")}) {
    SCOPED_TRACE(text.substr(0, 40));
    write_text(folder / "latest", text);
    expect_error(OTR_E_CORRUPT, {"/latest"}, [&] { open_all(folder); });
  }
  std::filesystem::resize_file(folder / "latest", uintmax_t{1} << 40);
  expect_error(OTR_E_CORRUPT, {"/latest", "1099511627776 bytes"}, [&] { open_all(folder); });
  write_text(folder / "latest", "b\n");
  expect_error(OTR_E_CORRUPT, {"/latest", "'b'"}, [&] { open_all(folder); });
  write_text(folder / "latest", "a");
  EXPECT_EQ(fault_of_open(folder.path()), "");
}

}  // namespace
}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
// An index, and ranks' files, that say other things than the manifest; their checksums agree.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/made.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct IndexLie {
  const char* what;
  std::function<void(Made&)> edit;
  std::string_view words[3];
};

// Rows: w master and exp_avg of rank 0 (0, 1), f (2), part of rank 0 (3), w of rank 1 (4, 5), part
// of rank 1 (6). Each has one checksum.
const std::vector<IndexLie>& index_lies() {
  static const std::vector<IndexLie> all = {
      {"no such rank", [](Made& m) { m.index.rows[0].rank = 2; }, {"row 0", "names no file"}},
      {"a rank below 0", [](Made& m) { m.index.rows[0].rank = -1; }, {"row 0", "names no file"}},
      {"no such parameter",
       [](Made& m) { m.index.rows[1].parameter = 3; },
       {"row 1", "names no parameter"}},
      {"a parameter below −1",
       [](Made& m) { m.index.rows[1].parameter = -2; },
       {"row 1", "names no parameter"}},
      {"an alias", [](Made& m) { m.index.rows[1].parameter = 2; }, {"row 1", "has not"}},
      {"a state that is not kept",
       [](Made& m) { m.index.rows[1].kept = 2; },
       {"row 1", "names no state"}},
      {"no state", [](Made& m) { m.index.rows[1].kept = 4; }, {"row 1", "names no state"}},
      {"a state below 0", [](Made& m) { m.index.rows[1].kept = -1; }, {"row 1", "names no state"}},
      {"no plane", [](Made& m) { m.index.rows[1].plane = 1; }, {"row 1", "part of a format"}},
      {"a plane below 0", [](Made& m) { m.index.rows[1].plane = -1; }, {"row 1", "of a format"}},
      {"a run off the leaves", [](Made& m) { m.index.rows[4].first = 255; }, {"row 4", "256"}},
      {"a run beyond the end", [](Made& m) { m.index.rows[4].first = 512; }, {"row 4", "256"}},
      {"a run before the start", [](Made& m) { m.index.rows[0].first = -256; }, {"row 0", "256"}},
      {"a run from 2^63 − 256 on",
       [](Made& m) { m.index.rows[4].first = kHuge - 255; },
       {"row 4", "256"}},
      {"an empty run", [](Made& m) { m.index.rows[0].count = 0; }, {"row 0", "256"}},
      {"a negative count", [](Made& m) { m.index.rows[0].count = -1; }, {"row 0", "negative"}},
      {"a count of 2^63 − 1", [](Made& m) { m.index.rows[0].count = kHuge; }, {"row 0", "256"}},
      {"a part of 2^63 − 1 bytes",
       [](Made& m) { m.index.rows[3].count = kHuge; },
       {"row 3", "has no checksums"}},
      {"a part with a state", [](Made& m) { m.index.rows[3].kept = 1; }, {"row 3", "the host"}},
      {"a part twice", [](Made& m) { m.index.rows[6].rank = 0; }, {"row 6", "twice"}},
      {"a run twice",
       [](Made& m) { m.index.rows[4].first = 0, m.index.rows[4].count = 256; },
       {"master of parameter \"w\"", "twice", "element 0"}},
      {"overlapping runs",
       [](Made& m) { m.index.rows[0].count = 512; },
       {"master of parameter \"w\"", "twice", "element 256"}},
      {"a hole",
       [](Made& m) { m.index.rows[4].first = 512, m.index.rows[4].count = 88; },
       {"master of parameter \"w\"", "not there", "element 256"}},
      {"an end that is not there",
       [](Made& m) { m.index.rows[4].count = 256; },
       {"master of parameter \"w\"", "not there", "element 512"}},
      {"no weight",
       [](Made& m) { m.index.rows[2].parameter = -1, m.index.rows[2].kept = 0; },
       {"published of parameter \"f\"", "not there"}},
      {"a checksum beyond the last",
       [](Made& m) { m.index.rows[6].checksum = 7; },
       {"row 6", "has no checksums"}},
      {"a checksum of another row",
       [](Made& m) { m.index.rows[1].checksum = 0; },
       {"row 1", "has no checksums"}},
      {"a checksum below 0",
       [](Made& m) { m.index.rows[0].checksum = -1; },
       {"row 0", "has no checksums"}},
      {"a checksum too few",
       [](Made& m) { m.index.checksums.pop_back(); },
       {"row 6", "has no checksums"}},
      {"a checksum too many",
       [](Made& m) { m.index.checksums.push_back(1); },
       {"8 checksums", "rows have 7"}},
      {"no rows",
       [](Made& m) { m.index.rows.clear(), m.index.checksums.clear(); },
       {"master of parameter \"w\"", "not there"}},
      {"a row less",
       [](Made& m) { m.index.rows.pop_back(), m.index.checksums.pop_back(); },
       {"rank-00001.safetensors", "3 tensors", "names 2"}},
      // Ranks' files.
      {"other values",
       [](Made& m) { m.ranks[1][1].bytes[7] ^= 1; },
       {"rank-00001.safetensors", "w/exp_avg[256:600]", "checksum"}},
      {"other values of a part",
       [](Made& m) { m.ranks[1][2].bytes[7] ^= 1; },
       {"rank-00001.safetensors", "host/place", "checksum"}},
      {"another name",
       [](Made& m) { m.ranks[0][2].spec.name = "f/publishes"; },
       {"rank-00000.safetensors", "f/published", "not there"}},
      {"another range",
       [](Made& m) { m.ranks[1][0].spec.name = "w/master[256:599]"; },
       {"rank-00001.safetensors", "w/master[256:600]", "not there"}},
      {"another dtype of a size",
       [](Made& m) { m.ranks[0][2].spec.dtype = Dtype::f16; },
       {"rank-00000.safetensors", "f/published", "BF16"}},
      {"another size",
       [](Made& m) {
         m.ranks[0][2].spec.shape = {16};
         m.ranks[0][2].bytes += "xx";
       },
       {"rank-00000.safetensors", "f/published", "not there"}},
      {"a part of another name",
       [](Made& m) { m.ranks[0][3].spec.name = "host/plaice"; },
       {"rank-00000.safetensors", "parts of the host"}},
      {"a part that is none",
       [](Made& m) { m.ranks[0][3].spec.name = "hosT/place"; },
       {"rank-00000.safetensors", "parts of the host"}},
      {"a tensor more",
       [](Made& m) { m.ranks[1].push_back({{"x", Dtype::u8, {2}}, "xx"}); },
       {"rank-00001.safetensors", "4 tensors", "names 3"}},
      {"a part more",
       [](Made& m) { m.ranks[1].push_back({{"host/x", Dtype::u8, {2}}, "xx"}); },
       {"rank-00001.safetensors", "4 tensors", "names 3"}},
      {"the file of another rank",
       [](Made& m) { m.metadata[1]["rank"] = "0"; },
       {"rank-00001.safetensors", "another checkpoint or rank"}},
      {"a file of another save",
       [](Made& m) { m.metadata[0]["checkpoint"] = "0"; },
       {"rank-00000.safetensors", "another checkpoint or rank"}},
      {"no save",
       [](Made& m) { m.metadata[0].erase("checkpoint"); },
       {"rank-00000.safetensors", "another checkpoint or rank"}},
      {"no rank",
       [](Made& m) { m.metadata[0].erase("rank"); },
       {"rank-00000.safetensors", "another checkpoint or rank"}},
  };
  return all;
}

TEST(HostileIndex, EveryLieIsRefusedByName) {
  for (const IndexLie& lie : index_lies()) {
    SCOPED_TRACE(lie.what);
    const TemporaryFolder folder;
    Made made;
    lie.edit(made);
    made.write(folder.path());
    expect_error(OTR_E_CORRUPT, {folder.path(), lie.words[0], lie.words[1], lie.words[2]}, [&] {
      engine::OpenCheckpoint opened(folder.path(), "");
      opened.verify();
    });
  }
}

// As the format allows it: any file may have any run, and a parameter any name.
TEST(HostileIndex, WhatIsLegalIsTaken) {
  const TemporaryFolder folder, other;
  Made made;
  std::swap(made.index.rows[0], made.index.rows[1]);
  std::swap(made.index.rows[0].checksum, made.index.rows[1].checksum);
  std::swap(made.index.checksums[0], made.index.checksums[1]);
  made.write(folder.path());
  EXPECT_EQ(fault_of_open(folder.path()), "");
  Made host;  // "host/published" is no part of the host then
  host.manifest.parameters[1].name = "host";
  host.ranks[0][2].spec.name = "host/published";
  host.write(other.path());
  EXPECT_EQ(fault_of_open(other.path()), "");
  engine::OpenCheckpoint opened(other.path(), "");
  EXPECT_EQ(Json::parse(opened.describe())["parts"].dump(), R"([["place"],["place"]])");
}

TEST(HostileIndex, IsATableOfThoseColumns) {
  const TemporaryFolder folder;
  Made().write(folder.path());
  const std::string path = folder / "a/index.safetensors", good = read_text(path);
  const auto expect_refused = [&](const std::string& text, std::string_view word) {
    write_text(path, text);
    edit_manifest(folder.path(), [&](Json& m) {
      m["index"]["bytes"] = text.size();
      m["index"]["xxh3"] = format_text("{:016x}", XXH3_64bits(text.data(), text.size()));
    });
    expect_error(OTR_E_CORRUPT, {"index.safetensors", word},
                 [&] { engine::OpenCheckpoint opened(folder.path(), ""); });
  };
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  expect_refused(replaced("\"rows\"", "\"rowz\""), "\"rows\"");
  expect_refused(replaced("\"checksums\"", "\"checksumz\""), "\"checksums\"");
  expect_refused(replaced("I64", "U64"), "\"rows\"");
  expect_refused(replaced("[7,7]", "[49] "), "\"rows\"");
  expect_refused("", "safetensors");
  expect_refused(good + "x", "trailing bytes");
  write_text(path, good.substr(0, good.size() - 1));
  expect_error(OTR_E_CORRUPT, {"index.safetensors", "bytes; it should be"},
               [&] { engine::OpenCheckpoint opened(folder.path(), ""); });
}

// ---- All that is damaged ------------------------------------------------------------------------

std::string text_of_verify(const TemporaryFolder& folder, int32_t status) {
  engine::OpenCheckpoint opened(folder.path(), "");
  return expect_error(status, {folder.path()}, [&] { opened.verify(); });
}

TEST(Verify, TellsOfEachDamage) {
  const TemporaryFolder folder;
  Made made;
  made.ranks[0][0].bytes[3] ^= 1;
  made.ranks[0][3].bytes[0] ^= 1;
  made.ranks[1][1].bytes[5] ^= 1;
  made.write(folder.path());
  const std::string text = text_of_verify(folder, OTR_E_CORRUPT);
  for (const char* words :
       {"3 damages; the first: ", "rank-00000.safetensors: tensor 'w/master[0:256]': bytes 0 to",
        "tensor 'w/exp_avg[256:600]' of rank-00001.safetensors",
        "tensor 'host/place' of rank-00000.safetensors"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in " << text;
  }
  EXPECT_EQ(text.find("more"), std::string::npos) << text;
}

TEST(Verify, AFileThatDoesNotOpenIsOneDamage) {
  const TemporaryFolder folder;
  Made made;
  made.ranks[0][0].bytes[3] ^= 1;
  made.write(folder.path());
  std::filesystem::remove(folder / "a/rank-00001.safetensors");
  const std::string text = text_of_verify(folder, OTR_E_NOT_FOUND);
  EXPECT_NE(text.find("2 damages; the first: "), std::string::npos) << text;
  EXPECT_NE(text.find("rank-00001.safetensors: cannot open it"), std::string::npos) << text;
  EXPECT_NE(text.find("tensor 'w/master[0:256]' of rank-00000"), std::string::npos) << text;
}

TEST(Verify, NamesTwentyAndCountsTheRest) {
  for (const int damaged : {1, 2, 20, 21, 45}) {
    SCOPED_TRACE(damaged);
    const TemporaryFolder folder;
    Made made;
    for (int i = 0; i < 50; ++i) {
      const std::string name = format_text("n{:02}", i), bytes = "abc";
      made.ranks[1].push_back({{part_name(name), Dtype::u8, {3}}, bytes});
      made.index.rows.push_back(
          {1, -1, 0, 0, part_hash(name), 3, static_cast<int64_t>(made.index.checksums.size())});
      made.index.checksums.push_back(XXH3_64bits(bytes.data(), bytes.size()));
      if (i < damaged) made.ranks[1].back().bytes = "abd";
    }
    made.write(folder.path());
    const std::string text = text_of_verify(folder, OTR_E_CORRUPT);
    int named = 0;
    for (size_t at = 0; (at = text.find("host/n", at)) != std::string::npos; ++at) ++named;
    EXPECT_EQ(named, std::min(damaged, 20)) << text;
    const std::string more = damaged > 20 ? format_text("and {} more", damaged - 20) : "host/n00";
    EXPECT_NE(text.find(more), std::string::npos) << text;
    if (damaged > 1) {
      EXPECT_EQ(text.find(format_text("{} damages; ", damaged)), 0U) << text;
    } else {
      EXPECT_EQ(text.find("damages"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace outrigger::checkpoint::test

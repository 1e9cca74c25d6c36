// SPDX-License-Identifier: Apache-2.0
// `latest` that is no file with a tag: a save and a load say so before they do anything.
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "checkpoints.h"

namespace {

using namespace otr_test;

struct Oddity {
  const char* word;  // of the error
  std::function<void(const fs::path&)> make;
};

void put_text(const fs::path& path, const char* text) { std::ofstream(path) << text; }

const std::vector<Oddity>& oddities() {
  static const std::vector<Oddity> kAll{
      {"it is a folder", [](const fs::path& at) { fs::create_directories(at / "mine"); }},
      {"it is a pipe", [](const fs::path& at) { ASSERT_EQ(mkfifo(at.c_str(), 0600), 0); }},
      {"it is a link", [](const fs::path& at) { fs::create_symlink("nowhere", at); }},
      {"it is a link", [](const fs::path& at) { fs::create_symlink("other", at); }},
      {"'' is no tag", [](const fs::path& at) { put_text(at, ""); }},
      {"'' is no tag", [](const fs::path& at) { put_text(at, "\n"); }},
      {"'../a' is no tag", [](const fs::path& at) { put_text(at, "../a\n"); }},
      {"300 bytes", [](const fs::path& at) { put_text(at, std::string(300, 'x').c_str()); }},
  };
  return kAll;
}

// Names, sizes and texts of all that is in a folder.
std::map<std::string, std::string> seen_in(const Place& place) {
  std::map<std::string, std::string> seen;
  for (const auto& entry : fs::recursive_directory_iterator(place.text())) {
    std::string what = std::to_string(static_cast<int>(entry.symlink_status().type()));
    if (entry.is_symlink()) {
      what += fs::read_symlink(entry).string();
    } else if (entry.is_regular_file()) {
      std::ifstream file(entry.path(), std::ios::binary);
      what.append(std::istreambuf_iterator(file), {});
    }
    seen[entry.path().string()] = what;
  }
  return seen;
}

TEST(CheckpointLatest, WhatIsNoFileWithATagIsRefusedAtOnce) {
  for (const bool empty : {true, false}) {  // folder
    for (const Oddity& odd : oddities()) {
      SCOPED_TRACE(odd.word);
      const Place place;
      run_ranks(2, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config(kTrainings[1], {2, 2}));
        declare(engine, 1);
        if (!empty) {
          ASSERT_OK(save(engine, place, "a"));
        }
        EXPECT_OK(otr_comm_barrier(comm));
        if (rank == 0) {
          fs::remove(place / "latest");
          put_text(place / "other", "a\n");
          odd.make(place / "latest");
        }
        EXPECT_OK(otr_comm_barrier(comm));
        const auto before = seen_in(place);
        otr_save_options options;
        ASSERT_OK(otr_save_options_init(&options, sizeof options));
        for (const int32_t asynchronous : {0, 1}) {
          options.asynchronous = asynchronous;
          EXPECT_FAILS(OTR_E_CORRUPT, otr_engine_save(engine.get(), place.text(), "b", &options),
                       odd.word, "latest", "Remove it");
        }
        EXPECT_FAILS(OTR_E_CORRUPT, load(engine, place), odd.word, "latest", "Remove it");
        EXPECT_OK(otr_comm_barrier(comm));
        EXPECT_EQ(seen_in(place), before);
        EXPECT_OK(otr_comm_barrier(comm));
        if (!empty) {
          EXPECT_OK(load(engine, place, "a"));
        }
        if (rank == 0) fs::remove_all(place / "latest");
        EXPECT_OK(otr_comm_barrier(comm));
        EXPECT_OK(save(engine, place, "b"));
        EXPECT_OK(load(engine, place));
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
    }
  }
}

TEST(CheckpointLatest, WritersAndReadersWithoutAnEngineRefuseIt) {
  for (const Oddity& odd : oddities()) {
    SCOPED_TRACE(odd.word);
    const Place place;
    odd.make(place / "latest");
    const auto before = seen_in(place);
    otr_checkpoint_writer* writer = nullptr;
    EXPECT_FAILS(OTR_E_CORRUPT, otr_checkpoint_writer_create(place.text(), "a", nullptr, &writer),
                 odd.word, "latest", "Remove it");
    otr_checkpoint* opened = nullptr;
    EXPECT_FAILS(OTR_E_CORRUPT, otr_checkpoint_open(place.text(), nullptr, &opened), odd.word,
                 "latest", "Remove it");
    EXPECT_EQ(seen_in(place), before);
  }
}

// A training that was there is not taken for one that has not begun.
TEST(CheckpointLatest, ATagThatIsNotThereIsNoFreshFolder) {
  const Place place;
  Solo solo(config(kTrainings[0], {1, 0}));
  declare(solo.engine, 1);
  ASSERT_OK(save(solo.engine, place, "a"));
  fs::create_directory(place / "begun");
  otr_checkpoint* opened = nullptr;
  for (const char* tag : {"gone", "begun"}) {
    put_text(place / "latest", tag);
    EXPECT_FAILS(OTR_E_CORRUPT, otr_checkpoint_open(place.text(), nullptr, &opened), tag,
                 "bring that back");
    EXPECT_FAILS(OTR_E_CORRUPT, load(solo.engine, place), tag, "bring that back");
    EXPECT_OK(load(solo.engine, place, "a"));
  }
  EXPECT_OK(save(solo.engine, place, "b")) << "which names itself";
  EXPECT_OK(load(solo.engine, place));
}

}  // namespace

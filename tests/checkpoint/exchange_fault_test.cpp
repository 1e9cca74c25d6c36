// SPDX-License-Identifier: Apache-2.0
// An import or an export in which a call of the system fails: it says so, what was there is whole,
// and nothing else is left.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/export.h"
#include "core/checkpoint/import.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

namespace fs = std::filesystem;

std::string source_text(char last) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[300],"data_offsets":[0,1200]},)"
                             R"("b":{"dtype":"F32","shape":[2,2],"data_offsets":[1200,1216]}})";
  return file_of(header, std::string(1215, '\1') + last);
}

// Names and bytes of all files, but for the lock.
std::map<std::string, std::string> everything_in(const TemporaryFolder& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() == kLockName) continue;
    found[entry.path()] = entry.is_regular_file() ? read_text(entry.path()) : "a folder";
  }
  return found;
}

// What export_weights does of the latest checkpoint.
void export_latest(const TemporaryFolder& from, const std::string& path, Files& files,
                   const ExportOptions& options) {
  const Folder parent = from.open();
  const Folder folder = open_checkpoint(parent, tag_or_latest(parent, ""));
  const Manifest manifest = parse_manifest(read_manifest(folder), "manifest");
  Source source(open_checkpoint(parent, tag_or_latest(parent, "")), manifest);
  export_weights(source, manifest, files, path, options);
}

// Every call in turn fails once, or all from it on; -> whether the one at `call` did harm.
using Body = std::function<void(Files& files)>;
int64_t count_calls(const Body& body) {
  FaultyFiles files([](int64_t, Operation) { return 0; });
  body(files);
  return files.calls();
}

TEST(ExchangeFault, AnyCallOfAnImport) {
  const TemporaryFolder made;
  write_text(made / "1", source_text('\1'));
  write_text(made / "2", source_text('\2'));
  import_weights(quick_files(), made / "1", made.path(), "x", {});
  const int64_t calls = count_calls([&](Files& files) {
    const TemporaryFolder other;
    import_weights(files, made / "2", other.path(), "x", {});
  });
  ASSERT_GT(calls, 20);
  const auto before = everything_in(made);
  int64_t failed = 0, done = 0;
  for (const int reason : {-ENOSPC, -EIO}) {
    for (int64_t n = 0; n < calls; ++n) {
      SCOPED_TRACE(n);
      FaultyFiles files(failing_at(n, reason));
      try {
        import_weights(files, made / "2", made.path(), "y", {});
        ++done;  // a close of what was read, a look that was in vain
      } catch (const Error& error) {
        ++failed;
        EXPECT_NE(std::string(error.what()), "");
      }
      // Whatever its end, the folder has whole checkpoints only.
      {
        Lock lock(made.open());
        sweep(lock);
        if (made.open().has_folder("y")) {
          const Folder folder = open_checkpoint(made.open(), "y");
          const Manifest manifest = parse_manifest(read_manifest(folder), "manifest");
          Source source(open_checkpoint(made.open(), "y"), manifest);
          source.verify();
          lock.folder().remove_all("y");
        }
        set_latest(lock, "x");
      }
      ASSERT_EQ(everything_in(made), before);
    }
  }
  EXPECT_GT(failed, calls);
}

TEST(ExchangeFault, AnyCallOfAnExport) {
  const TemporaryFolder made, out;
  write_text(made / "1", source_text('\1'));
  import_weights(quick_files(), made / "1", made.path(), "x", {});
  for (const int64_t most : {int64_t{0}, int64_t{100}}) {
    const std::string path = most == 0 ? out / "w" : out.path();
    const ExportOptions options{kernels::Format::bfloat16, most, false};
    const int64_t calls = count_calls([&](Files& files) {
      const TemporaryFolder other;
      export_latest(made, most == 0 ? other / "w" : other.path(), files, options);
    });
    ASSERT_GT(calls, 5);
    int64_t failed = 0;
    for (const int reason : {-ENOSPC, -EIO}) {
      for (int64_t n = 0; n < calls; ++n) {
        SCOPED_TRACE(format_text("{} {}", most, n));
        FaultyFiles files(failing_at(n, reason));
        try {
          export_latest(made, path, files, options);
        } catch (const Error& error) {
          ++failed;
        }
        for (const auto& [name, text] : everything_in(out)) {
          ASSERT_EQ(name.find(".tmp"), std::string::npos) << name;
          if (!name.ends_with(".json")) {
            ASSERT_NO_THROW(Reader(File::open(posix_files(), name)));
          }
          fs::remove_all(name);
        }
      }
    }
    EXPECT_GT(failed, calls);
  }
}

// A full disk while former files are there: they stay, byte by byte.
TEST(ExchangeFault, AFullDiskLeavesTheFormerExport) {
  const TemporaryFolder made, out;
  write_text(made / "1", source_text('\1'));
  import_weights(quick_files(), made / "1", made.path(), "x", {});
  export_latest(made, out.path(), quick_files(), {kernels::Format::float32, 100, false});
  const auto before = everything_in(out);
  ASSERT_EQ(before.size(), 3U);
  for (const Operation operation : {Operation::write, Operation::sync}) {
    for (int64_t n = 0; n < 3; ++n) {
      FaultyFiles files(failing(operation, n, -ENOSPC, true));
      expect_error(OTR_E_IO, {out.path()}, [&] {
        export_latest(made, out.path(), files, {kernels::Format::float16, 100, true});
      });
      EXPECT_EQ(everything_in(out), before);
    }
  }
}

}  // namespace
}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
// A checkpoint of more files than the process may have open.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <cstring>
#include <memory>
#include <numeric>

#include "core/base/text.h"
#include "core/engine/open_checkpoint.h"
#include "outrigger.h"
#include "tests/checkpoint/made.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr int64_t kRanks = 3000, kEach = 256, kMoments = 3;  // the master among them

// Each element of each state has another value.
float value_of(int64_t element, int64_t kept) { return static_cast<float>(element * 4 + kept); }

// One parameter w, of which each rank has 256 elements.
Made of_many_ranks() {
  Made made;
  made.manifest.parameters = {{"w", {kRanks * kEach}, true, 0, "default"}};
  made.manifest.formats.fill(kernels::Format::float32);
  made.index = {};
  made.ranks.assign(kRanks, {});
  made.metadata.clear();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const int64_t first = rank * kEach;
    for (int64_t kept = 0; kept < kMoments; ++kept) {
      std::string bytes;
      for (int64_t i = 0; i < kEach; ++i) {
        const float value = value_of(first + i, kept);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      const auto sum = static_cast<int64_t>(made.index.checksums.size());
      made.index.rows.push_back({rank, 0, kept, 0, first, kEach, sum});
      made.index.checksums.push_back(XXH3_64bits(bytes.data(), bytes.size()));
      made.ranks[static_cast<size_t>(rank)].push_back(
          {{tensor_name(made.manifest.parameters[0], static_cast<Kept>(kept), "", first, kEach),
            Dtype::f32,
            {kEach}},
           std::move(bytes)});
    }
    made.metadata.push_back({{"checkpoint", made.manifest.id}, {"rank", std::to_string(rank)}});
  }
  return made;
}

// So many more descriptors may be open than are. The limit is about their numbers.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    int end = 0;
    for (; more > 0; ++end) more -= fcntl(end, F_GETFD) < 0 ? 1 : 0;
    const rlimit few{static_cast<rlim_t>(end), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class ManyFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    of_many_ranks().write(folder_->path());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  // All of a state, read by one who needs all files.
  static void expect_values(engine::OpenCheckpoint& opened, int64_t value, int64_t kept) {
    std::vector<float> out(kRanks * kEach), expected(out.size());
    opened.read("w", static_cast<int32_t>(value), 0, out);
    for (size_t i = 0; i < out.size(); ++i) expected[i] = value_of(static_cast<int64_t>(i), kept);
    EXPECT_EQ(out, expected);
  }
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(ManyFiles, AreReadAFewAtATime) {
  const FewDescriptors few(40);
  engine::OpenCheckpoint opened(folder_->path(), "");
  expect_values(opened, OTR_VALUE_MASTER, 0);
  expect_values(opened, OTR_VALUE_EXP_AVG_SQ, 2);
  opened.verify();
}

// Other ranks of the process, or its host, have the rest.
TEST_F(ManyFiles, AreReadWithFewerThanAReaderLikes) {
  const FewDescriptors few(5);
  engine::OpenCheckpoint opened(folder_->path(), "");
  expect_values(opened, OTR_VALUE_EXP_AVG, 1);
}

TEST_F(ManyFiles, ALimitThatIsTooLowIsNamed) {
  for (const int more : {1, 2}) {
    const FewDescriptors few(more);
    expect_error(OTR_E_OUT_OF_MEMORY, {"Too many open files", "RLIMIT_NOFILE (ulimit -n)"},
                 [&] { engine::OpenCheckpoint(folder_->path(), "").verify(); });
  }
}

TEST_F(ManyFiles, AnEngineLoadsThem) {
  otr_context* context = nullptr;
  otr_comm* comm = nullptr;
  otr_engine* engine = nullptr;
  ASSERT_EQ(otr_context_create(nullptr, &context), OTR_OK);
  ASSERT_EQ(otr_comm_create_self(context, &comm), OTR_OK);
  ASSERT_EQ(otr_engine_create(comm, R"({"optimizer": {"type": "AdamW", "params": {}}})", &engine),
            OTR_OK);
  std::vector<float> values(kRanks * kEach);
  int64_t shape = kRanks * kEach;
  otr_tensor tensor;
  ASSERT_EQ(otr_tensor_init(values.data(), "float32", 1, &shape, &tensor), OTR_OK);
  int64_t id = 0;
  ASSERT_EQ(otr_engine_add_parameter(engine, "w", &tensor, nullptr, &id), OTR_OK);
  ASSERT_EQ(otr_engine_commit(engine), OTR_OK);
  {
    const FewDescriptors few(40);
    EXPECT_EQ(otr_engine_load(engine, folder_->path().c_str(), nullptr, nullptr), OTR_OK)
        << otr_last_error_message();
  }
  for (const auto& [value, kept] :
       {std::pair(OTR_VALUE_MASTER, 0), {OTR_VALUE_EXP_AVG, 1}, {OTR_VALUE_EXP_AVG_SQ, 2}}) {
    ASSERT_EQ(otr_engine_parameter_read(engine, id, value, &tensor), OTR_OK);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value_of(static_cast<int64_t>(i), kept));
    }
  }
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
}

}  // namespace
}  // namespace outrigger::checkpoint::test

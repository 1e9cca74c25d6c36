// SPDX-License-Identifier: Apache-2.0
// What all tests of the public header share. Nothing here or in this folder includes anything of
// the library but outrigger.h.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "outrigger.h"

namespace otr_test {

struct Destroy {
  void operator()(otr_context* h) const { otr_context_destroy(h); }
  void operator()(otr_comm* h) const { otr_comm_destroy(h); }
  void operator()(otr_engine* h) const { otr_engine_destroy(h); }
  void operator()(otr_pass* h) const { otr_pass_destroy(h); }
  void operator()(otr_shard* h) const { otr_shard_destroy(h); }
  void operator()(otr_optimizer* h) const { otr_optimizer_destroy(h); }
};
template <typename Handle>
using Owned = std::unique_ptr<Handle, Destroy>;

// ---- Statuses and texts
// ---------------------------------------------------------------------------

// A success leaves no text.
testing::AssertionResult succeeded(int32_t status);
// A failure has the expected status, and a text of one line that has all the parts.
testing::AssertionResult failed(int32_t expected, int32_t status,
                                std::initializer_list<std::string_view> parts);

#define EXPECT_OK(call) EXPECT_TRUE(otr_test::succeeded(call))
#define ASSERT_OK(call) ASSERT_TRUE(otr_test::succeeded(call))
#define EXPECT_FAILS(expected, call, ...) \
  EXPECT_TRUE(otr_test::failed((expected), (call), {__VA_ARGS__}))

// ---- Tensors
// --------------------------------------------------------------------------------------

using Shape = std::vector<int64_t>;
using Values = std::vector<double>;

int64_t count_of(const Shape& shape);
double value_at(const otr_tensor& tensor, int64_t row_major_index);
// Rounds to nearest even in the tensor's dtype.
void set_value(const otr_tensor& tensor, int64_t row_major_index, double value);
Values values_of(const otr_tensor& tensor);
float round_to(const char* dtype, double value);

// A tensor with memory of its own. Empty strides: row-major.
class Tensor {
 public:
  Tensor(const Shape& shape, const Values& row_major, const char* dtype = "float32",
         const Shape& strides = {});
  static Tensor filled(const Shape& shape, double value, const char* dtype = "float32");

  const otr_tensor* operator&() const { return &tensor_; }  // NOLINT(google-runtime-operator)
  otr_tensor& get() { return tensor_; }
  [[nodiscard]] const otr_tensor& get() const { return tensor_; }
  [[nodiscard]] Values values() const { return values_of(tensor_); }

 private:
  Shape shape_, strides_;
  std::vector<uint64_t> memory_;
  otr_tensor tensor_;
};

// Small dyadic rationals: sums and products of a few are exact in every dtype.
Values dyadic(int64_t count, int64_t seed);

// ---- Objects
// --------------------------------------------------------------------------------------

Owned<otr_context> make_context(int32_t workers = 2, otr_interrupt_callback interrupt = nullptr,
                                void* user_data = nullptr);
Owned<otr_comm> make_self(otr_context* context);
// A rank of a group of processes.
Owned<otr_comm> make_shm(otr_context* context, const std::string& job, int32_t rank, int32_t world,
                         double timeout = 300);

// Runs body(rank, comm) for each rank of a `threads` group, each in a thread of its own. plugin:
// loaded into the group's context.
using RankBody = std::function<void(int32_t rank, otr_comm* comm)>;
void run_ranks(int32_t world, const RankBody& body, double timeout = 20,
               const char* plugin = nullptr);
void run_ranks(otr_context* context, int32_t world, const RankBody& body, double timeout = 20);

otr_param_options param_options();

// An engine and what a host keeps beside it.
class Engine {
 public:
  Engine(otr_comm* comm, const std::string& config);

  int64_t add(const char* name, const Shape& shape, const Values& values,
              const otr_param_options* options = nullptr);
  void commit() { EXPECT_OK(otr_engine_commit(get())); }
  [[nodiscard]] otr_engine* get() const { return handle_.get(); }
  otr_engine* release() { return handle_.release(); }
  void reset() { handle_.reset(); }

  [[nodiscard]] Shape shape_of(int64_t id) const;
  [[nodiscard]] Values read(int64_t id, int32_t value = OTR_VALUE_MASTER) const;
  // Master, published value and states of every parameter.
  [[nodiscard]] std::vector<Values> everything() const;

  [[nodiscard]] Owned<otr_pass> begin() const;
  otr_step_report step() const;
  otr_step_report report(double timeout = -1) const;  // of the step that was begun
  // A pass that adds these gradients, and nothing else.
  struct Gradient {
    int64_t id;
    Values values;
  };
  void pass(const std::vector<Gradient>& gradients) const;
  static void add(const Owned<otr_pass>& pass, int64_t id, const Shape& shape,
                  const Values& values);
  static void end(const Owned<otr_pass>& pass) { EXPECT_OK(otr_pass_end(pass.get())); }

 private:
  Owned<otr_engine> handle_;
};

// An engine on a group of one.
struct Solo {
  explicit Solo(const std::string& config, int32_t workers = 2)
      : context(make_context(workers)),
        comm(make_self(context.get())),
        engine(comm.get(), config) {}
  Owned<otr_context> context;
  Owned<otr_comm> comm;
  Engine engine;
};

// ---- Memory
// --------------------------------------------------------------------------------------

// Bytes that this process has, without those of files, which other processes may share; -1 if the
// kernel does not tell.
int64_t pss();
// What an engine's ledger says of a kind of device and a purpose, which are to be there.
int64_t resident_bytes(const Engine& engine, int32_t device_type, std::string_view purpose);

// ---- Configurations
// -------------------------------------------------------------------------------

// The ways an engine may work inside that a host must not notice.
struct Kind {
  const char* name;
  int32_t stage;
  const char* precision;  // "float32", "bf16" and "fp16" (float32 master), "bf16_states",
                          // "fp16_master"
  const char* order;      // "boundary", "micro_step"
};
extern const Kind kKinds[8];
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
inline std::string name_of(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

// accumulation: passes of a window; extra: more top-level members; own: more members of
// "outrigger".
std::string config_of(const Kind& kind, int32_t accumulation = 1, const std::string& extra = "",
                      const std::string& own = "");
inline const char* compute_dtype(const Kind& kind) {
  const std::string_view precision = kind.precision;
  return precision == "float32"             ? "float32"
         : precision.substr(0, 4) == "fp16" ? "float16"
                                            : "bfloat16";
}

}  // namespace otr_test

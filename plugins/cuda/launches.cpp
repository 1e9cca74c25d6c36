// SPDX-License-Identifier: Apache-2.0
// Kernels: the table's structs as arguments.h has them. A list that is longer than a launch takes
// is several launches.
#include <algorithm>
#include <array>

#include "plugins/common/work.h"
#include "plugins/cuda/device.h"

namespace outrigger::cuda {

namespace arguments = kernels::cuda;
using arguments::Kernel;
using plugins::element_of;
using plugins::fail;
using plugins::Use;

namespace {

constexpr int64_t kBlocksOfProcessor = 8;  // that it has room for, if registers suffice
constexpr int64_t kMostBlocks = INT32_MAX;

Stream launched_in(uint64_t number) {
  return reinterpret_cast<Stream>(static_cast<uintptr_t>(number == 0 ? kLegacyStream : number));
}

}  // namespace

void Device::launch(Kernel kernel, int64_t blocks, void* given, Stream stream) {
  ++launches_.value;
  const auto threads = static_cast<unsigned>(kernel == Kernel::product ? arguments::kProductThreads
                                                                       : arguments::kThreads);
  void* parameters[] = {given};
  gpu_.call(gpu_.driver.cuLaunchKernel, kernels_[kernel], static_cast<unsigned>(blocks), 1U, 1U,
            threads, 1U, 1U, 0U, stream, parameters, nullptr);
}

int64_t Device::grid_of(int64_t leaves, int64_t leaves_of_warp) const {
  return std::min(arguments::blocks_of(leaves, leaves_of_warp),
                  kBlocksOfProcessor * gpu_.multiprocessors());
}

void Device::convert(const otr_plugin_convert* list, int64_t count, uint64_t stream) {
  arguments::ConvertArguments a;
  const auto flush = [&] {
    if (a.list.leaves() > 0) {
      launch(Kernel::convert, grid_of(a.list.leaves(), arguments::kRun), &a, launched_in(stream));
    }
    a.list.count = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_convert given = element_of(list, i);
    if (given.count == 0) continue;
    const arguments::Conversion c = plugins::conversion_of(given);
    if (a.list.add(c, c.count)) continue;
    flush();
    a.list.add(c, c.count);
  }
  flush();
}

void Device::fold(const otr_plugin_fold& list, uint64_t number) {
  const otr_plugin_fold given = element_of(&list, 0);
  const Stream stream = launched_in(number);
  if (given.world < 0 || given.world > arguments::FoldArguments::kSources) {
    fail(OTR_E_UNSUPPORTED, "a sum of " + std::to_string(given.world) + " ranks; at most " +
                                std::to_string(arguments::FoldArguments::kSources) +
                                " at a time are possible on a CUDA device: divide them by hosts "
                                "or a mesh");
  }
  arguments::FoldArguments a;
  a.fold = plugins::fold_of(given);
  std::copy_n(given.sources, given.world, a.sources);
  const Kernel kernel = a.fold.accumulator_format == kernels::Format::float32 ? Kernel::fold_float32
                        : a.fold.accumulator_format == kernels::Format::bfloat16
                            ? Kernel::fold_bfloat16
                            : Kernel::fold_float16;
  a.norm = nullptr;
  Results::Block* norm = nullptr;
  if (given.sum != nullptr) {
    arguments::SumBlock* const sum = plugins::sum_of(given);
    arguments::BeginSumArguments begin{sum, given.add};
    launch(Kernel::begin_sum, 1, &begin, stream);
    a.norm = &sum->now;
  } else if (given.norm != nullptr) {
    norm = &results_.norms(stream, 1);
    norm->to[0] = given.norm;
    a.norm = norm->norms();
  }
  const int64_t leaves = (given.count + kernels::kLeaf - 1) / kernels::kLeaf;
  if (leaves > 0) launch(kernel, grid_of(leaves, 1), &a, stream);
  if (norm != nullptr) results_.deliver(*norm);
}

// The pieces of one kernel until another one's turn, or until a launch is full.
class Device::Launching {
 public:
  Launching(Device& device, otr_plugin_update_count* total, Stream stream)
      : device_(device), total_(total), stream_(stream) {}

  void add(const otr_plugin_update& given) {
    const Use use = plugins::use_of(given);
    const kernels::Update piece = plugins::update_of(given);
    if (use != use_ || list().count == arguments::Updates::kPieces) flush();
    use_ = use;
    decided_.decided = plugins::decided_of(given.decision);  // that of the whole list
    const auto at = static_cast<size_t>(list().count);
    list().add(piece, piece.count);
    if (use == Use::muon_direction) muon_.directions[at] = given.direction;
    if (use == Use::lamb_norms) norms_[at] = given.norms;
  }

  void end() {
    flush();
    if (counts_ != nullptr) device_.results_.deliver(*counts_);
  }

 private:
  // Each struct begins with its list, and only one of them is in use.
  arguments::Updates& list() {
    return use_ == Use::muon_direction   ? muon_.list
           : use_ == Use::lamb_norms     ? lamb_.list
           : decided_.decided != nullptr ? decided_.list
                                         : update_.list;
  }

  void flush() {
    if (list().count == 0) return;
    if (use_ == Use::lamb_norms) {
      flush_norms();
    } else if (list().leaves() > 0 && use_ == Use::muon_direction) {
      launch(Kernel::muon_direction, &muon_);
    } else if (list().leaves() > 0 && decided_.decided != nullptr) {
      launch(Kernel::update_decided, &decided_);
    } else if (list().leaves() > 0) {
      if (counts_ == nullptr && total_ != nullptr) {
        counts_ = &device_.results_.counts(total_, stream_);
      }
      update_.counts = counts_ == nullptr ? nullptr : counts_->counts();
      launch(Kernel::update, &update_);
    }
    list().count = 0;
  }

  void flush_norms() {
    const auto pieces = static_cast<size_t>(list().count);
    Results::Block& norms = device_.results_.norms(stream_, 2 * pieces);
    for (size_t i = 0; i < pieces; ++i) {
      norms.to[2 * i] = &norms_[i][0];
      norms.to[2 * i + 1] = &norms_[i][1];
    }
    lamb_.norms = norms.norms();
    if (list().leaves() > 0) launch(Kernel::lamb_norms, &lamb_);
    device_.results_.deliver(norms);
  }

  void launch(Kernel kernel, void* given) {
    device_.launch(kernel, device_.grid_of(list().leaves(), arguments::kRun), given, stream_);
  }

  Device& device_;
  otr_plugin_update_count* total_;
  Stream stream_;
  Use use_ = Use::update;
  arguments::UpdateArguments update_{};
  arguments::DecidedUpdateArguments decided_{};
  arguments::LambNormsArguments lamb_{};
  arguments::MuonArguments muon_{};
  std::array<otr_plugin_norm*, arguments::Updates::kPieces> norms_{};
  Results::Block* counts_ = nullptr;
};

void Device::update(const otr_plugin_update* list, int64_t count, otr_plugin_update_count* total,
                    uint64_t stream) {
  Launching launching(*this, total, launched_in(stream));
  for (int64_t i = 0; i < count; ++i) launching.add(element_of(list, i));
  launching.end();
}

void Device::product(const otr_plugin_product& list, uint64_t stream) {
  arguments::ProductArguments a;
  a.product = plugins::product_of(element_of(&list, 0));
  const int64_t tiles =
      arguments::tiles_in(a.product.rows) * arguments::tiles_in(a.product.columns);
  if (tiles > kMostBlocks) {
    fail(OTR_E_UNSUPPORTED, "a product of " + std::to_string(a.product.rows) + " × " +
                                std::to_string(a.product.columns) +
                                " elements, in more than 2^31 − 1 tiles of 64 × 64");
  }
  if (tiles > 0) launch(Kernel::product, tiles, &a, launched_in(stream));
}

void Device::decide(const otr_plugin_decide& list, uint64_t stream) {
  const otr_plugin_decide given = element_of(&list, 0);
  arguments::DecideArguments a{plugins::decide_of(given),
                               static_cast<const unsigned char*>(given.sums), OTR_PLUGIN_SUM_BYTES,
                               given.count, plugins::decided_of(given.decision)};
  launch(Kernel::decide, 1, &a, launched_in(stream));
}

}  // namespace outrigger::cuda

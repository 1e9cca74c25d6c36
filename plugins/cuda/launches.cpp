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

// Blocks of a grid for each multiprocessor, which takes them in turns: of four or five at a time,
// and of eight in a fold.
constexpr int64_t kBlocksOfProcessor = 20, kFoldBlocksOfProcessor = 16;
constexpr int64_t kMostRun = 8;
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

int64_t Device::grid_of(int64_t leaves, int64_t leaves_of_warp, int64_t of_processor) const {
  return std::min(arguments::blocks_of(leaves, leaves_of_warp),
                  of_processor * gpu_.multiprocessors());
}

// A warp looks a piece up once for a run of leaves: of a few, or there would be warps without work.
template <class List>
int64_t Device::spread(List& list) const {
  const int64_t warps = kBlocksOfProcessor * gpu_.multiprocessors() * arguments::kWarps;
  list.run = std::clamp<int64_t>(list.leaves() / warps, 1, kMostRun);
  return grid_of(list.leaves(), list.run, kBlocksOfProcessor);
}

void Device::convert(const otr_plugin_convert* list, int64_t count, uint64_t number) {
  const Stream stream = launched_in(number);
  arguments::ConvertArguments plain;
  arguments::ConvertStridedArguments strided;
  const auto flush_plain = [&] {
    if (plain.list.leaves() > 0) launch(Kernel::convert, spread(plain.list), &plain, stream);
    plain.list.count = 0;
  };
  const auto flush_strided = [&] {
    if (strided.list.leaves() > 0) {
      launch(Kernel::convert_strided, spread(strided.list), &strided, stream);
    }
    strided.list.count = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_convert given = element_of(list, i);
    if (given.count == 0) continue;
    const arguments::Conversion c = plugins::conversion_of(given);
    if (c.ndim == 0) {
      if (plain.add(c)) continue;
      flush_plain();
      plain.add(c);
    } else if (!strided.list.add(c, c.count)) {
      flush_strided();
      strided.list.add(c, c.count);
    }
  }
  flush_plain();
  flush_strided();
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
  if (leaves > 0) launch(kernel, grid_of(leaves, 1, kFoldBlocksOfProcessor), &a, stream);
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
    void* const out = use == Use::muon_direction ? given.direction : piece.published;
    if (use != use_) flush();
    use_ = use;
    decided_[0].decided = decided_[1].decided = plugins::decided_of(given.decision);  // of the list
    const size_t formed = use == Use::update && arguments::form_of(piece) >= 0 ? 1 : 0;
    if (!updates(formed).add(piece, out)) {
      flush(formed);
      updates(formed).add(piece, out);
    }
    if (use == Use::lamb_norms)
      norms_[static_cast<size_t>(lamb_.updates.list.count - 1)] = given.norms;
  }

  void end() {
    flush();
    if (counts_ != nullptr) device_.results_.deliver(*counts_);
  }

 private:
  // Those that have a form are beside the others, and only one use's are there.
  arguments::Updates& updates(size_t formed) {
    return use_ == Use::muon_direction      ? muon_.updates
           : use_ == Use::lamb_norms        ? lamb_.updates
           : decided_[0].decided != nullptr ? decided_[formed].updates
                                            : update_[formed].updates;
  }

  void flush() {
    flush(0);
    flush(1);
  }

  void flush(size_t formed) {
    auto& [common, form, list] = updates(formed);
    if (list.count == 0) return;
    if (use_ == Use::lamb_norms) {
      flush_norms();
    } else if (use_ == Use::muon_direction) {
      launch(Kernel::muon_direction, muon_, list);
    } else if (decided_[0].decided != nullptr) {
      launch(kernel_of(Kernel::update_decided, form), decided_[formed], list);
    } else {
      if (counts_ == nullptr && total_ != nullptr) {
        counts_ = &device_.results_.counts(total_, stream_);
      }
      update_[formed].counts = counts_ == nullptr ? nullptr : counts_->counts();
      launch(kernel_of(Kernel::update, form), update_[formed], list);
    }
    list.count = 0;
  }

  void flush_norms() {
    const auto pieces = static_cast<size_t>(lamb_.updates.list.count);
    Results::Block& norms = device_.results_.norms(stream_, 2 * pieces);
    for (size_t i = 0; i < pieces; ++i) {
      norms.to[2 * i] = &norms_[i][0];
      norms.to[2 * i + 1] = &norms_[i][1];
    }
    lamb_.norms = norms.norms();
    launch(Kernel::lamb_norms, lamb_, lamb_.updates.list);
    device_.results_.deliver(norms);
  }

  template <class Arguments, class List>
  void launch(Kernel kernel, Arguments& given, List& list) {
    if (list.leaves() > 0) device_.launch(kernel, device_.spread(list), &given, stream_);
  }

  Device& device_;
  otr_plugin_update_count* total_;
  Stream stream_;
  Use use_ = Use::update;
  std::array<arguments::UpdateArguments, 2> update_{};
  std::array<arguments::DecidedUpdateArguments, 2> decided_{};
  arguments::LambNormsArguments lamb_{};
  arguments::MuonArguments muon_{};
  std::array<otr_plugin_norm*, arguments::kUpdates> norms_{};
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

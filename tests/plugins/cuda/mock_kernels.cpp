// SPDX-License-Identifier: Apache-2.0
// Launches of the mock driver: the arguments as kernels.cu reads them, and each warp's leaves.
#include <functional>

#include "kernels/cuda/arguments.h"
#include "kernels/float_environment.h"
#include "mock_state.h"
#include "plugins/simulated/located.h"

namespace outrigger::cuda::mock {

namespace arguments = kernels::cuda;
using kernels::kLeaf;
using kernels::cuda::Kernel;
using plugins::Use;
using simulated::Memories;

namespace {

using Work = std::function<void()>;

template <typename Arguments>
Arguments given_as(const void* parameter) {
  return *static_cast<const Arguments*>(parameter);
}

template <typename Body>
void each_warp(int64_t warps, const Body& body) {
  const kernels::FloatEnvironment environment;
  for (int64_t warp = 0; warp < warps; ++warp) body(warp);
}

void locate(Memories& memories, arguments::Updates& list, Use use) {
  for (int64_t i = 0; i < list.count; ++i) {
    list.pieces[i] = memories.located(list.pieces[i], use);
  }
}

Work updates(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::UpdateArguments>(given);
  locate(memories, a.list, Use::update);
  if (a.counts != nullptr) a.counts = memories.writes(a.counts, sizeof *a.counts, "the counts");
  return [a, warps] {
    arguments::Scratch scratch;
    arguments::CountBlock counts;
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::update_leaf(a.list.pieces[piece], first, scratch, counts);
      });
    });
    if (a.counts == nullptr) return;
    a.counts->updates += counts.updates;
    a.counts->vanished += counts.vanished;
  };
}

Work decided_updates(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::DecidedUpdateArguments>(given);
  locate(memories, a.list, Use::update);
  a.decided = memories.writes(a.decided, sizeof *a.decided, "the decision");
  return [a, warps] {
    if (a.decided->skip != 0) return;
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::update_leaf(a.list.pieces[piece], first, scratch, a.decided->counts, *a.decided);
      });
    });
  };
}

Work begun_sum(Memories& memories, const void* given) {
  auto a = given_as<arguments::BeginSumArguments>(given);
  a.sum = memories.writes(a.sum, sizeof *a.sum, "the sum");
  return [a] { arguments::begin_sum(*a.sum, a.add != 0); };
}

Work decision(Memories& memories, const void* given) {
  auto a = given_as<arguments::DecideArguments>(given);
  a.sums = memories.reads(a.sums, static_cast<size_t>(a.count * a.stride), "the sums");
  a.out = memories.writes(a.out, sizeof *a.out, "the decision");
  return [a] {
    const kernels::FloatEnvironment environment;
    arguments::NormBlock total;
    arguments::decide(a.how, a.sums, a.stride, a.count, total, *a.out);
  };
}

Work lamb_norms(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::LambNormsArguments>(given);
  locate(memories, a.list, Use::lamb_norms);
  a.norms = memories.writes(a.norms, 2 * static_cast<size_t>(a.list.count) * sizeof *a.norms,
                            "the norms");
  return [a, warps] {
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::lamb_norms_leaf(a.list.pieces[piece], first, scratch, a.norms[2 * piece],
                                   a.norms[2 * piece + 1]);
      });
    });
  };
}

Work directions(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::MuonArguments>(given);
  locate(memories, a.list, Use::muon_direction);
  for (int64_t i = 0; i < a.list.count; ++i) {
    a.directions[i] = memories.writes(a.directions[i],
                                      static_cast<size_t>(a.list.pieces[i].count) * sizeof(float),
                                      "the direction");
  }
  return [a, warps] {
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::muon_direction_leaf(a.list.pieces[piece], first, scratch, a.directions[piece]);
      });
    });
  };
}

template <typename Accumulator>
Work fold(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::FoldArguments>(given);
  std::vector<const void*> sources;
  a.fold.sources = a.sources;
  a.fold = memories.located(a.fold, sources);
  if (a.norm != nullptr) a.norm = memories.writes(a.norm, sizeof *a.norm, "the norm");
  return [a, sources, warps]() mutable {
    arguments::Scratch scratch;
    arguments::NormBlock norm;
    a.fold.sources = sources.data();
    each_warp(warps, [&](int64_t warp) {
      for (int64_t first = warp * kLeaf; first < a.fold.count; first += warps * kLeaf) {
        arguments::fold_leaf<Accumulator>(a.fold, first, scratch,
                                          a.norm == nullptr ? nullptr : &norm);
      }
    });
    if (a.norm != nullptr) merge(*a.norm, norm);
  };
}

Work conversions(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::ConvertArguments>(given);
  for (int64_t i = 0; i < a.list.count; ++i) {
    a.list.pieces[i] = memories.located(a.list.pieces[i]);
  }
  return [a, warps] {
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::convert_run(a.list.pieces[piece], first);
      });
    });
  };
}

Work product(Memories& memories, const void* given, int64_t blocks) {
  auto a = given_as<arguments::ProductArguments>(given);
  a.product = memories.located(a.product);
  return [a, blocks] {
    arguments::ProductScratch scratch;
    const int64_t tiles = arguments::tiles_in(a.product.columns);
    each_warp(blocks, [&](int64_t tile) {
      arguments::product_tile(a.product, tile / tiles * arguments::kTile,
                              tile % tiles * arguments::kTile, scratch);
    });
  };
}

}  // namespace

Result launch(CUctx_st& context, int kernel, unsigned blocks, unsigned threads, Stream stream,
              const void* given) {
  const int64_t warps = int64_t{blocks} * (threads / arguments::kLanes);
  Memories memories(*context.device);
  const auto which = static_cast<Kernel>(kernel);
  const unsigned needed =
      which == Kernel::product ? arguments::kProductThreads : unsigned{arguments::kThreads};
  if (threads != needed) return kInvalidValue;
  Work work;
  switch (which) {
    case Kernel::update:
      work = updates(memories, given, warps);
      break;
    case Kernel::lamb_norms:
      work = lamb_norms(memories, given, warps);
      break;
    case Kernel::muon_direction:
      work = directions(memories, given, warps);
      break;
    case Kernel::fold_float32:
      work = fold<arguments::Float32>(memories, given, warps);
      break;
    case Kernel::fold_bfloat16:
      work = fold<arguments::Bfloat16>(memories, given, warps);
      break;
    case Kernel::fold_float16:
      work = fold<arguments::Float16>(memories, given, warps);
      break;
    case Kernel::convert:
      work = conversions(memories, given, warps);
      break;
    case Kernel::product:
      work = product(memories, given, blocks);
      break;
    case Kernel::update_decided:
      work = decided_updates(memories, given, warps);
      break;
    case Kernel::begin_sum:
      work = begun_sum(memories, given);
      break;
    case Kernel::decide:
      work = decision(memories, given);
      break;
  }
  context.device->launch(number_of(context, stream), arguments::kKernelNames[kernel],
                         memories.touches(), std::move(work));
  return kSuccess;
}

}  // namespace outrigger::cuda::mock

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

void locate(Memories& memories, arguments::Updates& updates, Use use) {
  const arguments::Updates given = updates;
  updates.list.count = 0;
  for (int64_t i = 0; i < given.list.count; ++i) {
    const kernels::Update u = arguments::update_of(given.common, given.list.pieces[i]);
    kernels::Update there = u;
    if (use == Use::muon_direction) there.published = nullptr;
    there = memories.located(there, use);
    void* out = there.published;
    if (use == Use::muon_direction) {
      out = memories.writes(u.published, static_cast<size_t>(u.count) * sizeof(float),
                            "the direction");
    }
    updates.add(there, out);
  }
}

void update_of_form(int form, const kernels::Update& u, const kernels::UpdateScalars& scalars,
                    int64_t first, arguments::Scratch& scratch, arguments::Counts& counts) {
  if (form < 0) {
    return arguments::update_leaf(u, scalars, arguments::LeafOf(u.count, first), scratch, counts);
  }
  arguments::with_form(form, [&](auto known) {
    arguments::update_leaf_of_form<known()>(u, scalars, first, scratch, counts);
  });
}

Work updates(Memories& memories, const void* given, int64_t warps, int form) {
  auto a = given_as<arguments::UpdateArguments>(given);
  locate(memories, a.updates, Use::update);
  if (a.counts != nullptr) a.counts = memories.writes(a.counts, sizeof *a.counts, "the counts");
  return [a, warps, form] {
    arguments::Scratch scratch;
    arguments::CountBlock all;
    each_warp(warps, [&](int64_t warp) {
      arguments::Counts counts;
      begin(counts);
      each_update(a.updates, warp, warps, [&](const kernels::Update& u, int64_t, int64_t first) {
        update_of_form(form, u, u.scalars, first, scratch, counts);
      });
      add_counts(all, counts);
    });
    if (a.counts == nullptr) return;
    a.counts->updates += all.updates;
    a.counts->vanished += all.vanished;
  };
}

Work decided_updates(Memories& memories, const void* given, int64_t warps, int form) {
  auto a = given_as<arguments::DecidedUpdateArguments>(given);
  locate(memories, a.updates, Use::update);
  a.decided = memories.writes(a.decided, sizeof *a.decided, "the decision");
  return [a, warps, form] {
    if (a.decided->skip != 0) return;
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      arguments::Counts counts;
      begin(counts);
      each_update(a.updates, warp, warps, [&](const kernels::Update& u, int64_t, int64_t first) {
        update_of_form(form, u, decided_scalars(u, *a.decided), first, scratch, counts);
      });
      add_counts(a.decided->counts, counts);
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
  locate(memories, a.updates, Use::lamb_norms);
  a.norms = memories.writes(
      a.norms, 2 * static_cast<size_t>(a.updates.list.count) * sizeof *a.norms, "the norms");
  return [a, warps] {
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      arguments::lamb_norms_of_warp(a.updates, warp, warps, scratch, a.norms);
    });
  };
}

Work directions(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::MuonArguments>(given);
  locate(memories, a.updates, Use::muon_direction);
  return [a, warps] {
    arguments::Scratch scratch;
    each_warp(warps, [&](int64_t warp) {
      each_update(a.updates, warp, warps, [&](const kernels::Update& u, int64_t, int64_t first) {
        arguments::muon_direction_leaf(u, first, scratch, static_cast<float*>(u.published));
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
    arguments::NormBlock of_block;
    a.fold.sources = sources.data();
    each_warp(warps, [&](int64_t warp) {
      arguments::fold_of_warp<Accumulator>(a.fold, warp, warps, a.norm != nullptr, of_block);
    });
    if (a.norm != nullptr) merge(*a.norm, of_block);
  };
}

Work conversions(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::ConvertArguments>(given);
  for (int64_t i = 0; i < a.list.count; ++i) {
    arguments::ConvertPiece& piece = a.list.pieces[i];
    arguments::Conversion c = a.common;
    c.to = piece.to;
    c.from = piece.from;
    c.count = piece.count;
    c = memories.located(c);
    piece.to = c.to;
    piece.from = c.from;
  }
  return [a, warps] {
    each_warp(warps, [&](int64_t warp) { arguments::convert_of_warp(a, warp, warps); });
  };
}

Work strided_conversions(Memories& memories, const void* given, int64_t warps) {
  auto a = given_as<arguments::ConvertStridedArguments>(given);
  for (int64_t i = 0; i < a.list.count; ++i) {
    a.list.pieces[i] = memories.located(a.list.pieces[i]);
  }
  return [a, warps] {
    each_warp(warps, [&](int64_t warp) {
      arguments::each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
        arguments::convert_strided(a.list.pieces[piece], first);
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
  const auto [which, form] = arguments::formed(static_cast<Kernel>(kernel));
  const unsigned needed =
      which == Kernel::product ? arguments::kProductThreads : unsigned{arguments::kThreads};
  if (threads != needed) return kInvalidValue;
  Work work;
  switch (which) {
    case Kernel::update:
      work = updates(memories, given, warps, form);
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
    case Kernel::convert_strided:
      work = strided_conversions(memories, given, warps);
      break;
    case Kernel::product:
      work = product(memories, given, blocks);
      break;
    case Kernel::update_form:
    case Kernel::decided_form:
    case Kernel::update_decided:
      work = decided_updates(memories, given, warps, form);
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

// SPDX-License-Identifier: Apache-2.0
// An engine's life: create, declare, commit, finalize, abort, destroy.
#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/configuration.h"

namespace otr_fuzz {
namespace {

EnginePlace& create_in(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  const Configuration configuration = draw_configuration(bytes);
  Out<otr_engine*> out(bytes);
  if (CALL(rank, otr_engine_create, rank.comms.pick(bytes).handle, configuration.text.c_str(),
           out) == OTR_OK) {
    place.handle = out.value;
    place.model->compute = configuration.compute;
  }
  if (bytes.below(8) < 3) put_on_device(rank, bytes, place);
  return place;
}

// Names are numbered, now and then one that is taken, empty or odd.
std::string draw_name(Bytes& bytes, const Model& model) {
  if (!bytes.one_in(16)) return outrigger::format_text("p{}", model.parameters.size());
  constexpr const char* kNames[] = {"p0", "", "a.b\"\n", "\xff\xfe",
                                    "a name of some length, to say so"};
  return bytes.pick(kNames);
}

void add_to(Rank& rank, Bytes& bytes, EnginePlace& place) {
  const std::string name = draw_name(bytes, *place.model);
  const Shape shape = draw_shape(bytes);
  const Where where = draw_where(bytes, *place.model);
  Sample initial = draw_doubtful(bytes, where, shape, Use::declaration);
  Roomy<otr_param_options> options;
  CALL(rank, otr_param_options_init, &options, sizeof(otr_param_options));
  options.trainable = bytes.one_in(5) ? 0 : 1;
  options.contributions = bytes.one_in(4) ? 2 : 1;
  const uint32_t form = bytes.below(16);
  int64_t alias = -1;
  if (form < 2) {
    alias = draw_parameter(bytes, *place.model).id;
    options.alias_of = alias;
    options.contributions = 1;
  }
  if (form == 2) options.group = "other";
  if (form == 3) {
    int32_t* const fields[] = {&options.trainable, &options.contributions, &options.replicated};
    *bytes.pick(fields) = bytes.one_in(2) ? -1 : 7;
  }
  if (form == 4) options.mistake_size(bytes);
  if (form == 5) initial.tensor.data = nullptr;
  const bool no_initial = bytes.one_in(alias >= 0 ? 2 : 64), no_name = bytes.one_in(64);
  Out<int64_t> id(bytes);
  if (CALL(rank, otr_engine_add_parameter, place.handle, no_name ? nullptr : name.c_str(),
           no_initial ? nullptr : &initial.tensor, bytes.one_in(8) ? nullptr : &options,
           id) != OTR_OK) {
    return;
  }
  Model& model = *place.model;
  if (id.value != static_cast<int64_t>(model.parameters.size())) {
    broken(outrigger::format_text("parameter {} got the id {}", model.parameters.size(), id.value));
  }
  int32_t ndim = 0;
  const int64_t* extents = nullptr;
  CALL(rank, otr_engine_parameter_shape, place.handle, id.value, &ndim, &extents);
  const Shape stored(extents, extents + ndim);
  const bool given = !no_initial && alias < 0;
  if (given && stored != Shape(initial.tensor.shape, initial.tensor.shape + initial.tensor.ndim)) {
    broken(outrigger::format_text("the shape of parameter {} is not the one given", id.value));
  }
  model.parameters.push_back({name, stored});
}

void create(Rank& rank, Bytes& bytes) { create_in(rank, bytes); }
void add_parameter(Rank& rank, Bytes& bytes) { add_to(rank, bytes, rank.engines.pick(bytes)); }
void commit(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_commit, rank.engines.pick(bytes).handle);
}

// A ready engine in one row of the table: most calls need one.
void make_ready(Rank& rank, Bytes& bytes) {
  EnginePlace& place = create_in(rank, bytes);
  for (uint32_t left = 1 + bytes.below(4); left > 0; --left) add_to(rank, bytes, place);
  CALL(rank, otr_engine_commit, place.handle);
}

void finalize(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_finalize, rank.engines.pick(bytes).handle);
}
void abort_engine(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_abort, rank.engines.pick(bytes).handle,
       bytes.one_in(2) ? nullptr : "a reason");
}
void check(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_check, rank.engines.pick(bytes).handle);
}
void destroy(Rank& rank, Bytes& bytes) { rank.drop(rank.engines.pick(bytes)); }

constexpr Call kCalls[] = {{"engine create", Scope::local, 2, create},
                           {"engine add parameter", Scope::local, 5, add_parameter},
                           {"engine commit", Scope::collective, 4, commit},
                           {"engine ready", Scope::collective, 10, make_ready},
                           {"engine finalize", Scope::collective, 1, finalize},
                           {"engine abort", Scope::local, 1, abort_engine},
                           {"engine check", Scope::local, 1, check},
                           {"engine destroy", Scope::local, 2, destroy}};

}  // namespace

std::span<const Call> engine_calls() { return kCalls; }

}  // namespace otr_fuzz

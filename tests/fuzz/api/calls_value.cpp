// SPDX-License-Identifier: Apache-2.0
// Values read and written, whole and by this rank's range.
#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

int32_t draw_value(Bytes& bytes) {
  const auto value = static_cast<int32_t>(bytes.below(12));
  return value < 10 ? value / 2 : value == 10 ? -1 : 99;
}

void read(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  const int32_t value = draw_value(bytes);
  const Where where = draw_where(bytes, *place.model);
  const Sample out = draw_doubtful(bytes, where, p.shape, Use::output);
  CALL(rank, otr_engine_parameter_read, place.handle, p.id, value,
       bytes.one_in(64) ? nullptr : &out.tensor);
}

void write(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  const int32_t value = draw_value(bytes);
  const Where where = draw_where(bytes, *place.model);
  const Sample source = draw_doubtful(bytes, where, p.shape, Use::source);
  CALL(rank, otr_engine_parameter_write, place.handle, p.id, value,
       bytes.one_in(64) ? nullptr : &source.tensor);
}

// One or two first values, or an id and a place that do not fit.
void set_initial(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter a = draw_parameter(bytes, *place.model);
  const DrawnParameter b = draw_parameter(bytes, *place.model);
  const Sample first = draw_doubtful(bytes, draw_where(bytes, *place.model), a.shape, Use::source);
  const Sample second = draw_doubtful(bytes, draw_where(bytes, *place.model), b.shape, Use::source);
  const int64_t ids[] = {a.id, b.id};
  const otr_tensor values[] = {first.tensor, second.tensor};
  const auto count = static_cast<int64_t>(bytes.below(3));
  CALL(rank, otr_engine_set_initial, place.handle, bytes.one_in(64) ? nullptr : ids,
       bytes.one_in(64) ? -1 : count, bytes.one_in(64) ? nullptr : values);
}

// What was written is read back as it is: float32 values that every format holds.
void write_and_read(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  const Where from = draw_where(bytes, *place.model), to = draw_where(bytes, *place.model);
  const Sample source = make_sample(bytes, from, p.shape, "float32");
  fill(bytes, from, source.tensor, false);
  const Sample out = make_sample(bytes, to, p.shape, "float32");
  if (CALL(rank, otr_engine_parameter_write, place.handle, p.id, OTR_VALUE_MASTER,
           &source.tensor) != OTR_OK ||
      CALL(rank, otr_engine_parameter_read, place.handle, p.id, OTR_VALUE_PUBLISHED, &out.tensor) !=
          OTR_OK) {
    return;
  }
  const std::vector<uint8_t> written = get(from, source.tensor), read = get(to, out.tensor);
  // Empty: a device has failed meanwhile.
  if (!written.empty() && !read.empty() && written != read) {
    broken(outrigger::format_text("parameter {} reads otherwise", p.id));
  }
}

// The range that this rank updates, in a tensor of its length.
void local(Rank& rank, Bytes& bytes, int32_t value, bool writes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  Out<int64_t> first(bytes), count(bytes);
  if (CALL(rank, otr_engine_local_range, place.handle, p.id, first, count) != OTR_OK) {
    count.value = 2;
  } else if (first.value < 0 || count.value < 0 ||
             (count.value > 0 && first.value + count.value > count_of(p.shape))) {
    broken(outrigger::format_text("local range {} + {} of {}", first.value, count.value,
                                  count_of(p.shape)));
  }
  const Where where = draw_where(bytes, *place.model);
  const Sample tensor =
      draw_doubtful(bytes, where, {count.value}, writes ? Use::source : Use::output);
  if (writes) {
    CALL(rank, otr_engine_local_write, place.handle, p.id, value, &tensor.tensor);
  } else {
    CALL(rank, otr_engine_local_read, place.handle, p.id, value, &tensor.tensor);
  }
}
void local_read(Rank& rank, Bytes& bytes) { local(rank, bytes, draw_value(bytes), false); }

// Not of a weight, which other ranks may be reading where it is.
void local_write(Rank& rank, Bytes& bytes) {
  const int32_t value = draw_value(bytes);
  local(rank, bytes, value == OTR_VALUE_MASTER ? OTR_VALUE_EXP_AVG : value, true);
}

// Returns false if not all ranks came here.
bool meet(Rank& rank, otr_comm* comm) {
  int32_t ranks = 1;
  return rank.world == 1 || (CALL(rank, otr_comm_size, comm, &ranks) == OTR_OK &&
                             ranks == rank.world && CALL(rank, otr_comm_barrier, comm) == OTR_OK);
}

// All ranks have read the weight before any writes it, and all have written it before any reads it.
void local_write_of_weight(Rank& rank, Bytes& bytes) {
  otr_comm* const comm = rank.comms.pick(bytes).handle;
  if (!meet(rank, comm)) return;
  local(rank, bytes, OTR_VALUE_MASTER, true);
  meet(rank, comm);
}

constexpr Call kCalls[] = {
    {"read", Scope::collective, 5, read},
    {"write", Scope::collective, 4, write},
    {"set initial", Scope::collective, 3, set_initial},
    {"write and read", Scope::collective, 3, write_and_read},
    {"local read", Scope::local, 3, local_read},
    {"local write", Scope::local, 3, local_write},
    {"local write of a weight", Scope::collective, 2, local_write_of_weight}};

}  // namespace

std::span<const Call> value_calls() { return kCalls; }

}  // namespace otr_fuzz

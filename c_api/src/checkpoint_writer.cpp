// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are made without an engine.
#include <string>
#include <vector>

#include "c_api/src/checkpoint_arguments.h"
#include "c_api/src/handles.h"
#include "c_api/src/structs.h"
#include "core/base/text.h"
#include "core/checkpoint/import.h"
#include "core/tensor/tensor.h"

using namespace outrigger;
using namespace outrigger::c_api;

namespace {

otr_writer_options writer_defaults() {
  otr_writer_options o{};
  o.struct_size = sizeof o;
  o.master = "float32";
  o.applied_steps = -1;
  return o;
}

otr_writer_param_options writer_param_defaults() {
  otr_writer_param_options o{};
  o.struct_size = sizeof o;
  o.trainable = o.exp_avg = o.exp_avg_sq = 1;
  o.updates = -1;
  return o;
}

otr_import_options import_defaults() {
  otr_import_options o{};
  o.struct_size = sizeof o;
  return o;
}

std::optional<int64_t> count_or_unknown(int64_t count, const char* what) {
  if (count < -1)
    fail(OTR_E_ARGUMENT, "{} = {}; legal is 0 or more, or -1: not known", what, count);
  return count == -1 ? std::nullopt : std::optional(count);
}

checkpoint::AssemblyOptions options_of(const otr_writer_options& o) {
  const auto moment = [](const char* dtype, const char* what) {
    return dtype == nullptr ? std::nullopt : std::optional(weight_format(dtype, what));
  };
  return {weight_format(o.master, "writer_options.master"),
          moment(o.exp_avg, "writer_options.exp_avg"),
          moment(o.exp_avg_sq, "writer_options.exp_avg_sq"),
          count_or_unknown(o.applied_steps, "writer_options.applied_steps"),
          flag(o.replace, "writer_options.replace")};
}

checkpoint::Kept kept_of(int32_t value) {
  switch (value) {
    case OTR_VALUE_MASTER:
      return checkpoint::Kept::master;
    case OTR_VALUE_EXP_AVG:
      return checkpoint::Kept::exp_avg;
    case OTR_VALUE_EXP_AVG_SQ:
      return checkpoint::Kept::exp_avg_sq;
    default:
      fail(OTR_E_ARGUMENT,
           "value = {}; a checkpoint is given OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG and "
           "OTR_VALUE_EXP_AVG_SQ",
           value);
  }
}

}  // namespace

int32_t otr_writer_options_init(otr_writer_options* options, size_t size) noexcept {
  return init_struct(options, size, writer_defaults(), "options");
}

int32_t otr_writer_param_options_init(otr_writer_param_options* options, size_t size) noexcept {
  return init_struct(options, size, writer_param_defaults(), "options");
}

int32_t otr_checkpoint_writer_create(const char* directory, const char* tag,
                                     const otr_writer_options* options,
                                     otr_checkpoint_writer** out_writer) noexcept {
  return guard([&] {
    required(out_writer, "out_writer") = nullptr;
    const otr_writer_options read = read_struct(options, writer_defaults(), "writer_options");
    *out_writer = new otr_checkpoint_writer(std::make_shared<checkpoint::Assembly>(
        checkpoint::posix_files(), &required(directory, "directory"), &required(tag, "tag"),
        options_of(read)));
  });
}

int32_t otr_checkpoint_writer_add_parameter(otr_checkpoint_writer* writer, const char* name,
                                            const int64_t* shape, int64_t ndim,
                                            const otr_writer_param_options* options) noexcept {
  return guard([&] {
    const otr_writer_param_options read =
        read_struct(options, writer_param_defaults(), "writer_param_options");
    checkpoint::AssembledParameter p;
    p.name = &required(name, "name");
    required_count(ndim, shape, "extents of shape");
    p.shape.assign(shape, shape + ndim);
    p.trainable = flag(read.trainable, "writer_param_options.trainable");
    p.alias_of = text_or_empty(read.alias_of);
    if (read.group != nullptr) p.group = read.group;
    p.exp_avg = flag(read.exp_avg, "writer_param_options.exp_avg");
    p.exp_avg_sq = flag(read.exp_avg_sq, "writer_param_options.exp_avg_sq");
    p.updates = count_or_unknown(read.updates, "writer_param_options.updates");
    get(writer, "writer")->add(std::move(p));
  });
}

int32_t otr_checkpoint_writer_add_part(otr_checkpoint_writer* writer, const char* name,
                                       const void* mine, size_t bytes) noexcept {
  return guard([&] {
    if (bytes > 0) static_cast<void>(required(static_cast<const std::byte*>(mine), "mine"));
    const auto* const first = static_cast<const std::byte*>(mine);
    get(writer, "writer")->add_part(&required(name, "name"), {first, first + bytes});
  });
}

int32_t otr_checkpoint_writer_write(otr_checkpoint_writer* writer, const char* name, int32_t value,
                                    int64_t first, const otr_tensor* source) noexcept {
  return guard([&] {
    const tensor::View view = tensor::check(required(source, "source"), "source");
    get(writer, "writer")->write(&required(name, "name"), kept_of(value), first, view);
  });
}

int32_t otr_checkpoint_writer_finish(otr_checkpoint_writer* writer) noexcept {
  return guard([&] { get(writer, "writer")->finish(); });
}

void otr_checkpoint_writer_destroy(otr_checkpoint_writer* writer) noexcept { destroy(writer); }

int32_t otr_import_options_init(otr_import_options* options, size_t size) noexcept {
  return init_struct(options, size, import_defaults(), "options");
}

int32_t otr_checkpoint_import(const char* source, const char* directory, const char* tag,
                              const otr_import_options* options) noexcept {
  return guard([&] {
    const otr_import_options read = read_struct(options, import_defaults(), "import_options");
    checkpoint::import_weights(checkpoint::posix_files(), &required(source, "source"),
                               &required(directory, "directory"), &required(tag, "tag"),
                               {flag(read.replace, "import_options.replace"),
                                flag(read.skip_other_dtypes, "import_options.skip_other_dtypes")});
  });
}

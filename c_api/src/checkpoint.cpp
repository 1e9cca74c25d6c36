// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "c_api/src/checkpoint_arguments.h"
#include "c_api/src/handles.h"
#include "c_api/src/structs.h"
#include "core/base/text.h"

using namespace outrigger;
using namespace outrigger::c_api;

namespace {

// An array of a load's options; what is there without an element would choose nothing.
template <typename T, typename Take>
void each_of(const char* field, const T* given, int64_t count, const Take& take) {
  if (count < 0 || (count == 0) != (given == nullptr)) {
    fail(OTR_E_ARGUMENT, "load_options.{}_count = {} with {} {}; NULL and 0 are for none", field,
         count, field, given == nullptr ? "NULL" : "given");
  }
  for (int64_t i = 0; i < count; ++i) take(given[i], format_text("load_options.{}[{}]", field, i));
}

std::vector<std::string> texts(const char* field, const char* const* given, int64_t count) {
  std::vector<std::string> all;
  each_of(field, given, count, [&](const char* text, const std::string& what) {
    all.emplace_back(&required(text, what.c_str()));
  });
  return all;
}

engine::LoadOptions options_of(const otr_load_options& o) {
  engine::LoadOptions options;
  options.weights_only = flag(o.weights_only, "load_options.weights_only");
  options.strict = flag(o.strict, "load_options.strict");
  options.wish.include = texts("include", o.include, o.include_count);
  options.wish.exclude = texts("exclude", o.exclude, o.exclude_count);
  options.wish.resized = texts("resized", o.resized, o.resized_count);
  each_of("renamed", o.renamed, o.renamed_count, [&](const otr_rename& r, const std::string& what) {
    options.wish.renamed.push_back({&required(r.here, (what + ".here").c_str()),
                                    &required(r.there, (what + ".there").c_str())});
  });
  if (options.weights_only) return options;
  const char* const partial = !options.strict                 ? "strict = 0"
                              : !options.wish.include.empty() ? "include"
                              : !options.wish.exclude.empty() ? "exclude"
                              : !options.wish.resized.empty() ? "resized"
                                                              : nullptr;
  if (partial != nullptr) {
    fail(OTR_E_ARGUMENT,
         "load_options.{} needs weights_only = 1: moments and progress are those of all parameters",
         partial);
  }
  return options;
}

otr_export_options export_defaults() {
  otr_export_options o{};
  o.struct_size = sizeof o;
  o.dtype = "float32";
  return o;
}

checkpoint::ExportOptions options_of(const otr_export_options& o) {
  if (o.max_shard_bytes < 0) {
    fail(OTR_E_ARGUMENT, "export_options.max_shard_bytes = {}; legal is 0 or more",
         o.max_shard_bytes);
  }
  return {weight_format(o.dtype, "export_options.dtype"), o.max_shard_bytes,
          flag(o.replace, "export_options.replace")};
}

}  // namespace

int32_t otr_save_options_init(otr_save_options* options, size_t size) noexcept {
  return init_struct(options, size, save_defaults(), "options");
}

int32_t otr_load_options_init(otr_load_options* options, size_t size) noexcept {
  return init_struct(options, size, load_defaults(), "options");
}

int32_t otr_engine_save(otr_engine* engine, const char* directory, const char* tag,
                        const otr_save_options* options) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    const otr_save_options read = read_struct(options, save_defaults(), "save_options");
    e.save(&required(directory, "directory"), &required(tag, "tag"), options_of(read));
  });
}

int32_t otr_engine_wait_save(otr_engine* engine, double timeout_seconds,
                             otr_save_status* out_status) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    const engine::Saver::Status s = e.wait_save(timeout_seconds);
    if (out_status == nullptr) return;
    fill_output(out_status, "out_status", [&](otr_save_status& full) {
      full.state = static_cast<int32_t>(s.state);
      full.bytes = s.bytes;
      full.bytes_written = s.written;
      full.held_up_seconds = s.held_up;
      full.seconds = s.seconds;
    });
  });
}

int32_t otr_engine_load(otr_engine* engine, const char* directory, const char* tag,
                        const otr_load_options* options) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    const otr_load_options read = read_struct(options, load_defaults(), "load_options");
    const engine::LoadOptions wanted = options_of(read);
    e.load(&required(directory, "directory"), text_or_empty(tag), wanted);
  });
}

int32_t otr_checkpoint_open(const char* directory, const char* tag,
                            otr_checkpoint** out_checkpoint) noexcept {
  return guard([&] {
    required(out_checkpoint, "out_checkpoint") = nullptr;
    *out_checkpoint = new otr_checkpoint(std::make_shared<engine::OpenCheckpoint>(
        &required(directory, "directory"), text_or_empty(tag)));
  });
}

int32_t otr_checkpoint_list(const char* directory, char* buffer, size_t* inout_size) noexcept {
  return guard([&] {
    write_text(engine::list_checkpoints(&required(directory, "directory")), buffer, inout_size);
  });
}

void otr_checkpoint_destroy(otr_checkpoint* checkpoint) noexcept { destroy(checkpoint); }

int32_t otr_checkpoint_describe(otr_checkpoint* checkpoint, char* buffer,
                                size_t* inout_size) noexcept {
  return guard([&] { write_text(get(checkpoint, "checkpoint")->describe(), buffer, inout_size); });
}

int32_t otr_checkpoint_part(otr_checkpoint* checkpoint, int32_t rank, const char* name,
                            void* buffer, size_t* inout_size) noexcept {
  return guard([&] {
    required(inout_size, "inout_size");
    give_bytes(get(checkpoint, "checkpoint")->part(&required(name, "name"), rank), buffer,
               inout_size);
  });
}

int32_t otr_checkpoint_read(otr_checkpoint* checkpoint, const char* name, int32_t value,
                            int64_t first, int64_t count, float* out) noexcept {
  return guard([&] {
    const auto size = static_cast<size_t>(required_count(count, out, "elements"));
    get(checkpoint, "checkpoint")->read(&required(name, "name"), value, first, {out, size});
  });
}

int32_t otr_export_options_init(otr_export_options* options, size_t size) noexcept {
  return init_struct(options, size, export_defaults(), "options");
}

int32_t otr_checkpoint_export(otr_checkpoint* checkpoint, const char* path,
                              const otr_export_options* options) noexcept {
  return guard([&] {
    const otr_export_options read = read_struct(options, export_defaults(), "export_options");
    get(checkpoint, "checkpoint")->export_to(&required(path, "path"), options_of(read));
  });
}

int32_t otr_checkpoint_verify(otr_checkpoint* checkpoint) noexcept {
  return guard([&] { get(checkpoint, "checkpoint")->verify(); });
}

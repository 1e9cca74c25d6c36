// SPDX-License-Identifier: Apache-2.0
// A device that a plugin drives.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device/decider.h"
#include "core/device/device.h"
#include "outrigger_plugin.h"

namespace outrigger::device {

// A plugin's shared object, loaded once and never unloaded, like the library itself.
struct Plugin {
  const otr_device_plugin* given;
  otr_device_plugin table;  // the same; what an older one lacks is 0
  std::string path;
};

// Loads a plugin by a path that contains '/', or by its name: liboutrigger_<name>.so in the folders
// of OTR_PLUGIN_PATH, beside this library, in the system's folders. Throws OTR_E_NOT_FOUND with
// every path tried, OTR_E_ABI for another version's table, or one that is too short.
[[nodiscard]] Plugin load_plugin(const std::string& name);

// The plugins that lie in the folders named, or why one of them is none.
struct FoundPlugin {
  std::string path, name, error;  // error: not usable
  int32_t device_type = 0, devices = 0;
};
[[nodiscard]] std::vector<FoundPlugin> find_plugins();

class PluginDevice final : public Device, private Decider {
 public:
  PluginDevice(const Plugin& plugin, int32_t device_id);
  ~PluginDevice() override;
  PluginDevice(const PluginDevice&) = delete;
  PluginDevice& operator=(const PluginDevice&) = delete;

  void set_value(const char* name, double value);

  otr_device id() const override { return {table_.device_type, device_id_}; }
  std::string name() const override { return table_.name; }
  Abilities abilities() const override;
  [[nodiscard]] double value(const char* name) const;
  // Of the host, in place of the plugin's memory; none: the plugin's again. Throws OTR_E_STATE
  // while any is allocated.
  void set_allocator(const std::optional<otr_device_allocator>& allocator);
  std::byte* allocate(size_t bytes, Stream stream) override;
  void release(std::byte* data, size_t bytes, Stream stream) noexcept override;
  // Of the plugin, whoever allocates else; throws OTR_E_ARGUMENT for what is no allocation.
  std::byte* take(size_t bytes, Stream stream);
  void free(void* data);
  void drain() noexcept override;
  void pin(void* data, size_t bytes) override;
  void unpin(void* data) noexcept override;
  Stream own_stream() const override { return stream(0); }
  Stream download_stream() const override { return stream(1); }
  Stream upload_stream() const override { return stream(2); }
  std::shared_ptr<const Stream> make_stream() override;
  Event record(Stream stream) override;
  void wait(Stream stream, const Event& event) override;
  void synchronize(Stream stream) override;
  void synchronize(const Event& event) override;
  bool is_done(const Event& event) override;
  void download(void* host, const void* from, size_t bytes, Stream stream) override;
  void upload(void* to, const void* host, size_t bytes, Stream stream) override;
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  void zero(void* data, size_t bytes, Stream stream) override;
  void read(void* to, Format to_format, const tensor::View& from, float factor,
            Stream stream) override;
  void write(const tensor::View& to, const void* from, Format from_format, Stream stream) override;
  void convert(void* to, Format to_format, const void* from, Format from_format, float factor,
               int64_t count, Stream stream) override;
  void convert_all(std::span<const Conversion> list, Stream stream) override;
  void add(void* to, Format to_format, const void* from, Format from_format, int64_t count,
           Stream stream) override;
  void to_blocks(void* blocks, const void* values, Format from, int64_t count) override;
  void to_integers(void* integers, const void* values, Format from, int64_t count) override;
  void from_integers(void* values, Format to, const void* integers, int64_t count) override;
  kernels::NormSum fold(const SliceFold& slice, Nonfinite& origin) override;
  kernels::NormSum norm(const void* data, Format format, int64_t count, int64_t flat) override;
  kernels::UpdateCount update(std::span<const kernels::Update> pieces) override;
  std::unique_ptr<Updating> begin_update(std::span<const kernels::Update> pieces) override;
  std::vector<LambNorms> lamb_norms(std::span<const kernels::Update> pieces) override;
  void muon_direction(const kernels::Update& piece, float* direction) override;
  void multiply(const kernels::Product& product, Symmetric symmetric) override;
  void transpose(float* to, const float* from, int64_t rows, int64_t columns) override;
  Decider* decider() override { return table_.decide == nullptr ? nullptr : this; }

 private:
  void fold(const SliceFold& slice, std::byte* sum) override;
  void decide(const Decide& how, std::byte* decision) override;
  void update(std::span<const kernels::Update> pieces, std::byte* decision) override;
  Decided read(const Copy& decision) const override;
  class Running;
  [[nodiscard]] Stream stream(size_t index) const;
  void check(int32_t status, const char* what) const;
  void count(int64_t bytes) noexcept;
  [[nodiscard]] std::byte* take_from_host(size_t bytes, Stream stream);
  kernels::NormSum run(const otr_plugin_fold& given, Nonfinite* origin);
  void run(std::span<const otr_plugin_update> list, otr_plugin_update_count& total);

  const otr_device_plugin table_;
  int32_t device_id_;
  otr_plugin_device* device_ = nullptr;
  mutable std::mutex mutex_;  // guards the next, and allocator_ while nothing is allocated
  int64_t allocated_ = 0;     // bytes
  std::optional<otr_device_allocator> allocator_;
  mutable std::array<Stream, 3> streams_{};  // made when they are first used; guarded by mutex_
};

}  // namespace outrigger::device

// SPDX-License-Identifier: Apache-2.0
#include "estimate_report.h"

#include <algorithm>

#include "machine.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// In which a number of bytes has a digit or more before the point.
struct Unit {
  const char* name;
  double bytes;
  [[nodiscard]] double of(int64_t n) const { return static_cast<double>(n) / bytes; }
};

Unit unit_for(int64_t bytes) {
  if (bytes >= 1 << 30) return {"GiB", 0x1p30};
  return bytes >= 1 << 20 ? Unit{"MiB", 0x1p20} : Unit{"KiB", 0x1p10};
}

std::string amount(int64_t bytes) {
  const Unit unit = unit_for(bytes);
  return format_text("{:.2f} {}", unit.of(bytes), unit.name);
}

std::string counted(int64_t n, const char* what) {
  return format_text("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string host_room(const Room& room) {
  return format_text("{} are {}", amount(room.bytes.host), room.host_source);
}

std::string device_room(const Room& room) {
  if (room.reserved == 0) return format_text("{} are given", amount(room.bytes.device));
  return format_text("{} are left of the {} given", amount(room.bytes.device),
                     amount(room.bytes.device + room.reserved));
}

Json json_of(const std::vector<otr_memory_entry>& entries) {
  Json out;
  for (const otr_memory_entry& e : entries) {
    out[e.purpose] = {{"resident_bytes", e.resident_bytes}, {"peak_bytes", e.peak_bytes}};
  }
  return out;
}

void add_needed(Json& out, const Answer& a, const Bytes& needed) {
  out["host_bytes"] = needed.host;
  if (a.setting.on_device) out["device_bytes"] = needed.device;
}

Json device_of(const Answer& a) {
  if (!a.setting.on_device) return {};
  return {{"bytes_available", a.room.bytes.device},
          {"bytes_reserved", a.room.reserved},
          {"bytes_needed", a.needed.device},
          {"outrigger", json_of(a.ours.device)},
          {"deepspeed", json_of(a.theirs.device)}};
}

Json name_or_null(const Change& change) { return change.name.empty() ? Json() : Json(change.name); }

void print_table(const std::vector<otr_memory_entry>& all_ours,
                 const std::vector<otr_memory_entry>& all_theirs) {
  const Unit unit = unit_for(std::max(all_ours.back().peak_bytes, all_theirs.back().peak_bytes));
  write_text("{} a rank, resident / peak      Outrigger            DeepSpeed 0.19.8\n", unit.name);
  for (size_t i = 0; i < all_ours.size(); ++i) {
    const otr_memory_entry &ours = all_ours[i], &theirs = all_theirs[i];
    if (ours.peak_bytes == 0 && theirs.peak_bytes == 0) continue;
    write_text("{:<28} {:>8.3f} / {:>8.3f}   {:>8.3f} / {:>8.3f}\n", ours.purpose,
               unit.of(ours.resident_bytes), unit.of(ours.peak_bytes),
               unit.of(theirs.resident_bytes), unit.of(theirs.peak_bytes));
  }
}

void print_start(const Answer& a) {
  const Unit unit = unit_for(a.starts[0].host);
  write_text("{} at start, first values          rank 0       a host\n", unit.name);
  for (size_t i = 0; i < a.starts.size(); ++i) {
    write_text("{:<34} {:>7.3f}     {:>8.3f}{}{}\n", kStartWays[i].text, unit.of(a.starts[i].rank),
               unit.of(a.starts[i].host), a.start == kStartWays[i].name ? "  counted" : "",
               a.starts[i].host > a.room.bytes.host ? "  does not fit" : "");
  }
}

const char* verdict(bool fits) { return fits ? "it fits" : "it does not fit"; }

std::string both(const Answer& a, const Bytes& needed) {
  return (a.setting.on_device ? format_text("{:>12} a device ", amount(needed.device)) : "") +
         format_text("{:>12} a host", amount(needed.host));
}

void print_changes(const Answer& a) {
  if (a.changes.empty()) {
    write_text("{}\n",
               a.setting.on_device
                   ? "No stage, offload or bfloat16 form fits: use more devices, or more hosts."
                   : "No stage or bfloat16 form fits: use more hosts.");
    return;
  }
  write_text("What would fit:\n");
  for (const Change& c : a.changes) {
    write_text("  {:<{}} {}\n", c.name, a.setting.on_device ? 55 : 44, both(a, c.needed));
  }
}

// Three digits and the power of a thousand: 1.56e9.
std::string rounded(const Largest& largest) {
  const auto n = static_cast<double>(largest.parameters);
  const int power = n < 1e6 ? 3 : n < 1e9 ? 6 : n < 1e12 ? 9 : 12;
  const double unit = power == 3 ? 1e3 : power == 6 ? 1e6 : power == 9 ? 1e9 : 1e12;
  const double value = n / unit;
  return (largest.bounded ? "" : "> ") + format_text("{:.{}f}e{}", value,
                                                     value < 10    ? 2
                                                     : value < 100 ? 1
                                                                   : 0,
                                                     power);
}

void print_candidates(const Answer& a) {
  write_text("{:<54}{} {:>12} {:>16}\n", "configuration",
             a.setting.on_device ? format_text(" {:>12}", "a device") : "", "a host",
             "largest model");
  for (const Candidate& c : a.candidates) {
    const Bytes& needed = c.change.needed;
    write_text("{:<54}{} {:>12} {:>16}{}\n", c.change.name.empty() ? "as it is" : c.change.name,
               a.setting.on_device ? format_text(" {:>12}", amount(needed.device)) : "",
               amount(needed.host), rounded(c.largest),
               needed.fit_in(a.room.bytes) ? "" : "  does not fit");
  }
}

}  // namespace

std::string reason_for(const Answer& a, const Bytes& needed) {
  const bool same = needed.host == a.needed.host && needed.device == a.needed.device;
  const auto instead = [&](int64_t before) {
    return same ? "" : format_text(" instead of {}", amount(before));
  };
  std::string text;
  if (a.setting.on_device) {
    text = format_text("a device needs {}{}; {}; ", amount(needed.device), instead(a.needed.device),
                       device_room(a.room));
  }
  return text + format_text("a host needs {}{}; {}", amount(needed.host), instead(a.needed.host),
                            host_room(a.room));
}

void print_json(const Answer& a) {
  const Placement& placement = a.setting.placement;
  Json out = {{"parameters", a.parameters},
              {"world_size", placement.world},
              {"hosts", placement.hosts},
              {"ranks_per_host", placement.ranks_per_host},
              {"host_bytes_available", a.room.bytes.host},
              {"host_bytes_source", a.room.host_source},
              {"host_bytes_needed", a.needed.host},
              {"fits", a.fits()}};
  out["rank"] = {{"outrigger", json_of(a.ours.host)}, {"deepspeed", json_of(a.theirs.host)}};
  out["device"] = device_of(a);
  out["start"] = {{"counted", a.start}, {"dtype", a.dtype}};
  for (size_t i = 0; i < a.starts.size(); ++i) {
    const Model::Peaks& peaks = a.starts[i];
    Json& way = out["start"][kStartWays[i].name];
    way = {{"rank_peak_bytes", peaks.rank}, {"host_peak_bytes", peaks.host}};
    if (a.setting.on_device) way["device_peak_bytes"] = peaks.device;
  }
  out["would_fit"] = Json::array();
  for (const Change& c : a.changes) {
    Json change = {{"change", c.name}, {"patch", c.patch}};
    add_needed(change, a, c.needed);
    out["would_fit"].push_back(std::move(change));
  }
  out["largest"] = Json::array();
  for (const Candidate& c : a.candidates) {
    Json candidate = {{"change", name_or_null(c.change)}, {"patch", c.change.patch}};
    add_needed(candidate, a, c.change.needed);
    candidate["fits"] = c.change.needed.fit_in(a.room.bytes);
    candidate["parameters"] = c.largest.parameters;
    candidate["tensors"] = c.largest.tensors;
    candidate["bounded"] = c.largest.bounded;
    out["largest"].push_back(std::move(candidate));
  }
  out["warnings"] = a.warnings;
  out["written"] = Json();
  if (a.written) {
    out["written"] = {{"file", a.written->file},
                      {"change", a.written->change.empty() ? Json() : Json(a.written->change)},
                      {"reason", a.written->reason}};
  }
  write_text("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_text(const Answer& a) {
  const Placement& placement = a.setting.placement;
  const bool devices = a.setting.on_device;
  write_text("{}, {}, {} on {}{}\n\n", counted(static_cast<int64_t>(a.tensors), "tensor"),
             counted(a.parameters, "parameter"), counted(placement.world, "rank"),
             counted(placement.hosts, "host"),
             !devices               ? ""
             : placement.world == 1 ? ", with a device"
                                    : ", each with a device");
  if (devices) {
    write_text("on a device\n");
    print_table(a.ours.device, a.theirs.device);
    write_text("\n");
  }
  if (a.ours.host.back().peak_bytes > 0 || a.theirs.host.back().peak_bytes > 0) {
    if (devices) write_text("in host memory\n");
    print_table(a.ours.host, a.theirs.host);
  } else {
    write_text("in host memory: nothing, but at start\n");
  }
  write_text("\n");
  print_start(a);
  write_text("\n");
  if (devices) {
    write_text("A device needs {}; {}: {}.\n", amount(a.needed.device), device_room(a.room),
               verdict(a.needed.device <= a.room.bytes.device));
  }
  write_text("{} on a host {} {}; {}: {}.\n", counted(placement.ranks_per_host, "rank"),
             placement.ranks_per_host == 1 ? "needs" : "need", amount(a.needed.host),
             host_room(a.room), verdict(a.needed.host <= a.room.bytes.host));
  if (placement.hosts > 1) {
    write_text("Ranks are counted as sharing no memory, as over a communicator of the caller's.\n");
  }
  write_text("Activations and the framework's own memory come on top{}.\n",
             devices ? ", in both memories" : "");
  if (!a.candidates.empty()) {
    write_text("\n");
    print_candidates(a);
  } else if (!a.fits()) {
    print_changes(a);
  }
  if (!a.written) return;
  write_text("\n{} has {}: {}.\n", a.written->file,
             a.written->change.empty() ? "the configuration as it was" : a.written->change,
             a.written->reason);
}

}  // namespace outrigger::tools

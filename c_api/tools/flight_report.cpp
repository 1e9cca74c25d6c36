// SPDX-License-Identifier: Apache-2.0
#include "flight_report.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "fault.h"
#include "flight_file.h"
#include "flight_job.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSecond = 1'000'000'000;

// In this machine's time zone.
std::string clock_text(int64_t nanoseconds, const char* format = "%H:%M:%S") {
  const time_t seconds = nanoseconds / kSecond;
  tm parts{};
  char text[32] = "";
  if (localtime_r(&seconds, &parts) != nullptr) strftime(text, sizeof text, format, &parts);
  return format_text("{}.{:03}", text, std::max<int64_t>(0, nanoseconds % kSecond) / 1'000'000);
}

const char* fate_text(Fate fate) {
  return fate == Fate::running ? "runs" : fate == Fate::ended ? "ended" : "elsewhere";
}

std::string state_of(const Flight& flight) {
  if (flight.failure) return otr_status_name(flight.failure->status);
  if (flight.fate == Fate::ended) return "gone";
  if (flight.fate == Fate::unknown) return "unknown";
  return flight.under_way() != nullptr ? "waits" : "runs";
}

std::string short_text(const FlightOperation& operation) {
  return format_text("{}{}", operation.what,
                     operation.label.empty() ? "" : format_text(" '{}'", operation.label));
}

// The operation that a rank is in, was in when it ended, or that failed.
const FlightOperation* shown_operation(const Flight& flight) {
  if (const FlightOperation* const inside = flight.under_way()) return inside;
  return failed_operation(flight);
}

const FlightOperation* last_good(const Flight& flight) {
  const auto good = std::find_if(flight.operations.rbegin(), flight.operations.rend(),
                                 [](const FlightOperation& each) { return each.status == OTR_OK; });
  return good == flight.operations.rend() ? nullptr : &*good;
}

void print_table(const Job& job) {
  std::vector<std::vector<std::string>> rows{
      {"rank", "host:process", "state", "step", "last finished", "at", "in", "since"}};
  for (const Flight& flight : job.ranks) {
    const FlightOperation* const last = last_good(flight);
    const FlightOperation* const inside = shown_operation(flight);
    const int64_t step =
        std::max(last != nullptr ? last->step : 0, inside != nullptr ? inside->step : 0);
    rows.push_back(
        {format_text("{}", rank_of(flight)), format_text("{}:{}", flight.host, flight.process),
         state_of(flight), step > 0 ? format_text("{}", step) : "-",
         last != nullptr ? short_text(*last) : "-", last != nullptr ? clock_text(last->ended) : "-",
         inside != nullptr ? short_text(*inside) : "-",
         inside != nullptr ? clock_text(inside->begun) : "-"});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += format_text("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    write_text("{}\n", line);
  }
}

void print_last(const Job& job, int64_t count) {
  using Line = std::pair<const Flight*, const FlightOperation*>;
  std::vector<Line> lines;
  for (const Flight& flight : job.ranks) {
    const auto n = std::min(flight.operations.size(), static_cast<size_t>(count));
    for (auto each = flight.operations.end() - static_cast<std::ptrdiff_t>(n);
         each != flight.operations.end(); ++each) {
      lines.emplace_back(&flight, &*each);
    }
    if (const FlightOperation* const inside = flight.under_way())
      lines.emplace_back(&flight, inside);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.second->begun < b.second->begun; });
  write_text("\n{:<12}  {:>4}  {:>12}  {:>12}  operation\n", "began", "rank", "ms", "bytes");
  for (const auto& [flight, operation] : lines) {
    const bool is_over = !operation->is_under_way();
    const double took = static_cast<double>(operation->ended - operation->begun) * 1e-6;
    write_text(
        "{}  {:>4}  {:>12}  {:>12}  {}{}\n", clock_text(operation->begun), rank_of(*flight),
        is_over ? format_text("{:.3f}", took) : "under way", operation->bytes,
        text_of(job, *flight, *operation),
        operation->status == OTR_OK ? "" : format_text(": {}", otr_status_name(operation->status)));
  }
}

Json json_of(const FlightOperation& operation) {
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  return {{"serial", operation.serial},
          {"group", format_text("{:016x}", operation.group)},
          {"number", operation.number},
          {"what", operation.what},
          {"label", operation.label},
          {"bytes", operation.bytes},
          {"offset", operation.offset},
          {"step", operation.step > 0 ? Json(operation.step) : Json(nullptr)},
          {"micro_step", operation.micro_step > 0 ? Json(operation.micro_step) : Json(nullptr)},
          {"began", seconds(operation.begun)},
          {"ended", operation.is_under_way() ? Json(nullptr) : Json(seconds(operation.ended))},
          {"status",
           operation.is_under_way() ? Json(nullptr) : Json(otr_status_name(operation.status))}};
}

Json json_of(const Flight& flight, int64_t last) {
  const auto optional = [](const FlightOperation* operation) {
    return operation == nullptr ? Json(nullptr) : json_of(*operation);
  };
  Json groups = Json::array();
  for (const RankGroup& group : flight.groups) {
    groups.push_back({{"identity", format_text("{:016x}", group.identity)},
                      {"name", group.name},
                      {"provider", group.provider},
                      {"rank", group.rank},
                      {"size", group.size},
                      {"is_closed", group.is_closed},
                      {"current", optional(group.current ? &*group.current : nullptr)}});
  }
  Json operations = Json::array();
  const auto n = std::min(flight.operations.size(), static_cast<size_t>(last));
  for (size_t i = flight.operations.size() - n; i < flight.operations.size(); ++i) {
    operations.push_back(json_of(flight.operations[i]));
  }
  Json failure = nullptr;
  if (flight.failure) {
    failure = {{"status", otr_status_name(flight.failure->status)},
               {"text", flight.failure->text},
               {"time", static_cast<double>(flight.failure->at) * 1e-9}};
  }
  return {{"rank", rank_of(flight)},
          {"host", flight.host},
          {"process", flight.process},
          {"process_is", fate_text(flight.fate)},
          {"state", state_of(flight)},
          {"file", flight.path},
          {"library", flight.library},
          {"began", static_cast<double>(flight.began) * 1e-9},
          {"last_finished", optional(last_good(flight))},
          {"in", optional(shown_operation(flight))},
          {"failure", failure},
          {"groups", groups},
          {"groups_left_out", flight.left_out},
          {"operations", operations}};
}

bool has_process(const Job& job, int64_t process) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [&](const Flight& flight) { return flight.process == process; });
}

void print_job(const Job& job, const Verdict& verdict, const FlightRequest& request) {
  int64_t began = job.ranks.front().began;
  for (const Flight& flight : job.ranks) began = std::min(began, flight.began);
  write_text("job of {} rank{}, from {} to {}\n\n", job.size(), job.size() == 1 ? "" : "s",
             clock_text(began, "%Y-%m-%d %H:%M:%S"), clock_text(job.last_moment()));
  print_table(job);
  if (const auto missing = job.missing(); !missing.empty()) {
    write_text("rank{} {}: no file here; on another host, or left without an error\n",
               missing.size() == 1 ? "" : "s", list_of(missing));
  }
  if (request.last > 0) print_last(job, request.last);
  write_text("\n{}\n", verdict.text);
}

}  // namespace

int report_flights(const FlightRequest& request) {
  Flights flights = read_flights(request.where);
  const std::vector<Job> jobs = jobs_of(std::move(flights.good));
  const auto chosen = request.process == 0
                          ? jobs.begin()
                          : std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) {
                              return has_process(job, request.process);
                            });
  if (chosen == jobs.end()) {
    const std::string whose =
        request.process == 0 ? "" : format_text(" of a job with process {}", request.process);
    fail(OTR_E_NOT_FOUND,
         "{} has no file of a flight recorder{}: there is one for each rank while a job runs, and "
         "after one that failed or was killed{}",
         request.where, whose,
         flights.damaged.empty() ? "" : format_text("; {}", flights.damaged.front()));
  }
  const Verdict verdict = verdict_of(*chosen);
  if (request.json) {
    Json ranks = Json::array();
    for (const Flight& flight : chosen->ranks) ranks.push_back(json_of(flight, request.last));
    const Json all = {{"folder", request.where},
                      {"jobs", jobs.size()},
                      {"size", chosen->size()},
                      {"missing", chosen->missing()},
                      {"ranks", ranks},
                      {"culprit", verdict.culprit < 0 ? Json(nullptr) : Json(verdict.culprit)},
                      {"held_up", verdict.held_up},
                      {"verdict", verdict.text},
                      {"damaged", flights.damaged}};
    write_text("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
    return flights.damaged.empty() ? 0 : 1;
  }
  print_job(*chosen, verdict, request);
  for (const std::string& damage : flights.damaged) write_text("damaged: {}\n", damage);
  if (jobs.size() > 1 && request.process == 0) {
    std::vector<int64_t> others;
    for (const Job& job : jobs) {
      if (&job != &*chosen && others.size() < 8) others.push_back(job.ranks.front().process);
    }
    write_text("{} other job{} here: --process {}\n", jobs.size() - 1, jobs.size() == 2 ? "" : "s",
               fmt::join(others, ", "));
  }
  return flights.damaged.empty() ? 0 : 1;
}

}  // namespace outrigger::tools

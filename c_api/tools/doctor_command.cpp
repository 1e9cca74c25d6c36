// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "command.h"
#include "findings.h"
#include "machine.h"
#include "self_test.h"
#include "text.h"

namespace outrigger::tools {
namespace {

Json json_of(const SelfTest& test) {
  Json phases = Json::object();
  for (const auto& [name, seconds] : test.phases) phases[name] = seconds;
  return {{"passed", test.failure.empty()},
          {"failure", test.failure.empty() ? Json() : Json(test.failure)},
          {"seconds", test.seconds},
          {"phase_seconds", phases}};
}

void print(const Json& machine, const std::vector<Finding>& findings, const SelfTest& test) {
  for (const auto& [name, text] : machine_lines(machine)) write_text("{:<16}{}\n", name, text);
  std::string phases;
  for (const auto& [name, seconds] : test.phases) {
    phases += format_text(", {} {:.1f} ms", name, 1000 * seconds);
  }
  write_text("{:<16}{} in {:.2f} s: 2 processes{}\n", "self-test",
             test.failure.empty() ? "passed" : "failed", test.seconds, phases);
  if (!test.failure.empty()) write_text("\nproblem: the self-test failed: {}\n", test.failure);
  for (const bool problem : {true, false}) {
    for (const Finding& finding : findings) {
      if (finding.problem != problem) continue;
      write_text("\n{}: {}\n  {}\n", problem ? "problem" : "advice", finding.what, finding.remedy);
    }
  }
}

}  // namespace

Command add_doctor(CLI::App& app, bool& json) {
  const auto limit = std::make_shared<double>(30);
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Tell what this machine offers and what is wrong with it; train in two processes");
  doctor->add_option("--timeout", *limit, "Seconds that the two processes may take")
      ->check(number_in(0.001, 3600, "seconds"))
      ->capture_default_str();
  doctor->add_flag("--json", json, "As one JSON document, which estimate --machine reads");
  doctor->footer("The exit code is 1 where a problem was found; advice is none.");
  const auto run = [limit](const Call& call) {
    const Json machine = machine_here();
    const std::vector<Finding> findings = findings_of(machine);
    const SelfTest test = self_test(*limit);
    bool well = test.failure.empty();
    Json list = Json::array();
    for (const Finding& finding : findings) {
      well = well && !finding.problem;
      list.push_back({{"severity", finding.problem ? "problem" : "advice"},
                      {"what", finding.what},
                      {"remedy", finding.remedy}});
    }
    if (call.json) {
      const Json all = {
          {"well", well}, {"findings", list}, {"self_test", json_of(test)}, {"machine", machine}};
      write_text("{}\n", all.dump(2));
    } else {
      print(machine, findings, test);
    }
    return well ? 0 : 1;
  };
  return {doctor, run};
}

// Started by the self-test; not for users.
Command add_doctor_worker(CLI::App& app) {
  const auto report = std::make_shared<int>(-1);
  CLI::App* worker = app.add_subcommand("doctor-worker", "A process of doctor's self-test");
  worker->group("");
  worker->add_option("report", *report, "Descriptor to report to")->required();
  return {worker, [report](const Call&) { return self_test_worker(*report); }};
}

}  // namespace outrigger::tools

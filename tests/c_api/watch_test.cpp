// SPDX-License-Identifier: Apache-2.0
// Watching a run: records of steps for the host and in files, traces, notes.
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "blocking.h"
#include "place.h"

namespace {

using namespace otr_test;
using nlohmann::json;

constexpr const char* kMomentum =
    R"({"optimizer": {"type": "SGD", "params": {"lr": 0.25, "momentum": 0.5}}, "gradient_clipping": 2,
        "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}})";

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// A trace is JSON but for its last comma and bracket.
json trace_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.resize(text.rfind(','));
  return json::parse(text + "]");
}

otr_watch_options watch_options() {
  otr_watch_options options;
  EXPECT_OK(otr_watch_options_init(&options, sizeof options));
  return options;
}

json record_of(const Engine& engine) {
  size_t size = 0;
  EXPECT_OK(otr_engine_get_record(engine.get(), nullptr, &size));
  std::string text(size + 64, '\0');
  size = text.size();
  EXPECT_OK(otr_engine_get_record(engine.get(), text.data(), &size));
  return json::parse(text.c_str());
}

void collect(const char* text, void* user_data) {
  static_cast<std::vector<json>*>(user_data)->push_back(json::parse(text));
}

constexpr int64_t kCount = 3000;

void window(const Engine& engine, int number) {
  for (int micro = 0; micro < 2; ++micro) {
    engine.pass({{0, dyadic(kCount, 3 * number + micro)}});
    engine.step();
  }
}

TEST(Watch, ARecordSaysWhatTheReportSays) {
  Solo solo(kMomentum);
  const Engine& engine = solo.engine;
  solo.engine.add("w", {kCount}, dyadic(kCount, 1));
  solo.engine.commit();
  std::vector<json> given;
  otr_watch_options options = watch_options();
  options.callback = collect;
  options.user_data = &given;
  ASSERT_OK(otr_engine_watch(engine.get(), &options));
  size_t size = 0;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_get_record(engine.get(), nullptr, &size), "no window");

  engine.pass({{0, dyadic(kCount, 5)}});
  EXPECT_EQ(engine.step().outcome, OTR_STEP_ACCUMULATED);
  EXPECT_TRUE(given.empty()) << "a window has one record";
  EXPECT_OK(otr_engine_note(engine.get(), "loss", 4));
  EXPECT_OK(otr_engine_note(engine.get(), "loss", 3.5));
  EXPECT_OK(otr_engine_note(engine.get(), "perplexity", HUGE_VAL));
  engine.pass({{0, dyadic(kCount, 6)}});
  const otr_step_report report = engine.step();
  ASSERT_EQ(given.size(), 1U);
  const json& record = given[0];
  EXPECT_EQ(record, record_of(engine));
  EXPECT_EQ(record["record"], "step");
  EXPECT_EQ(record["outcome"], "applied");
  EXPECT_TRUE(record["reason"].is_null());
  EXPECT_TRUE(record["nonfinite"].is_null());
  EXPECT_EQ(record["micro_steps"], 2);
  EXPECT_EQ(record["applied_steps"], 1);
  EXPECT_EQ(record["skipped_steps"], 0);
  EXPECT_EQ(record["grad_norm"].get<double>(), report.grad_norm);
  EXPECT_EQ(record["clip_coefficient"].get<double>(), report.clip_coefficient);
  EXPECT_LT(report.clip_coefficient, 1);
  EXPECT_EQ(record["lr"], 0.25);
  EXPECT_EQ(record["updates"], report.updates);
  EXPECT_EQ(record["vanished"], report.vanished);
  EXPECT_EQ(record["notes"], (json{{"loss", 3.5}, {"perplexity", nullptr}}));
  EXPECT_NEAR(record["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
  EXPECT_EQ(record["memory"]["host"]["by_purpose"]["exp_avg"],
            resident_bytes(engine, OTR_DEVICE_CPU, "exp_avg"));
  EXPECT_EQ(record["memory"]["host"]["resident"], resident_bytes(engine, OTR_DEVICE_CPU, "total"));
  EXPECT_GT(record["memory"]["process"]["resident"], 1 << 20);

  // What is not finite: where, and no number.
  Values bad = dyadic(kCount, 7);
  bad[5] = NAN;
  engine.pass({{0, bad}});
  engine.step();
  engine.pass({});
  engine.step();
  ASSERT_EQ(given.size(), 2U);
  EXPECT_EQ(given[1]["outcome"], "skipped");
  EXPECT_EQ(given[1]["reason"], "nonfinite");
  EXPECT_EQ(given[1]["nonfinite"], (json{{"parameter", "w"}, {"rank", 0}, {"count", 1}}));
  EXPECT_TRUE(given[1]["grad_norm"].is_null());
  EXPECT_EQ(given[1]["notes"], json::object()) << "notes are of one record";
}

// Seconds are those that the host spends, as it sees them itself.
TEST(Watch, PhasesAddUpToTheTimeOfAWindow) {
  Solo solo(R"({"optimizer": {"type": "SGD"}})");
  const Engine& engine = solo.engine;
  solo.engine.add("w", {kCount}, dyadic(kCount, 1));
  solo.engine.commit();
  ASSERT_OK(otr_engine_watch(engine.get(), nullptr));
  const auto begin = Clock::now();
  pause(30);
  {
    const auto pass = engine.begin();
    pause(50);
    Engine::add(pass, 0, {kCount}, dyadic(kCount, 2));
    Engine::end(pass);
  }
  engine.step();
  const double all = seconds_since(begin);
  const json seconds = record_of(engine)["seconds"];
  EXPECT_GE(seconds["backward"], 0.050);
  EXPECT_GE(seconds["elapsed"], 0.080);
  EXPECT_LE(seconds["elapsed"], all);
  for (const char* phase : {"reduce", "update", "publish", "sums"}) {
    EXPECT_GT(seconds[phase], 0) << phase;
    EXPECT_LE(seconds[phase], all - 0.080) << phase;
  }
  for (const char* phase : {"acquire", "save", "load", "prefetch", "write"}) {
    EXPECT_EQ(seconds[phase], 0) << phase;
  }
  double sum = 0;
  for (const char* phase : {"backward", "reduce", "update", "publish"})
    sum += seconds[phase].get<double>();
  EXPECT_LE(sum, seconds["elapsed"]);

  // The next window's are its own.
  const auto next = Clock::now();
  engine.pass({{0, dyadic(kCount, 3)}});
  engine.step();
  EXPECT_LE(record_of(engine)["seconds"]["backward"], seconds_since(next));
}

TEST(Watch, EachRankHasItsFilesAndCountsItsBytes) {
  const Place folder;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kMomentum);
    engine.add("w", {kCount}, dyadic(kCount, 1));
    const std::string records = (folder / "records/deep").string(),
                      traces = (folder / "traces").string();
    otr_watch_options options = watch_options();
    options.name = "model \"A\"";
    options.records = records.c_str();
    options.trace = traces.c_str();
    ASSERT_OK(otr_engine_watch(engine.get(), &options)) << "before commit, too";
    engine.commit();
    for (int i = 0; i < 3; ++i) window(engine, 2 * i + rank);
    EXPECT_OK(otr_engine_finalize(engine.get()));
    EXPECT_EQ(record_of(engine)["applied_steps"], 3) << "also of an engine that has ended";
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string name = "rank-" + std::to_string(rank);
    const auto lines = lines_of((folder / ("records/deep/" + name + ".jsonl")).string());
    ASSERT_EQ(lines.size(), 5U);
    EXPECT_EQ(lines[0]["record"], "start");
    EXPECT_EQ(lines[0]["name"], "model \"A\"");
    EXPECT_EQ(lines[0]["rank"], rank);
    EXPECT_EQ(lines[0]["world"], 2);
    EXPECT_EQ(lines[0]["process"], getpid());
    EXPECT_EQ(lines[0]["stage"], 2);
    EXPECT_EQ(lines[0]["trainable_elements"], kCount);
    EXPECT_EQ(lines[4]["record"], "end");
    EXPECT_EQ(lines[4]["how"], "finalized");
    for (int i = 1; i <= 3; ++i) {
      EXPECT_EQ(lines[i]["applied_steps"], i);
      // Two passes of one bucket, which the layout may pad.
      const int64_t bytes = lines[i]["bytes"]["sums"].get<int64_t>();
      EXPECT_GE(bytes, 2 * kCount * 4);
      EXPECT_LE(bytes, 2 * (kCount + 2 * 256) * 4);
    }
    std::map<std::string, int> names;
    std::map<std::string, std::string> details;
    double update_end = 0;
    for (const json& event : trace_of((folder / ("traces/" + name + ".trace.json")).string())) {
      EXPECT_EQ(event["pid"], getpid());
      if (event["ph"] == "M" && event["name"] == "process_name") {
        const std::string title = event["args"]["name"];
        EXPECT_TRUE(title.starts_with("model \"A\", rank " + std::to_string(rank) +
                                      " of 2, process " + std::to_string(getpid()) + " on "))
            << title;
      }
      if (event["ph"] != "X") continue;
      const std::string what = event["name"];
      ++names[what];
      details[what] = event["args"].value("what", "");
      EXPECT_GE(event["dur"], 0);
      EXPECT_NEAR(event["ts"].get<double>() / 1e6, static_cast<double>(std::time(nullptr)), 60);
      if (what == "update") update_end = event["ts"].get<double>() + event["dur"].get<double>();
      if (what == "publish") {
        EXPECT_GE(event["ts"], update_end - 0.01) << "spans are in order";
      }
    }
    EXPECT_EQ(names["backward"], 6);
    EXPECT_EQ(names["reduce"], 3);
    EXPECT_EQ(names["update"], 3);
    EXPECT_EQ(names["publish"], 3);
    EXPECT_GE(names["sums"], 6);
    EXPECT_FALSE(details["sums"].empty());
  }
}

TEST(Watch, FilesOfEarlierRunsStay) {
  const Place folder;
  const std::string records = (folder / "r").string();
  for (int run = 0; run < 3; ++run) {
    Solo solo(R"({"optimizer": {"type": "SGD"}})");
    solo.engine.add("w", {8}, Values(8, 1));
    solo.engine.commit();
    otr_watch_options options = watch_options();
    options.records = records.c_str();
    ASSERT_OK(otr_engine_watch(solo.engine.get(), &options));
    for (int i = 0; i <= run; ++i) {
      solo.engine.pass({{0, Values(8, 1)}});
      solo.engine.step();
    }
  }
  EXPECT_EQ(lines_of(records + "/rank-0.jsonl").size(), 3U);
  EXPECT_EQ(lines_of(records + "/rank-0-2.jsonl").size(), 4U);
  const auto third = lines_of(records + "/rank-0-3.jsonl");
  ASSERT_EQ(third.size(), 5U);
  EXPECT_EQ(third.back()["how"], "destroyed");
}

TEST(Watch, TheEnvironmentAsksForItToo) {
  const Place folder;
  setenv("OTR_RECORDS", (folder / "here").string().c_str(), 1);
  {
    Solo solo(R"({"optimizer": {"type": "SGD"}})");
    solo.engine.add("w", {8}, Values(8, 1));
    EXPECT_FALSE(fs::exists((folder / "here").string())) << "from commit on";
    solo.engine.commit();
    solo.engine.pass({{0, Values(8, 1)}});
    solo.engine.step();
    EXPECT_EQ(lines_of((folder / "here/rank-0.jsonl").string()).size(), 2U) << "each line at once";
  }
  std::ofstream((folder / "file").string()) << "no folder";
  setenv("OTR_RECORDS", (folder / "file").string().c_str(), 1);
  {
    Solo solo(R"({"optimizer": {"type": "SGD"}})");
    solo.engine.add("w", {8}, Values(8, 1));
    EXPECT_FAILS(OTR_E_IO, otr_engine_commit(solo.engine.get()), "OTR_RECORDS",
                 (folder / "file").string());
    unsetenv("OTR_RECORDS");
    EXPECT_OK(otr_engine_commit(solo.engine.get()));
  }
}

TEST(Watch, RefusesWhatItCannotTake) {
  const Place folder;
  Solo solo(R"({"optimizer": {"type": "SGD"}})");
  otr_engine* e = solo.engine.get();
  size_t size = 0;
  EXPECT_FAILS(OTR_E_STATE, otr_engine_get_record(e, nullptr, &size), "otr_engine_watch");
  EXPECT_OK(otr_engine_note(e, "dropped", 1)) << "nobody watches";
  std::ofstream((folder / "file").string()) << "no folder";
  const std::string file = (folder / "file").string();
  otr_watch_options options = watch_options();
  options.records = file.c_str();
  EXPECT_FAILS(OTR_E_IO, otr_engine_watch(e, &options), file);
  options.records = nullptr;
  options.trace = file.c_str();
  const std::string records = (folder / "records").string();
  options.records = records.c_str();
  EXPECT_FAILS(OTR_E_IO, otr_engine_watch(e, &options), file);
  EXPECT_FAILS(OTR_E_STATE, otr_engine_get_record(e, nullptr, &size), "otr_engine_watch")
      << "a refused call changes nothing";
  EXPECT_TRUE(std::filesystem::is_empty(records)) << "a file of records that has none";
  options.records = nullptr;
  options.trace = nullptr;
  options.struct_size = 8;
  EXPECT_FAILS(OTR_E_ABI, otr_engine_watch(e, &options), "struct_size");
  for (int i = 0; i < 16; ++i) EXPECT_OK(otr_engine_watch(e, nullptr));
  EXPECT_FAILS(OTR_E_STATE, otr_engine_watch(e, nullptr), "16");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_note(e, nullptr, 1), "name");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_note(e, "", 1), "64");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_note(e, std::string(65, 'x').c_str(), 1), "64");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_note(e, "\xff", 1), "UTF-8");
  for (int i = 0; i < 32; ++i) EXPECT_OK(otr_engine_note(e, std::to_string(i).c_str(), i));
  EXPECT_OK(otr_engine_note(e, "31", 0));
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_note(e, "32", 1), "32 names");
}

// A full disk loses lines, and nothing else.
TEST(Watch, GoesOnWhereAFileCannotBeWritten) {
  const Place folder;
  std::string log;
  otr_context_options context_options;
  ASSERT_OK(otr_context_options_init(&context_options, sizeof context_options));
  context_options.log_user_data = &log;
  context_options.log_callback = [](int32_t, const char* text, void* to) {
    *static_cast<std::string*>(to) += std::string(text) + "\n";
  };
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&context_options, &context));
  const Owned<otr_context> owned(context);
  const auto comm = make_self(context);
  Engine engine(comm.get(), R"({"optimizer": {"type": "SGD"}})");
  engine.add("w", {8}, Values(8, 1));
  engine.commit();
  // What the file that would come next is called is a way to a device without room.
  fs::create_directory((folder / "r").string());
  const std::string records = (folder / "r").string();
  otr_watch_options options = watch_options();
  options.records = records.c_str();
  std::vector<json> given;
  options.callback = collect;
  options.user_data = &given;
  const rlim_t before = [&] {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    return limit.rlim_cur;
  }();
  ASSERT_OK(otr_engine_watch(engine.get(), &options));
  signal(SIGXFSZ, SIG_IGN);
  const auto step = [&] {
    engine.pass({{0, Values(8, 1)}});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  };
  step();
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = fs::file_size(records + "/rank-0.jsonl") + 10;
  setrlimit(RLIMIT_FSIZE, &limit);
  step();
  step();
  limit.rlim_cur = before;
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(given.size(), 3U);
  const size_t first = log.find("cannot be written");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_NE(log.find("rank-0.jsonl"), std::string::npos) << log;
  EXPECT_EQ(log.find("cannot be written", first + 1), std::string::npos) << "told once: " << log;
}

// The callback runs in the thread that asks for the step's report, and may ask the engine.
TEST(Watch, TheStepBesideTheHostIsRecordedToo) {
  struct Asked {
    const Engine* engine;
    std::thread::id thread;
    double lr = 0;
    int calls = 0;
  };
  Solo solo(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}})");
  solo.engine.add("w", {kCount}, dyadic(kCount, 1));
  solo.engine.commit();
  Asked asked{&solo.engine, {}, 0, 0};
  otr_watch_options options = watch_options();
  options.user_data = &asked;
  options.callback = [](const char*, void* user_data) {
    auto& to = *static_cast<Asked*>(user_data);
    to.thread = std::this_thread::get_id();
    ++to.calls;
    EXPECT_OK(otr_engine_get_group_value(to.engine->get(), nullptr, "lr", &to.lr));
  };
  ASSERT_OK(otr_engine_watch(solo.engine.get(), &options));
  solo.engine.pass({{0, dyadic(kCount, 2)}});
  EXPECT_OK(otr_engine_step_begin(solo.engine.get()));
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_report(solo.engine.get(), -1, &report));
  EXPECT_OK(otr_engine_report(solo.engine.get(), -1, &report));
  EXPECT_EQ(asked.calls, 1);
  EXPECT_EQ(asked.thread, std::this_thread::get_id());
  EXPECT_EQ(asked.lr, 0.5);
}

// One record for each engine, with the joint norm.
TEST(Watch, EnginesThatStepTogetherHaveARecordEach) {
  Solo one(R"({"optimizer": {"type": "SGD"}})");
  Engine other(one.comm.get(), R"({"optimizer": {"type": "SGD"}})");
  for (Engine* engine : {&one.engine, &other}) {
    engine->add("w", {kCount}, dyadic(kCount, 1));
    engine->commit();
    ASSERT_OK(otr_engine_watch(engine->get(), nullptr));
    engine->pass({{0, dyadic(kCount, 2)}});
  }
  otr_engine* both[] = {one.engine.get(), other.get()};
  otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
  ASSERT_OK(otr_step_many(both, 2, nullptr, reports));
  EXPECT_EQ(record_of(one.engine)["grad_norm"].get<double>(), reports[0].grad_norm);
  EXPECT_EQ(record_of(other)["grad_norm"].get<double>(), reports[0].grad_norm);
}

// What ended a rank is in its file.
TEST(Watch, AFailureIsTheLastLine) {
  const Place folder;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kMomentum);
    engine.add("w", {kCount}, dyadic(kCount, 1));
    engine.commit();
    const std::string records = (folder / "r").string();
    otr_watch_options options = watch_options();
    options.records = records.c_str();
    ASSERT_OK(otr_engine_watch(engine.get(), &options));
    window(engine, rank);
    if (rank == 1) return;  // leaves
    engine.pass({});
    engine.pass({});
    EXPECT_OK(otr_engine_step(engine.get(), nullptr));
    engine.pass({});
    EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_step(engine.get(), nullptr), "rank 1");
  });
  const auto lines = lines_of((folder / "r/rank-0.jsonl").string());
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines.back()["record"], "end");
  EXPECT_NE(lines.back()["how"].get<std::string>().find("rank 1"), std::string::npos)
      << lines.back();
}

}  // namespace

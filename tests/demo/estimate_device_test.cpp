// SPDX-License-Identifier: Apache-2.0
// outrigger estimate with devices: what lies in which memory, what would fit into both, and the
// largest model that does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "estimate_support.h"

namespace outrigger::testing {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

int64_t resident(const Json& entries, const char* purpose) {
  return entries[purpose]["resident_bytes"].get<int64_t>();
}

const Json* change_named(const Json& changes, const std::string& name) {
  for (const Json& change : changes) {
    if (change["change"] == name) return &change;
  }
  return nullptr;
}

// 2^30 parameters in buckets of two tensors of 2^24, two of them at a time.
constexpr const char* kStage2 = R"({"bf16": {"enabled": true}, "outrigger": {"bucket_buffers": 2},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 50000000}})";
constexpr const char* kOffloaded =
    R"({"bf16": {"enabled": true}, "outrigger": {"bucket_buffers": 2},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 50000000,
                          "offload_optimizer": {"device": "cpu"}}})";

class EstimateDevice : public Estimate {
 protected:
  [[nodiscard]] std::vector<std::string> with(const char* config,
                                              std::vector<std::string> more) const {
    more.insert(more.begin(), {shapes(), "--config", folder_.write("given.json", config)});
    return more;
  }
};

TEST_F(EstimateDevice, TellsWhatLiesInWhichMemory) {
  constexpr int64_t kRing = int64_t{2} * (1 << 25) * 2;
  constexpr int64_t kDecision = 32 * 256 + 256;  // a sum of each bucket, and what is made of them
  const Json there = json_of(with(kStage2, {"--device-gib", "24", "--host-gib", "64"}));
  const Json& device = there["device"];
  EXPECT_EQ(device["bytes_available"], 24 * kGib);
  EXPECT_EQ(device["bytes_reserved"], 0);
  EXPECT_EQ(resident(device["outrigger"], "published parameters"), 2 * kGib);
  for (const char* state : {"master weights", "exp_avg", "exp_avg_sq"}) {
    EXPECT_EQ(resident(device["outrigger"], state), 4 * kGib) << state;
    EXPECT_EQ(resident(there["rank"]["outrigger"], state), 0) << state;
  }
  EXPECT_EQ(resident(device["outrigger"], "gradient buckets"), kRing + kDecision);
  EXPECT_EQ(resident(device["outrigger"], "total"), 16 * kGib + kRing + kDecision);
  EXPECT_EQ(device["bytes_needed"], 16 * kGib + kRing + kDecision);
  EXPECT_EQ(device["deepspeed"]["total"]["peak_bytes"], 20 * kGib) << "the master's gradients, too";
  EXPECT_EQ(resident(there["rank"]["deepspeed"], "total"), 0);
  EXPECT_EQ(there["fits"], true);
  for (const char* way : {"given", "held", "shared-out"}) {
    EXPECT_EQ(there["start"][way]["device_peak_bytes"], 16 * kGib + kRing + kDecision) << way;
    EXPECT_GT(there["start"][way]["host_peak_bytes"], 4 * kGib) << "float32 values, all of them";
  }

  const Json offloaded = json_of(with(kOffloaded, {"--device-gib", "24", "--host-gib", "64"}));
  EXPECT_EQ(resident(offloaded["device"]["outrigger"], "total"), 2 * kGib + kRing);
  const Json& host = offloaded["rank"]["outrigger"];
  EXPECT_EQ(resident(host, "master weights"), 4 * kGib);
  EXPECT_EQ(resident(host, "gradient accumulators"), 2 * kGib);
  constexpr int64_t kSlots = int64_t{3} * (1 << 20) * 2;  // of an update's parts
  EXPECT_EQ(resident(host, "gradient buckets"), kRing + kSlots);
  EXPECT_EQ(resident(offloaded["device"]["deepspeed"], "total"), 2 * kGib);
  EXPECT_EQ(resident(offloaded["rank"]["deepspeed"], "total"), 14 * kGib);
  EXPECT_GE(offloaded["host_bytes_needed"], resident(host, "total"));

  // A half of it: the parameters declared first stay, and full offload is what would fit.
  std::string half = kOffloaded;
  half.replace(half.find(R"("cpu")"), 5, R"("cpu", "ratio": 0.5)");
  const Json part = json_of(with(half.c_str(), {"--device-gib", "4", "--host-gib", "64"}));
  for (const char* purpose : {"master weights", "exp_avg", "exp_avg_sq"}) {
    EXPECT_EQ(resident(part["device"]["outrigger"], purpose), 2 * kGib) << purpose;
    EXPECT_EQ(resident(part["rank"]["outrigger"], purpose), 2 * kGib) << purpose;
  }
  EXPECT_EQ(resident(part["device"]["deepspeed"], "total"), (2 + 7) * kGib);
  EXPECT_EQ(resident(part["rank"]["deepspeed"], "total"), 7 * kGib);
  ASSERT_GE(part["would_fit"].size(), 1U);
  EXPECT_EQ(part["would_fit"][0]["change"], "stage 2, offload");
  EXPECT_EQ(part["would_fit"][0]["patch"]["zero_optimization"]["offload_optimizer"]["ratio"], 1);

  // Each rank has a device, and a host as many times the memory.
  const Json four = json_of(with(kOffloaded, {"--world", "4", "--device-gib", "24"}));
  EXPECT_EQ(resident(four["rank"]["outrigger"], "master weights"), kGib);
  EXPECT_EQ(resident(four["device"]["outrigger"], "published parameters"), 2 * kGib);
  EXPECT_EQ(four["host_bytes_needed"],
            4 * four["rank"]["outrigger"]["total"]["peak_bytes"].get<int64_t>());
  EXPECT_TRUE(json_of(with(kStage2, {}))["device"].is_null());
}

TEST_F(EstimateDevice, FitsWhereBothMemoriesDo) {
  const auto code = [&](const char* device, const char* host, const char* reserve = "0") {
    return estimate(with(
        kOffloaded, {"--device-gib", device, "--host-gib", host, "--device-reserve-gib", reserve}));
  };
  EXPECT_EQ(code("2.13", "14.2").code, 0) << code("2.13", "14.2").out;
  const Result device = code("2", "64"), host = code("64", "14");
  EXPECT_EQ(device.code, 1);
  EXPECT_NE(device.out.find("A device needs 2.12 GiB; 2.00 GiB are given: it does not fit."),
            std::string::npos)
      << device.out;
  EXPECT_NE(device.out.find("64.00 GiB are given: it fits."), std::string::npos) << device.out;
  EXPECT_EQ(host.code, 1);
  EXPECT_NE(host.out.find("a device\n\non a device\n"), std::string::npos) << host.out;
  EXPECT_NE(host.out.find("64.00 GiB are given: it fits."), std::string::npos) << host.out;
  EXPECT_NE(host.out.find("14.00 GiB are given: it does not fit."), std::string::npos) << host.out;
  EXPECT_EQ(code("4", "64", "1.75").code, 0);
  const Result reserved = code("4", "64", "2");
  EXPECT_EQ(reserved.code, 1);
  EXPECT_NE(reserved.out.find("2.00 GiB are left of the 4.00 GiB given: it does not fit."),
            std::string::npos)
      << reserved.out;
}

TEST_F(EstimateDevice, OffersOffload) {
  const std::vector<std::string> room{"--device-gib", "12", "--host-gib", "64"};
  const Json json = json_of(with(kStage2, room));
  EXPECT_EQ(json["fits"], false);
  ASSERT_GE(json["would_fit"].size(), 3U) << json["would_fit"];
  const Json& first = json["would_fit"][0];
  EXPECT_EQ(first["change"], "stage 2, offload") << "which changes no bits";
  EXPECT_EQ(first["patch"]["zero_optimization"]["offload_optimizer"]["device"], "cpu");
  const Json direct = json_of(with(kOffloaded, room));
  EXPECT_EQ(first["device_bytes"], direct["device"]["bytes_needed"]);
  EXPECT_EQ(first["host_bytes"], direct["host_bytes_needed"]);
  const std::string low = "stage 2, bf16 with bf16 master and states";
  const Json *there = change_named(json["would_fit"], low),
             *offloaded = change_named(json["would_fit"], low + ", offload");
  ASSERT_TRUE(there != nullptr && offloaded != nullptr) << json["would_fit"];
  EXPECT_GT((*there)["device_bytes"], (*offloaded)["device_bytes"]);
  EXPECT_LT((*there)["host_bytes"], (*offloaded)["host_bytes"]);
  for (const Json& change : json["would_fit"]) {
    EXPECT_LE(change["device_bytes"], 12 * kGib) << change;
    EXPECT_LE(change["host_bytes"], 64 * kGib) << change;
  }
  // Where the host is too small for it, the states stay on the device.
  const Json small = json_of(with(kStage2, {"--device-gib", "12", "--host-gib", "8"}));
  ASSERT_EQ(small["would_fit"].size(), 1U) << small["would_fit"];
  EXPECT_EQ(small["would_fit"][0]["change"], low);

  const Json kept = json_of(with(kOffloaded, {"--device-gib", "24", "--host-gib", "12"}));
  for (const Json& change : kept["would_fit"]) {
    EXPECT_FALSE(change["change"].get<std::string>().ends_with("offload")) << change;
  }

  // Where not even the parameters fit, they go, too; the device has the two largest in use.
  for (const char* config : {kStage2, kOffloaded}) {
    const Json none = json_of(with(config, {"--device-gib", "1.5", "--host-gib", "64"}));
    ASSERT_GE(none["would_fit"].size(), 1U) << none;
    EXPECT_EQ(none["would_fit"][0]["change"], "stage 3, offload all") << none;
    const Json& patch = none["would_fit"][0]["patch"]["zero_optimization"];
    EXPECT_EQ(patch["offload_param"]["device"], "cpu");
    EXPECT_EQ(patch["stage3_max_live_parameters"], 2 << 24);
    EXPECT_EQ(none["would_fit"][0]["device_bytes"], (2 << 24) * 2 + int64_t{2} * (1 << 25) * 2);
  }
  const Json without = json_of(with(kStage2, {"--host-gib", "1000"}));
  for (const Json& change : without["would_fit"]) {
    EXPECT_EQ(change["change"].get<std::string>().find("offload"), std::string::npos) << change;
    EXPECT_FALSE(change.contains("device_bytes"));
  }
}

TEST_F(EstimateDevice, WritesOffload) {
  const std::string out = folder_.file("out.json");
  const Result result =
      estimate(with(kStage2, {"--device-gib", "12", "--host-gib", "64", "--write-config", out}));
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("out.json has stage 2, offload: a device needs 2.12 GiB instead of "
                            "16.13 GiB; 12.00 GiB are given; a host needs"),
            std::string::npos)
      << result.out;
  const Json expected = Json::parse(kOffloaded), written = Json::parse(read_text(out));
  EXPECT_EQ(written["zero_optimization"], expected["zero_optimization"]);
  EXPECT_EQ(written["outrigger"], expected["outrigger"]) << "what was given stays";
}

// A list of so many of these tensors, again and again, is estimated by itself.
TEST_F(EstimateDevice, FindsTheLargestModel) {
  const std::vector<std::vector<int64_t>> extents{{1000, 300}, {700}, {64, 512}};
  const auto list = [&](int64_t tensors, const char* name) {
    Json json = Json::object();
    for (int64_t i = 0; i < tensors; ++i) json["w" + std::to_string(i)] = extents[i % 3];
    return folder_.write(name, json.dump());
  };
  const std::string model = list(3, "model.json");
  for (const std::vector<std::string>& room : {std::vector<std::string>{"--device-gib", "0.15"},
                                               {"--device-gib", "0.5", "--world", "3"},
                                               {}}) {
    const auto words = [&](const std::string& shapes, const std::string& config) {
      std::vector<std::string> all{shapes, "--config", config, "--host-gib", "0.3"};
      all.insert(all.end(), room.begin(), room.end());
      return all;
    };
    const std::string config = folder_.write(
        "stage1.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 400000}})");
    std::vector<std::string> asked = words(model, config);
    asked.emplace_back("--largest");
    const Json largest = json_of(asked)["largest"];
    ASSERT_GE(largest.size(), 2U) << largest;
    EXPECT_TRUE(largest[0]["change"].is_null());
    for (const Json& found : largest) {
      SCOPED_TRACE(found.dump());
      Json changed = Json::parse(read_text(config));
      changed.merge_patch(found["patch"]);
      const std::string own = folder_.write("own.json", changed.dump());
      const auto tensors = found["tensors"].get<int64_t>();
      EXPECT_EQ(found["bounded"], true);
      EXPECT_EQ(found["fits"], true);
      ASSERT_GT(tensors, 50);
      const Json fits = json_of(words(list(tensors, "fits.json"), own));
      EXPECT_EQ(fits["fits"], true);
      EXPECT_EQ(fits["parameters"], found["parameters"]);
      const int64_t more = tensors + std::max<int64_t>(3, tensors / 500);
      EXPECT_EQ(json_of(words(list(more, "more.json"), own))["fits"], false);
    }
    const Result text = estimate(asked);
    EXPECT_NE(text.out.find("\nas it is     "), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find("a device") != std::string::npos, !room.empty()) << text.out;
  }
  // One that does not fit has a largest one, too: a part of it.
  const Json part =
      json_of({shapes(), "--host-gib", "4", "--device-gib", "8", "--largest"})["largest"][0];
  EXPECT_EQ(part["fits"], false);
  EXPECT_GT(part["tensors"], 20);
  EXPECT_LT(part["tensors"], 64);
  // None of which so many fit that the search would not end.
  const Json tiny = json_of({folder_.write("tiny.json", R"({"w": [3]})"), "--host-gib", "1000",
                             "--device-gib", "8", "--largest"})["largest"][0];
  EXPECT_EQ(tiny["bounded"], false);
  EXPECT_EQ(tiny["tensors"], 1 << 16);
  const Json empty = json_of(
      {folder_.write("empty.json", R"({"w": [0]})"), "--host-gib", "1", "--largest"})["largest"][0];
  EXPECT_EQ(empty["bounded"], false);
  EXPECT_EQ(empty["parameters"], 0);
}

TEST_F(EstimateDevice, SaysWhatIsWrong) {
  const char* split = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
      "bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"}}}})";
  expect_fault(with(split, {"--device-gib", "24"}),
               {"one half on a device", "offload_optimizer.device to \"none\"",
                "offload_param.device to \"cpu\""});
  EXPECT_LE(estimate(with(split, {"--host-gib", "100"})).code, 1) << "legal without one";
  for (const char* gib : {"0", "-1", "nan", "1e300"}) {
    expect_fault({shapes(), "--device-gib", gib}, {"--device-gib", gib, "from 0.001 to"});
  }
  expect_fault({shapes(), "--device-gib", "4", "--device-reserve-gib", "-1"},
               {"--device-reserve-gib", "-1", "from 0 to"});
  expect_fault({shapes(), "--device-gib", "4", "--device-reserve-gib", "4"},
               {"--device-reserve-gib 4", "--device-gib 4", "reserve less"});
  expect_fault({shapes(), "--device-reserve-gib", "4"}, {"--device-gib"});
}

}  // namespace
}  // namespace outrigger::testing

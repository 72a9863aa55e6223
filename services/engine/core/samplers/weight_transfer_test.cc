// Weight transfers of unnamed sampler versions from memory to memory.
#include "services/engine/core/samplers/weight_transfer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "services/engine/core/testing/role_groups.h"

namespace lathe::engine {
namespace {

struct Served : Roles {
  Served() : Roles(GroupRole::kTrain, GroupRole::kSample, /*serves_versions=*/true) {}

  CallId SampleNow(int64_t seq) {
    const CallId call = h.Sample(sampler, seq);
    RunAll();
    return call;
  }
  // Runs the workers repeatedly, as reports lead to commands for other groups.
  void RunAll() {
    for (int i = 0; i < 4; ++i) h.RunWorker();
  }
  size_t NumSaves() const { return h.worker->Received<SendSaveVersion>().size(); }
  size_t NumServed() const { return h.worker->Received<SendServeVersion>().size(); }
  std::vector<RecordWeightTransfer::Transport> Transports() const {
    std::vector<RecordWeightTransfer::Transport> transports;
    for (const Action& action : h.actions) {
      if (const auto* action_of_transfer = std::get_if<RecordWeightTransfer>(&action))
        transports.push_back(action_of_transfer->transport);
    }
    return transports;
  }
  // Weights of the newest sample's version on the group that samples.
  Words Sampled() const {
    return other->VersionWeights(other->Received<SendSample>().back().version_id);
  }
};

// A version of one step is published.
struct Published : Served {
  Published() {
    Train(1);
    Publish(3, 0);
  }
};

using Transport = RecordWeightTransfer::Transport;

TEST_CASE("Weight transfer: a version is read from memory, and no file is written", "[core]") {
  Published t;
  const CallId first = t.SampleNow(0);
  const CallId second = t.SampleNow(1);
  CHECK(t.h.Done(first));
  CHECK(t.h.Done(second));
  CHECK(t.Sampled() == Words{"step 2 [1]"});
  CHECK(t.NumSaves() == 0);
  CHECK(t.NumServed() == 1);
  REQUIRE(t.other->Received<SendLoadVersion>().size() == 1);
  CHECK(t.LastLoad().dir.empty());
  CHECK(t.LastLoad().source_group == "g");
  CHECK(t.LastLoad().source_seq_id == 3);
  CHECK(t.Transports() == std::vector<Transport>{Transport::kMemory});
  t.h.Tick();
  CHECK(t.NumSaves() == 0);
  t.h.Advance(11 * kSecond);  // written with the snapshot
  CHECK(t.NumSaves() == 1);
}

TEST_CASE("Weight transfer: of many at once some go as files, and no transfer fails", "[core]") {
  constexpr int kVersions = 7;
  Served t;
  t.other->loads_versions = false;
  std::vector<CallId> samples;
  for (int i = 0; i < kVersions; ++i) {
    t.Train(3 * i + 1);
    t.Publish(3 * i + 3, i);
    samples.push_back(t.h.Sample(t.session + ":sample:" + std::to_string(i), 0));
    t.RunFirst();
  }
  CHECK(t.NumServed() == 4);
  CHECK(t.NumSaves() >= kVersions - 4);
  t.other->loads_versions = true;
  for (const SendLoadVersion& load : t.other->Received<SendLoadVersion>()) {
    if (load.source_group.empty()) continue;
    t.h.Post(WorkerVersionLoaded{"h", t.other->epoch(), load.version_id, 0});
  }
  t.RunAll();
  for (const CallId sample : samples) CHECK(t.h.Done(sample));
  const auto transports = t.Transports();
  CHECK(std::count(transports.begin(), transports.end(), Transport::kFailed) == 0);
}

TEST_CASE("Weight transfer: what could not be written either comes from memory after the pause",
          "[core]") {
  Published t;
  t.other->loads_versions = false;
  const CallId sample = t.SampleNow(0);
  t.h.worker->writes_to_disk = false;
  t.h.Post(t.other->LoseVersion(t.LastLoad().version_id));
  t.other->loads_versions = true;
  t.RunAll();
  CHECK_FALSE(t.h.Done(sample));
  t.h.Advance(61 * kSecond);
  t.RunAll();
  CHECK(t.h.Done(sample));
  CHECK(t.Transports() == std::vector<Transport>{Transport::kFailed, Transport::kMemory});
}

TEST_CASE("Weight transfer: samples are not sent before the version is there", "[core]") {
  Published t;
  t.other->loads_versions = false;
  const CallId sample = t.SampleNow(0);
  CHECK(t.LastLoad().source_group == "g");
  CHECK(t.other->Received<SendSample>().empty());

  SECTION("and it comes") {
    t.h.Post(WorkerVersionLoaded{"h", t.other->epoch(), t.LastLoad().version_id, 0});
    CHECK(t.other->Received<SendSample>().size() == 1);
  }
  SECTION("and it does not come: it is written, and read from there") {
    t.other->loads_versions = true;
    t.h.Post(t.other->LoseVersion(t.LastLoad().version_id));
    t.RunAll();
    CHECK(t.NumSaves() == 1);
    CHECK(t.h.Done(sample));
    CHECK_FALSE(t.LastLoad().dir.empty());
    CHECK(t.Transports() == std::vector<Transport>{Transport::kFailed, Transport::kFile});
  }
  SECTION("and the group that reads is lost") {
    t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
    t.other = &t.h.AttachOther("h", GroupRole::kSample);
    t.RunAll();
    CHECK(t.h.Done(sample));
    CHECK(t.NumSaves() == 0);
    CHECK(t.Sampled() == Words{"step 2 [1]"});
  }
  SECTION("and the group that reads dials again") {
    t.other->loads_versions = true;
    t.h.ReattachOther("h");
    t.RunAll();
    CHECK(t.h.Done(sample));
    CHECK(t.NumSaves() == 0);
  }
  SECTION("and no sample waits for it any more") {
    t.h.Post(FinishSession{++t.h.last_call, "t", t.session, "success", ""});
    t.h.Advance(1);
    t.h.Post(CancelSample{0, "t", t.h.AnswerTo(sample).id});
    CHECK_FALSE(t.other->Received<SendDropVersion>().empty());
  }
}

TEST_CASE("Weight transfer: after a failure versions are written for a while", "[core]") {
  Published t;
  t.other->is_cut_off = true;
  const CallId sample = t.SampleNow(0);
  CHECK(t.h.Done(sample));
  CHECK(t.h.ErrorOf(sample) == std::nullopt);
  CHECK(t.Sampled() == Words{"step 2 [1]"});
  t.other->is_cut_off = false;
  t.Train(4);
  t.Publish(6, 1);
  CHECK(t.NumSaves() == 2);  // at once, as transfers are paused
  t.sampler = t.session + ":sample:1";
  CHECK(t.h.Done(t.SampleNow(0)));
  CHECK(t.NumServed() == 1);
  t.h.Advance(61 * kSecond);
  t.RunAll();
  const size_t num_saves = t.NumSaves();
  t.Train(7);
  t.Publish(9, 2);
  t.sampler = t.session + ":sample:2";
  CHECK(t.h.Done(t.SampleNow(0)));
  CHECK(t.NumSaves() == num_saves);
  CHECK(t.NumServed() == 2);
  CHECK(t.Sampled() == Words{"step 2 [1]", "step 5 [4]", "step 8 [7]"});
}

TEST_CASE("Weight transfer: the group that serves is lost", "[core]") {
  Published t;

  SECTION("before the version is read: it is made again, and read then") {
    const CallId sample = t.h.Sample(t.sampler, 0);
    REQUIRE(t.NumServed() == 1);
    t.h.DetachWorker(/*process_gone=*/true);
    t.h.AttachWorker("p2");
    t.RunAll();
    CHECK(t.h.Done(sample));
    CHECK(t.h.ErrorOf(sample) == std::nullopt);
    CHECK(t.Sampled() == Words{"step 2 [1]"});
  }
  SECTION("while the version is read") {
    t.other->loads_versions = false;
    const CallId sample = t.SampleNow(0);
    t.h.DetachWorker(/*process_gone=*/true);
    t.h.Post(t.other->LoseVersion(t.LastLoad().version_id));
    t.other->loads_versions = true;
    t.h.AttachWorker("p2");
    t.RunAll();
    t.h.Tick();
    t.RunAll();
    CHECK(t.h.Done(sample));
    CHECK(t.h.ErrorOf(sample) == std::nullopt);
    CHECK(t.Sampled() == Words{"step 2 [1]"});
  }
  SECTION("after it was read: samples go on") {
    t.SampleNow(0);
    t.h.DetachWorker(/*process_gone=*/true);
    CHECK(t.h.Done(t.SampleNow(1)));
  }
  SECTION("its connection ends before it has the command to serve") {
    t.h.attached = false;
    const CallId sample = t.h.Sample(t.sampler, 0);
    REQUIRE(t.NumServed() == 0);
    t.h.DetachWorker();
    t.h.ReattachWorker();
    t.RunAll();
    CHECK(t.h.Done(sample));
    CHECK(t.NumSaves() == 0);
  }
}

TEST_CASE("Weight transfer: a version that its home cannot serve goes as a file", "[core]") {
  Published t;
  t.other->loads_versions = false;
  const CallId sample = t.h.Sample(t.sampler, 0);
  t.h.worker->TakeReports();
  const std::string version = t.h.worker->Received<SendServeVersion>().back().version_id;
  t.h.Post(WorkerVersionServed{.group = "g",
                               .epoch = t.h.worker->epoch(),
                               .version_id = version,
                               .reader = "h",
                               .error = ErrorInfo{}});
  t.other->loads_versions = true;
  t.RunAll();
  CHECK(t.NumSaves() == 1);
  CHECK(t.h.Done(sample));
}

TEST_CASE("Weight transfer: an inflight version moves on where it is sampled", "[core]") {
  Served t;
  t.Train(1);
  t.PublishInflight(3, 0);
  t.SampleNow(0);
  t.h.Sample(t.sampler, 1);  // a running sample
  t.Train(4);
  t.PublishInflight(6, 1);
  CHECK(t.NumServed() == 2);  // served without a new sample
  t.RunFirst();
  CHECK(t.LastLoad().inflight_seq_id == 6);
  CHECK(t.other->VersionWeights(t.version) == Words{"step 2 [1]", "step 5 [4]"});
  const CallId next = t.SampleNow(2);
  CHECK(t.h.Done(next));
  CHECK(t.NumServed() == 2);
  CHECK(t.NumSaves() == 0);
}

TEST_CASE("Weight transfer: of an inflight version samples wait for the newest publication",
          "[core]") {
  Served t;
  t.Train(1);
  t.PublishInflight(3, 0);
  t.other->loads_versions = false;
  const CallId sample = t.SampleNow(0);
  t.Train(4);
  t.PublishInflight(6, 1);
  t.h.Post(WorkerVersionLoaded{"h", t.other->epoch(), t.version, 3});
  CHECK(t.other->Received<SendSample>().empty());
  t.RunFirst();
  CHECK(t.LastLoad().inflight_seq_id == 6);
  t.h.Post(WorkerVersionLoaded{"h", t.other->epoch(), t.version, 6});
  CHECK(t.other->Received<SendSample>().size() == 1);
  t.RunAll();
  CHECK(t.h.Done(sample));
}

TEST_CASE("Weight transfer: several groups read it, each when it is needed there", "[core]") {
  Published t;
  t.SampleNow(0);
  FakeWorker& third = t.h.AttachOther("i", GroupRole::kSample);
  const CallId runs = t.h.Sample(t.sampler, 1);  // makes group "h" busier
  const CallId elsewhere = t.SampleNow(2);
  CHECK(t.h.Done(runs));
  CHECK(t.h.Done(elsewhere));
  CHECK(t.h.worker->Received<SendServeVersion>().back().reader == "i");
  CHECK(t.h.worker->Received<SendServeVersion>().back().num_reads == 1);
  REQUIRE(third.Received<SendLoadVersion>().size() == 1);
  CHECK(third.Received<SendLoadVersion>().back().source_group == "g");
  CHECK(t.NumSaves() == 0);
}

}  // namespace
}  // namespace lathe::engine

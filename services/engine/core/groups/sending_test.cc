// How many sequences a worker has, and whose.
#include "services/engine/core/groups/sending.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/testing/core_harness.h"
#include "services/engine/core/testing/two_groups.h"

namespace lathe::engine {
namespace {

constexpr int64_t kRunning = 8;  // the worker then has room for 10 sequences

// Samplers of some tenants, and a worker that reports how many samples it runs.
struct Tenants {
  CoreHarness h;
  std::map<std::string, int64_t> next_seq;     // by tenant
  std::map<std::string, std::string> tenants;  // by request id
  std::map<std::string, std::string> samplers;

  explicit Tenants(int64_t max_running_samples = kRunning) { Attach("p1", max_running_samples); }

  void Attach(const std::string& process_id, int64_t max_running_samples = kRunning) {
    h.AttachWorker(process_id, /*ready=*/false);
    h.worker->max_running_samples = max_running_samples;
    h.Post(WorkerReady{"g", *h.worker->Hello().ready});
  }
  CallId Sample(const std::string& tenant, int64_t num_samples = 1) {
    if (samplers.count(tenant) == 0) {
      const std::string session = h.NewSession(SessionOrdering::kSerial, tenant);
      samplers[tenant] = h.AnswerTo(h.Sampler(session, 0, "", tenant)).id;
    }
    const CallId call =
        h.Sample(samplers[tenant], ++next_seq[tenant], {num_samples, 3, 5, false, 0}, tenant);
    tenants[h.AnswerTo(call).id] = tenant;
    return call;
  }
  void SampleMany(const std::string& tenant, int count) {
    for (int i = 0; i < count; ++i) Sample(tenant);
  }
  int64_t NumSent(const std::string& tenant) const {
    int64_t num_sent = 0;
    for (const SendSample& sent : h.worker->Received<SendSample>()) {
      num_sent += tenants.at(sent.request_id) == tenant ? 1 : 0;
    }
    return num_sent;
  }
  void End(CallId call, int64_t num_ended) {
    h.Post(WorkerSampleProgress{"g", h.worker->epoch(), {{h.AnswerTo(call).id, num_ended}}});
  }
};

TEST_CASE("Sending: a worker has a quarter more sequences than it runs together", "[core]") {
  Tenants t;
  t.SampleMany("a", 30);
  CHECK(t.NumSent("a") == 10);
  t.h.RunWorkerOnce();
  CHECK(t.NumSent("a") == 11);
  t.h.RunWorker();
  CHECK(t.NumSent("a") == 30);
}

TEST_CASE("Sending: a worker that reports no number has that of the options", "[core]") {
  Tenants t(/*max_running_samples=*/0);
  t.SampleMany("a", 2100);
  CHECK(t.NumSent("a") == CoreOptions().max_inflight_sequences);
}

TEST_CASE("Sending: the next worker of a group has its own number", "[core]") {
  Tenants t(/*max_running_samples=*/4);
  t.SampleMany("a", 30);
  CHECK(t.NumSent("a") == 5);
  t.h.DetachWorker(/*process_gone=*/true);
  t.Attach("p2", /*max_running_samples=*/16);
  CHECK(t.NumSent("a") == 20);
}

TEST_CASE("Sending: a tenant's large first request holds up no other tenant", "[core]") {
  Tenants t;
  const CallId large = t.Sample("a", 1000);
  t.Sample("a", 1000);
  CHECK(t.NumSent("a") == 1);
  t.Sample("b");
  CHECK(t.NumSent("b") == 1);
  t.SampleMany("b", 20);
  CHECK(t.NumSent("b") == 5);  // half of 10
  t.SampleMany("c", 20);
  CHECK(t.NumSent("c") == 3);  // a third
  t.End(large, 997);
  CHECK(t.NumSent("a") == 1);
  t.End(large, 998);
  CHECK(t.NumSent("a") == 2);
}

TEST_CASE("Sending: sequences make room as they end, however often that is reported", "[core]") {
  Tenants t;
  const CallId group = t.Sample("a", 8);
  t.SampleMany("a", 12);
  REQUIRE(t.NumSent("a") == 1 + 2);
  t.End(group, 3);
  CHECK(t.NumSent("a") == 1 + 5);
  t.End(group, 3);
  t.End(group, 2);  // an earlier report
  CHECK(t.NumSent("a") == 1 + 5);
  t.h.Post(WorkerSampleProgress{"g", t.h.worker->epoch() - 1, {{t.h.AnswerTo(group).id, 8}}});
  t.h.Post(WorkerSampleProgress{"other", t.h.worker->epoch(), {{t.h.AnswerTo(group).id, 8}}});
  t.h.Post(WorkerSampleProgress{"g", t.h.worker->epoch(), {{"unknown", 8}}});
  CHECK(t.NumSent("a") == 1 + 5);
  t.h.RunWorkerOnce();  // the end of the request leaves room for its other sequences only
  CHECK(t.h.Done(group));
  CHECK(t.NumSent("a") == 1 + 10);
  t.End(group, 8);  // a report that comes late
  CHECK(t.NumSent("a") == 1 + 10);
  t.h.RunWorker();
  CHECK(t.NumSent("a") == 13);
}

TEST_CASE("Sending: a request that runs again counts anew", "[core]") {
  Tenants t;
  const CallId group = t.Sample("a", 8);
  t.SampleMany("a", 12);
  t.End(group, 6);
  REQUIRE(t.NumSent("a") == 1 + 8);

  SECTION("on another process") {
    t.h.DetachWorker(/*process_gone=*/true);
    t.Attach("p2");
    CHECK(t.NumSent("a") == 1 + 2);
    // The lost process may still say something.
    t.h.Post(WorkerSampleProgress{"g", t.h.worker->epoch() - 1, {{t.h.AnswerTo(group).id, 8}}});
    CHECK(t.NumSent("a") == 1 + 2);
  }
  SECTION("for another engine, which the worker then tells") {
    t.h.RestartEngine();
    t.h.worker->ForgetReceived();
    t.h.ReattachWorker();
    CHECK(t.NumSent("a") == 1 + 2);
    t.End(group, 6);
    CHECK(t.NumSent("a") == 1 + 8);
  }
  t.h.RunWorker();
  CHECK(t.h.Done(group));
}

TEST_CASE("Sending: groups that are full share what waits", "[core]") {
  Groups groups;
  CoreHarness& h = groups.h;
  for (FakeWorker* const worker : {h.worker.get(), groups.other}) {
    worker->max_running_samples = 4;
  }
  h.DetachWorker();
  h.ReattachWorker();
  h.ReattachOther("h");
  h.Sampler(groups.session, 0, "");
  std::map<std::string, int> num_placed;  // by group
  for (int64_t i = 1; i <= 40; ++i) {
    const Answer& answer = h.AnswerTo(h.Sample(groups.session + ":sample:0", i));
    const auto notified = h.notified_groups.find(answer.id);
    ++num_placed[notified == h.notified_groups.end() ? answer.group : notified->second];
  }
  CHECK(h.worker->Received<SendSample>().size() == 5);
  CHECK(groups.other->Received<SendSample>().size() == 5);
  CHECK(num_placed["g"] == 20);
  CHECK(num_placed["h"] == 20);
}

TEST_CASE("Sending: a sample that ends at one group is cancelled where it runs again", "[core]") {
  Tenants t(/*max_running_samples=*/1);
  const CallId first = t.Sample("a", 2);
  const CallId second = t.Sample("a");
  t.End(first, 1);  // no commit says so far that they were sent
  REQUIRE(t.NumSent("a") == 2);
  t.h.RestartEngine();
  FakeWorker& other = t.h.AttachOther("h");
  std::set<std::string> again;
  for (const SendSample& sent : other.Received<SendSample>()) again.insert(sent.request_id);
  CHECK(again == std::set<std::string>{t.h.AnswerTo(first).id, t.h.AnswerTo(second).id});
  CHECK(other.Received<SendSample>().size() == again.size());
  while (t.h.worker->HasWork()) t.h.worker->RunOne();
  t.h.ReattachWorker();
  for (EventBody& report : t.h.worker->TakeReports()) t.h.Post(std::move(report));
  CHECK(t.h.Done(second));
  std::set<std::string> cancelled;
  for (const SendCancel& cancel : other.Received<SendCancel>()) cancelled.insert(cancel.request_id);
  CHECK(cancelled == again);
  t.h.RunWorker();
  CHECK(t.h.ErrorOf(second) == std::nullopt);
  CHECK(other.acked().count(t.h.AnswerTo(second).id) == 1);
}

}  // namespace
}  // namespace lathe::engine

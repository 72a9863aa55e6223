// Samples that are placed in pieces after their worker was lost or one attached.
#include "services/engine/core/samplers/sample_placement.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

constexpr int64_t kPiece = 2;
constexpr int64_t kNumSamples = 9;

// A core that looks at two samples in each Step, and several samples that wait for a worker.
struct Waiting {
  CoreHarness h;
  std::string sampler;
  std::vector<CallId> samples;

  explicit Waiting(int64_t max_inflight_sequences = 100)
      : h(CoreOptions{.max_inflight_sequences = max_inflight_sequences, .max_swept = kPiece}) {
    h.AttachWorker("p1");
    const CallId call = h.Sampler(h.NewSession(), 0, "");
    sampler = h.AnswerTo(call).id;
    h.DetachWorker(/*process_gone=*/true);
    for (int64_t i = 0; i < kNumSamples; ++i) Submit();
    h.hold_continues = true;
  }
  CallId Submit() {
    samples.push_back(h.Sample(sampler, static_cast<int64_t>(samples.size())));
    return samples.back();
  }
  void ContinueToTheEnd() {
    while (h.is_continue_due) h.Continue();
  }
  size_t NumSent() const { return h.worker->Received<SendSample>().size(); }
  // The ids of all samples, in the order of their submission.
  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const CallId call : samples) ids.push_back(h.AnswerTo(call).id);
    return ids;
  }
  static std::vector<std::string> IdsSentTo(const FakeWorker& worker) {
    std::vector<std::string> ids;
    for (const SendSample& send : worker.Received<SendSample>()) ids.push_back(send.request_id);
    return ids;
  }
  bool AllDone() const {
    for (const CallId call : samples) {
      if (!h.Done(call) || h.ErrorOf(call)) return false;
    }
    return true;
  }
};

TEST_CASE("Placement: a Step places a few samples, the oldest first", "[core]") {
  Waiting t;
  t.h.AttachWorker("p2");
  CHECK(t.NumSent() == kPiece);
  REQUIRE(t.h.is_continue_due);
  t.h.Tick();
  CHECK(t.NumSent() == kPiece);
  t.h.Continue();
  CHECK(t.NumSent() == 2 * kPiece);
  t.ContinueToTheEnd();
  CHECK(t.IdsSentTo(*t.h.worker) == t.Ids());
  t.h.RunWorker();
  CHECK(t.AllDone());
}

TEST_CASE("Placement: a sample that comes meanwhile is sent after the older ones", "[core]") {
  Waiting t;
  t.h.AttachWorker("p2");
  t.Submit();
  CHECK(t.NumSent() == kPiece);
  t.ContinueToTheEnd();
  CHECK(t.IdsSentTo(*t.h.worker) == t.Ids());
  t.Submit();
  CHECK(t.IdsSentTo(*t.h.worker) == t.Ids());
}

TEST_CASE("Placement: a second loss forgets no sample", "[core]") {
  const int64_t num_pieces = GENERATE(0, 1, 3);
  Waiting t;
  t.h.AttachWorker("p2");
  for (int64_t i = 0; i < num_pieces; ++i) t.h.Continue();
  t.h.DetachWorker(/*process_gone=*/true);
  t.h.AttachWorker("p3");
  CHECK(t.NumSent() == 0);  // the Continue that is due does the next piece
  t.ContinueToTheEnd();
  CHECK(t.IdsSentTo(*t.h.worker) == t.Ids());
  t.h.RunWorker();
  CHECK(t.AllDone());
}

TEST_CASE("Placement: a worker that reconnects meanwhile gets each sample", "[core]") {
  Waiting t;
  t.h.AttachWorker("p2");
  t.h.Continue();
  t.h.DetachWorker();
  t.h.Continue();  // a piece while the worker is away
  t.h.ReattachWorker();
  t.ContinueToTheEnd();
  const std::vector<std::string> sent = Waiting::IdsSentTo(*t.h.worker);
  CHECK(std::set<std::string>(sent.begin(), sent.end()).size() == kNumSamples);
  CHECK(sent.size() == 2 * kPiece + kNumSamples);  // it may not have got the first ones
  t.h.RunWorker();
  CHECK(t.AllDone());
}

TEST_CASE("Placement: a sample that is cancelled meanwhile is not sent", "[core]") {
  Waiting t;
  t.h.AttachWorker("p2");
  const std::string id = t.Ids().back();
  t.h.Post(CancelSample{.tenant_id = "t", .request_id = id});
  CHECK(t.h.Done(t.samples.back()));
  t.ContinueToTheEnd();
  CHECK(t.NumSent() == kNumSamples - 1);
}

TEST_CASE("Placement: another leader places all samples", "[core]") {
  Waiting t;
  t.h.AttachWorker("p2");
  t.h.Continue();
  t.h.RestartEngine();
  t.h.is_continue_due = false;  // it went with its engine
  t.h.AttachWorker("p3");
  t.ContinueToTheEnd();
  CHECK(t.IdsSentTo(*t.h.worker) == t.Ids());
}

TEST_CASE("Placement: samples of a lost group go to another one", "[core]") {
  const bool is_removed = GENERATE(false, true);
  Waiting t;
  t.h.AttachWorker("p2");
  t.ContinueToTheEnd();
  FakeWorker& other = t.h.AttachOther("h");
  t.h.DetachWorker(/*process_gone=*/true);
  CHECK(other.Received<SendSample>().size() == kPiece);
  if (is_removed) {
    t.h.Post(RemoveGroup{++t.h.last_call, "g"});
    CHECK_FALSE(t.h.AnswerTo(t.h.last_call).error);
  }
  t.ContinueToTheEnd();
  CHECK(Waiting::IdsSentTo(other) == t.Ids());
  t.h.RunWorker();
  CHECK(t.AllDone());
}

TEST_CASE("Placement: a drain waits for the samples that are still to be placed", "[core]") {
  Waiting t(/*max_inflight_sequences=*/1);
  t.h.AttachWorker("p2");
  t.h.DetachWorker(/*process_gone=*/true);
  REQUIRE(t.h.is_continue_due);
  t.h.Post(Drain{++t.h.last_call});
  const CallId drain = t.h.last_call;
  CHECK(t.h.FindAnswer(drain) == nullptr);
  t.ContinueToTheEnd();
  REQUIRE(t.h.FindAnswer(drain) != nullptr);
  CHECK(t.h.AnswerTo(drain).pending_requests == kNumSamples);
}

}  // namespace
}  // namespace lathe::engine

#include "services/engine/core/samplers/samplers.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {
namespace {

TEST_CASE("Sampler: creation is idempotent on session and seq", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const CallId first = h.Sampler(session, 0, "");
  const CallId again = h.Sampler(session, 0, "");
  CHECK(h.AnswerTo(first).id == session + ":sample:0");
  CHECK(h.AnswerTo(again).id == h.AnswerTo(first).id);
}

TEST_CASE("Sampler: unknown base models and foreign checkpoints are not found", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"}, OperationKind::kSaveWeightsForSampler);
  h.RunWorker();
  const std::string path = "tinker://" + h.model + "/sampler_weights/a";
  const std::string foreign = h.NewSession(SessionOrdering::kSerial, "u");
  CHECK(h.AnswerTo(h.Sampler(foreign, 0, path, "u")).error->status == absl::StatusCode::kNotFound);
  h.Post(PublishCheckpoint{++h.last_call, "t", path, true});
  CHECK_FALSE(h.AnswerTo(h.Sampler(foreign, 1, path, "u")).error.has_value());
}

TEST_CASE("Sample: a request gets its seed, its limit and stable sequence ids", "[core]") {
  SamplerHarness h;
  const CallId call = h.Sample(h.sampler, 7, {2, 30, 0, false, 0});
  CHECK(h.AnswerTo(call).sample_sequence_ids ==
        std::vector<std::string>{h.sampler + ":7:0", h.sampler + ":7:1"});
  const auto sent = h.worker->Received<SendSample>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].max_tokens == 70);
  CHECK(sent[0].version_id.empty());
  CHECK(sent[0].tenant_id == "t");
  h.RunWorker();
  const CallId again = h.Sample(h.sampler, 7, {2, 30, 0, false, 0});
  CHECK(h.AnswerTo(again).sample_sequence_ids == h.AnswerTo(call).sample_sequence_ids);
  CHECK(h.AnswerTo(again).id == h.AnswerTo(call).id);
}

TEST_CASE("Sample: a restart keeps the seed that was drawn", "[core]") {
  SamplerHarness h;
  h.Sample(h.sampler, 1);
  const uint64_t seed = h.worker->Received<SendSample>()[0].seed;
  h.RestartEngine();
  h.AttachWorker("p2");
  REQUIRE(h.worker->Received<SendSample>().size() == 1);
  CHECK(h.worker->Received<SendSample>()[0].seed == seed);
}

TEST_CASE("Sample: prompt and max_tokens over the context are refused at submission", "[core]") {
  SamplerHarness h;
  const CallId call = h.Sample(h.sampler, 1, {1, 60, 41, false, 0});
  CHECK(h.AnswerTo(call).error->message ==
        "Prompt length plus max_tokens exceeds the model's context window: 60 prompt tokens + 41 "
        "max_tokens > 100.");
}

TEST_CASE("Sample: what no worker's kv cache can hold is refused, or cut to what it holds",
          "[core]") {
  CoreHarness h;
  h.AttachWorker("p1", /*ready=*/false);
  h.worker->kv_cache_tokens = 48;
  h.Post(WorkerReady{"g", *h.worker->Hello().ready});
  const std::string session = h.NewSession();
  h.Sampler(session, 0, "");
  const CallId call = h.Sample(session + ":sample:0", 1, {1, 40, 9, false, 0});
  CHECK(h.AnswerTo(call).error->message ==
        "Prompt length plus max_tokens exceeds the kv cache of a worker: 40 prompt tokens + 9 "
        "max_tokens > 48.");
  h.Sample(session + ":sample:0", 2, {1, 40, 8, false, 0});
  h.Sample(session + ":sample:0", 3, {1, 40, 0, false, 0});
  const auto sent = h.worker->Received<SendSample>();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].max_tokens == 8);
  CHECK(sent[1].max_tokens == 8);
}

TEST_CASE("Sample: sequences in flight are bounded", "[core]") {
  CoreOptions options;
  options.max_inflight_sequences = 4;
  SamplerHarness h(options);
  for (int64_t seq = 1; seq <= 6; ++seq) h.Sample(h.sampler, seq, {2, 3, 5, false, 0});
  CHECK(h.worker->Received<SendSample>().size() == 2);
  h.RunWorker();
  CHECK(h.worker->Received<SendSample>().size() == 6);
}

TEST_CASE("Sample: a checkpoint's version is loaded once per formation", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.RunWorker();
  h.Sampler(h.session, 0, "tinker://" + h.model + "/weights/a");
  h.Sample(h.session + ":sample:0", 1);
  h.Sample(h.session + ":sample:0", 2);
  CHECK(h.worker->Received<SendLoadVersion>().size() == 1);
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2");
  CHECK(h.worker->Received<SendLoadVersion>().size() == 1);
  h.RunWorker();
  CHECK(h.worker->Received<SendSample>().size() == 2);
}

TEST_CASE("Sample: a version that could not be loaded is tried again", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.RunWorker();
  h.Sampler(h.session, 0, "tinker://" + h.model + "/weights/a");
  h.Sample(h.session + ":sample:0", 1);
  const std::string version = h.worker->Received<SendLoadVersion>()[0].version_id;
  h.Post(h.worker->LoseVersion(version));
  h.Sample(h.session + ":sample:0", 2);
  CHECK(h.worker->Received<SendLoadVersion>().size() == 2);
}

TEST_CASE("Version: an unnamed save makes a sampler and a repetition returns it", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  const CallId first =
      h.Save(model, 1, {.sampling_session_seq_id = 4}, OperationKind::kSaveWeightsForSampler);
  const CallId again =
      h.Save(model, 1, {.sampling_session_seq_id = 5}, OperationKind::kSaveWeightsForSampler);
  h.RunWorker();
  CHECK(h.AnswerTo(again).id == h.AnswerTo(first).id);
  CHECK(h.ResultOf(first)->sampling_session_id == session + ":sample:4");
  const CallId sample = h.Sample(session + ":sample:4", 0);
  h.RunWorker();
  CHECK(h.StateOf(sample) == RequestState::kDone);
  CHECK(h.worker->Received<SendSample>()[0].version_id == model + "@1");
}

TEST_CASE("Inflight: a later save moves the samplers of its model, and no others", "[core]") {
  ModelHarness h;
  const std::string snapshot = Publish(h, h.model, 1, 0);
  const std::string first = Publish(h, h.model, 2, 1, /*inflight=*/true);
  const std::string second = Publish(h, h.model, 3, 2, /*inflight=*/true);
  CHECK(first != second);
  for (const std::string& sampler : {first, second, snapshot}) h.Sample(sampler, 1);
  const auto published = h.worker->Received<SendPublishVersion>();
  REQUIRE(published.size() == 3);
  CHECK_FALSE(published[0].is_inflight);
  CHECK(published[1].is_inflight);
  CHECK(published[2].version_id == published[1].version_id);
  const auto samples = h.worker->Received<SendSample>();
  REQUIRE(samples.size() == 3);
  CHECK(samples[0].version_id == published[1].version_id);
  CHECK(samples[1].version_id == published[1].version_id);
  CHECK(samples[2].version_id == published[0].version_id);
}

TEST_CASE("Inflight: the shared version outlives a bound, a restart and all but its last sampler",
          "[core]") {
  CoreOptions options;
  options.sampler_versions_bytes = 100;  // size of one version of the fake worker
  ModelHarness h(options);
  const std::string inflight = Publish(h, h.model, 1, 0, /*inflight=*/true);
  Publish(h, h.model, 2, 1, /*inflight=*/true);
  for (int64_t i = 2; i < 8; ++i) Publish(h, h.model, i + 1, i);
  h.RestartEngine();
  h.ReattachWorker();
  const CallId call = h.Sample(inflight, 1);
  h.RunWorker();
  CHECK(h.StateOf(call) == RequestState::kDone);
  for (const SendDropVersion& drop : h.worker->Received<SendDropVersion>()) {
    CHECK(drop.version_id != h.model + "@inflight");
  }
  h.Post(FinishSession{++h.last_call, "t", h.session, "success", ""});
  h.RunWorker();
  int64_t num_drops = 0;
  for (const SendDropVersion& drop : h.worker->Received<SendDropVersion>()) {
    num_drops += drop.version_id == h.model + "@inflight";
  }
  CHECK(num_drops == 1);
}

TEST_CASE("Sampler: every copy of a client gets another number, after a restart too", "[core]") {
  SamplerHarness h;
  const auto join = [&](const std::string& tenant) {
    h.Post(JoinSamplingSession{++h.last_call, tenant, h.sampler});
    return h.AnswerTo(h.last_call);
  };
  CHECK(join("t").client_counter == 1);
  CHECK(join("t").client_counter == 2);
  CHECK(join("u").error->status == absl::StatusCode::kNotFound);
  h.RestartEngine();
  CHECK(join("t").client_counter == 3);
  h.HoldCommits();
  h.Post(JoinSamplingSession{++h.last_call, "t", h.sampler});
  CHECK(h.FindAnswer(h.last_call) == nullptr);
  h.CommitAll();
  CHECK(h.AnswerTo(h.last_call).client_counter == 4);
}

TEST_CASE("Version: the end of its session frees it on the worker", "[core]") {
  ModelHarness h;
  Publish(h, h.model, 1, 0);
  h.Post(FinishSession{++h.last_call, "t", h.session, "success", ""});
  const auto drops = h.worker->Received<SendDropVersion>();
  REQUIRE(drops.size() == 1);
  CHECK(drops[0].version_id == h.model + "@1");
}

TEST_CASE("Version: the least recently sampled go when a tenant has too much", "[core]") {
  CoreOptions options;
  options.sampler_versions_bytes = 500;  // size of five versions of the fake worker
  ModelHarness h(options);
  std::vector<std::string> samplers;
  for (int64_t i = 0; i < 5; ++i) samplers.push_back(Publish(h, h.model, i + 1, i));
  h.Sample(samplers[0], 1);
  h.RunWorker();
  samplers.push_back(Publish(h, h.model, 6, 5));
  // The newest four stay, and of the other two the one sampled last.
  const CallId dropped = h.Sample(samplers[1], 1);
  CHECK(h.ErrorOf(dropped)->code == "version_dropped");
  const CallId kept = h.Sample(samplers[0], 2);
  h.RunWorker();
  CHECK(h.StateOf(kept) == RequestState::kDone);
  CHECK(h.worker->Received<SendDropVersion>().size() == 1);
}

TEST_CASE("Version: a dropping that got lost is repeated when the worker is adopted", "[core]") {
  CoreOptions options;
  options.sampler_versions_bytes = 100;
  ModelHarness h(options);
  for (int64_t i = 0; i < 5; ++i) Publish(h, h.model, i + 1, i);
  REQUIRE(h.worker->Received<SendDropVersion>().size() == 1);
  const std::string dropped = h.worker->Received<SendDropVersion>().front().version_id;
  WorkerAttached hello = h.worker->Hello();
  hello.versions.push_back({dropped, 1});
  h.DetachWorker();
  h.ReattachAs(hello);
  REQUIRE(h.worker->Received<SendDropVersion>().size() == 2);
  CHECK(h.worker->Received<SendDropVersion>().back().version_id == dropped);
}

TEST_CASE("Version: of an unloaded model, what only the lost worker held fails", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  h.worker->writes_to_disk = false;
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  const std::string sampler = Publish(h, model, 1, 0);
  h.Sampler(session, 1, "");
  h.SubmitArgs(model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
  h.RunWorker();
  REQUIRE(h.worker->Received<SendSaveVersion>().size() == 1);
  CHECK(h.worker->Holds(model));  // the unwritten version needs the model
  const SendSaveVersion save = h.worker->Received<SendSaveVersion>().front();
  WorkerVersionSaved failed;
  failed.group = "g";
  failed.epoch = h.worker->epoch();
  failed.version_id = save.version_id;
  failed.dir = save.dir;
  failed.error = ErrorInfo{absl::StatusCode::kResourceExhausted, "disk_full", "", "disk full"};
  h.Post(failed);
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(model));
  const CallId pending = h.Sample(sampler, 1);
  const CallId base = h.Sample(session + ":sample:1", 1);
  h.AttachWorker("p2");
  CHECK(h.ErrorOf(pending)->code == "version_lost");
  CHECK(h.ErrorOf(h.Sample(sampler, 2))->status == absl::StatusCode::kDataLoss);
  h.RunWorker();
  CHECK(h.StateOf(base) == RequestState::kDone);
}

TEST_CASE("Version: an adopted worker still serves what it holds", "[core]") {
  ModelHarness h;
  const std::string sampler = Publish(h, h.model, 1, 0);
  h.RestartEngine();
  h.ReattachWorker();
  const CallId call = h.Sample(sampler, 1);
  h.RunWorker();
  CHECK(h.StateOf(call) == RequestState::kDone);
}

TEST_CASE("Sample: one that is cancelled fails, and its worker drops it", "[core]") {
  SamplerHarness h;
  const CallId call = h.Sample(h.sampler, 1);
  const std::string id = h.AnswerTo(call).id;
  h.Post(CancelSample{.tenant_id = "other tenant", .request_id = id});
  CHECK_FALSE(h.Done(call));
  h.Post(CancelSample{.tenant_id = "t", .request_id = id});
  REQUIRE(h.Done(call));
  CHECK(h.ErrorOf(call)->code == "cancelled");
  REQUIRE(h.worker->Received<SendCancel>().size() == 1);
  CHECK(h.worker->Received<SendCancel>()[0].request_id == id);
  // Later reports about the sample change nothing.
  h.RunWorker();
  CHECK(h.ErrorOf(call)->code == "cancelled");
}

TEST_CASE("Sample: one that waits for a worker can be cancelled, a complete one not", "[core]") {
  SamplerHarness h;
  const CallId complete = h.Sample(h.sampler, 1);
  h.RunWorker();
  h.Post(CancelSample{.tenant_id = "t", .request_id = h.AnswerTo(complete).id});
  CHECK(h.StateOf(complete) == RequestState::kDone);
  h.DetachWorker();
  const CallId waiting = h.Sample(h.sampler, 2);
  h.Post(CancelSample{.tenant_id = "t", .request_id = h.AnswerTo(waiting).id});
  CHECK(h.ErrorOf(waiting)->code == "cancelled");
  CHECK(h.worker->Received<SendCancel>().empty());
}

}  // namespace
}  // namespace lathe::engine

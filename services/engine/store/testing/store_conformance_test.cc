// Promises of every store about commits, terms, requests, bodies and results.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

int64_t Lead(Store& store) {
  const absl::StatusOr<StoredState> state = store.TakeLeadership();
  INFO(state.status());
  REQUIRE(state.ok());
  return state->term;
}

void Commit(Store& store, int64_t term, const std::vector<Write>& writes,
            const std::vector<Blob>& blobs = {}) {
  const absl::Status status = store.Commit(term, writes, blobs);
  INFO(status);
  REQUIRE(status.ok());
}

TEST_CASE("Store: each leadership has a higher term, also after a restart", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t first = Lead(harness->store());
  const int64_t second = Lead(harness->store());
  harness->Reopen();
  CHECK(second > first);
  CHECK(Lead(harness->store()) > second);
}

TEST_CASE("Store: a commit under an old term is refused and changes nothing", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t old_term = Lead(harness->store());
  const int64_t term = Lead(harness->store());
  const std::vector<Write> writes = {PutSession{TestSession("s1")}};
  CHECK(harness->store().Commit(old_term, writes, {}).code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(harness->store().FindSession("t1", "s1")->has_value());
  Commit(harness->store(), term, writes);
  CHECK(harness->store().FindSession("t1", "s1")->has_value());
}

TEST_CASE("Store: a commit that fails half way leaves nothing behind", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  const std::vector<Write> writes = {PutSession{TestSession("s1")},
                                     CompleteRequest{.request_id = "r1", .result_id = "missing"}};
  CHECK_FALSE(harness->store().Commit(term, writes, {}).ok());
  CHECK_FALSE(harness->store().FindSession("t1", "s1")->has_value());
}

TEST_CASE("Store: a leader gets back every field of what was committed", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  RequestRow request = TestRequest("r1", 3);
  request.body_id = "b1";
  request.body_bytes = 4;
  ModelRow model = TestModel("s1:train:0");
  model.applied_seq = 7;
  model.closed_seq = 5;
  model.move_to = "h";
  SamplerRow sampler{.sampling_session_id = "s1:sample:0",
                     .session_id = "s1",
                     .tenant_id = "t1",
                     .sampling_session_seq_id = 2,
                     .base_model = "tiny",
                     .model_path = "p",
                     .model_id = "s1:train:0",
                     .version_id = "v",
                     .checkpoint_dir = "d",
                     .created_at = 9,
                     .num_joined = 3};
  BaseModelRow base{
      .name = "tiny",
      .content_hash = "h",
      .arch = "qwen3",
      .tokenizer_id = "/t",
      .max_context_length = 2048,
      .vocab_size = 768,
      .max_lora_rank = 512,
      .token_budget = 4096,
      .lora_modules = {{"q_proj", LoraFamily::kAttention}, {"router", LoraFamily::kMlp}}};
  Commit(harness->store(), term,
         {PutSession{TestSession("s1")}, PutModel{model}, InsertRequest{request},
          MarkDispatched{"r1", 4}, PutCheckpoint{TestCheckpoint("tinker://m/weights/final")},
          PutSampler{sampler}, PutBaseModel{{.name = "tiny"}}, PutBaseModel{base},
          PutGroup{{.group = "g",
                    .base_model = "tiny",
                    .epoch = 4,
                    .process_id = "p",
                    .is_draining = true}},
          TouchSession{"s1", 77}},
         {{"b1", "body"}});
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state.ok());
  REQUIRE(state->sessions.size() == 1);
  CHECK(state->sessions[0].heartbeat_at == 77);
  CHECK(state->sessions[0].user_metadata == Metadata{{"k", "v"}});
  REQUIRE(state->models.size() == 1);
  CHECK(state->models[0].lora.seed == ~uint64_t{0});
  CHECK(state->models[0].lora.alpha == 12.5);
  CHECK_FALSE(state->models[0].lora.train_mlp);
  CHECK(state->models[0].lora.target_modules == std::vector<std::string>{"q_proj", "lm_head"});
  CHECK(state->models[0].applied_seq == 7);
  CHECK(state->models[0].closed_seq == 5);
  CHECK(state->models[0].move_to == "h");
  CHECK(state->models[0].state == ModelState::kReady);
  REQUIRE(state->requests.size() == 1);
  CHECK(state->requests[0].state == RequestState::kDispatched);
  CHECK(state->requests[0].epoch == 4);
  CHECK(state->requests[0].plan == request.plan);
  CHECK(state->requests[0].body_id == "b1");
  CHECK(state->requests[0].content_hash == "hash");
  REQUIRE(state->checkpoints.size() == 1);
  CHECK(state->checkpoints[0].dir == "c1");
  REQUIRE(state->samplers.size() == 1);
  CHECK(state->samplers[0].version_id == "v");
  CHECK(state->samplers[0].sampling_session_seq_id == 2);
  REQUIRE(state->base_models.size() == 1);
  CHECK(state->base_models[0].token_budget == 4096);
  CHECK(state->base_models[0].lora_modules == base.lora_modules);
  REQUIRE(state->groups.size() == 1);
  CHECK(state->groups[0].process_id == "p");
  CHECK(state->groups[0].is_draining);
  CHECK(*harness->store().ReadBody("b1") == "body");
}

TEST_CASE("Store: an ended session stays loaded while a model of it is at work", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  SessionRow ended = TestSession("s1");
  ended.state = SessionState::kEnded;
  RequestRow old = TestRequest("r1", 1);
  old.state = RequestState::kDone;
  Commit(harness->store(), term,
         {PutSession{ended}, PutModel{TestModel("s1:train:0")}, InsertRequest{old}});
  CHECK(harness->store().TakeLeadership()->requests.size() == 1);

  ModelRow unloaded = TestModel("s1:train:0");
  unloaded.state = ModelState::kUnloaded;
  Commit(harness->store(), Lead(harness->store()), {PutModel{unloaded}});
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  CHECK(state->sessions.empty());
  CHECK(state->models.empty());
  CHECK(state->requests.empty());
  CHECK(harness->store().FindModel("t1", "s1:train:0")->has_value());
}

TEST_CASE("Store: delivered training requests that their model's row covers are not loaded",
          "[store]") {
  auto harness = MakeStoreHarness();
  ModelRow model = TestModel("s1:train:0");
  model.closed_seq = model.log_from_seq = 4;
  model.gradient_from_seq = 3;
  std::vector<Write> writes = {PutSession{TestSession("s1")}, PutModel{model}};
  for (int64_t seq = 1; seq <= 5; ++seq) {
    RequestRow row = TestRequest(absl::StrCat("r", seq), seq);
    row.state = RequestState::kDone;
    row.done_at = row.delivered_at = 9;
    if (seq == 2) row = TestRequest("r2", seq);  // ends below
    if (seq == 3) row.kind = OperationKind::kLoadWeights;
    writes.push_back(InsertRequest{row});
  }
  writes.push_back(CompleteRequest{"r2", RequestState::kDone, "x", 9});
  Commit(harness->store(), Lead(harness->store()), writes, {{"x", "result"}});
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  std::vector<std::string> loaded;
  for (const RequestRow& row : state->requests) loaded.push_back(row.request_id);
  CHECK(loaded == std::vector<std::string>{"r2", "r3", "r4", "r5"});
}

TEST_CASE("Store: the first result of a request stays", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  Commit(harness->store(), term, {InsertRequest{TestRequest("r1", 1)}});
  CHECK((*harness->store().FindRequest("t1", "r1"))->state == RequestState::kAccepted);
  CHECK_FALSE(harness->store().ReadResult("t1", "r1")->has_value());
  Commit(harness->store(), term, {CompleteRequest{"r1", RequestState::kDone, "x", 10}},
         {{"x", "first"}});
  Commit(harness->store(), term, {CompleteRequest{"r1", RequestState::kFailed, "y", 11}},
         {{"y", "second"}});
  CHECK((*harness->store().ReadResult("t1", "r1"))->bytes == "first");
  CHECK((*harness->store().FindRequest("t1", "r1"))->state == RequestState::kDone);
  CHECK_FALSE(harness->store().FindRequest("t1", "r2")->has_value());
}

TEST_CASE("Store: one key cannot hold two live requests", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  Commit(harness->store(), term, {InsertRequest{TestRequest("r1", 1)}});
  const std::vector<Write> same_key = {InsertRequest{TestRequest("r2", 1)}};
  CHECK_FALSE(harness->store().Commit(term, same_key, {}).ok());
  RequestRow other_class = TestRequest("r2", 1);
  other_class.op_class = OpClass::kSample;
  Commit(harness->store(), term, {InsertRequest{other_class}});
}

TEST_CASE("Store: a finished request gives its key to a new one", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  Commit(harness->store(), term,
         {InsertRequest{TestRequest("r1", 1)}, CompleteRequest{"r1", RequestState::kDone, "x", 5}},
         {{"x", "result"}});
  Commit(harness->store(), term, {InsertRequest{TestRequest("r2", 1)}});
  CHECK_FALSE(harness->store().FindRequest("t1", "r1")->has_value());
  CHECK((*harness->store().FindRequest("t1", "r2"))->state == RequestState::kAccepted);
}

TEST_CASE("Store: results end by retention and rows say so until they are gone too", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = Lead(store);
  for (int64_t seq = 1; seq <= 3; ++seq) {
    const std::string id = "r" + std::to_string(seq);
    Commit(store, term,
           {InsertRequest{TestRequest(id, seq)},
            CompleteRequest{id, RequestState::kDone, id, 100 * seq}},
           {{id, "bytes"}});
  }
  Commit(store, term, {MarkDelivered{"r2", 250}, MarkDelivered{"r2", 900}});
  PurgeAll(store, term, {.delivered_before = 260, .done_before = 150});
  CHECK((*store.FindRequest("t1", "r1"))->result_expired);
  CHECK((*store.FindRequest("t1", "r2"))->result_expired);
  CHECK_FALSE((*store.FindRequest("t1", "r3"))->result_expired);
  CHECK((*store.ReadResult("t1", "r3"))->bytes == "bytes");
  PurgeAll(store, term, {.rows_before = 150});
  CHECK_FALSE(store.FindRequest("t1", "r1")->has_value());
  CHECK(store.FindRequest("t1", "r2")->has_value());
}

TEST_CASE("Store: samples that ended are listed in order until they are delivered", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  for (int64_t seq = 1; seq <= 4; ++seq) {
    RequestRow request = TestRequest("r" + std::to_string(seq), seq);
    request.op_class = OpClass::kSample;
    request.owner_id = "sampler";
    Commit(harness->store(), term, {InsertRequest{request}});
  }
  Commit(harness->store(), term,
         {CompleteRequest{"r3", RequestState::kDone, "x", 50, 8},
          CompleteRequest{"r1", RequestState::kFailed, "y", 40, 9},
          CompleteRequest{"r2", RequestState::kDone, "x", 50, 7}},
         {{"x", "bytes"}, {"y", "no"}});
  Commit(harness->store(), term, {MarkDelivered{"r2", 60}});
  harness->Reopen();
  const std::vector<CompletionRow> rows = *harness->store().ListUndeliveredSamples();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].request_id == "r3");
  CHECK(rows[0].completion_number == 8);
  CHECK(rows[0].sampling_session_id == "sampler");
  CHECK(rows[0].tenant_id == "t1");
  CHECK(rows[0].seq_id == 3);
  CHECK(rows[0].state == RequestState::kDone);
  CHECK(rows[0].done_at == 50);
  CHECK(rows[0].result_bytes == 5);
  CHECK(rows[1].request_id == "r1");
  CHECK(rows[1].state == RequestState::kFailed);
  PurgeAll(harness->store(), Lead(harness->store()), {.done_before = 45});
  CHECK(harness->store().ListUndeliveredSamples()->size() == 1);
}

TEST_CASE("Store: bodies of both sizes are read back and dropped", "[store]") {
  const int64_t size = GENERATE(int64_t{0}, kInlineBodyBytes, kInlineBodyBytes + 1);
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  const std::string body(size, 'x');
  RequestRow request = TestRequest("r1", 1);
  request.body_id = "b1";
  request.body_bytes = size;
  std::vector<Blob> blobs;
  if (size > kInlineBodyBytes) {
    REQUIRE(harness->store().PutLargeBody("b1", body).ok());
  } else {
    blobs.push_back({"b1", body});
  }
  Commit(harness->store(), term, {InsertRequest{request}}, blobs);
  harness->Reopen();
  REQUIRE(harness->store().ReadBody("b1").ok());
  CHECK(*harness->store().ReadBody("b1") == body);
  Commit(harness->store(), Lead(harness->store()), {DropBody{"b1"}});
  CHECK(harness->store().ReadBody("b1").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Store: bodies without a live request are gone when a new leader begins", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  REQUIRE(harness->store().PutLargeBody("orphan", std::string(kInlineBodyBytes + 1, 'x')).ok());
  RequestRow request = TestRequest("r1", 1);
  request.body_id = "small";
  request.body_bytes = 1;
  Commit(harness->store(), term,
         {InsertRequest{request}, CompleteRequest{"r1", RequestState::kDone, "x", 5}},
         {{"small", "s"}, {"x", "result"}});
  harness->Reopen();
  Lead(harness->store());
  CHECK_FALSE(harness->store().ReadBody("orphan").ok());
  CHECK_FALSE(harness->store().ReadBody("small").ok());
}

TEST_CASE("Store: a discarded large body is gone", "[store]") {
  auto harness = MakeStoreHarness();
  REQUIRE(harness->store().PutLargeBody("b1", "bytes").ok());
  harness->store().DiscardLargeBody("b1");
  CHECK_FALSE(harness->store().ReadBody("b1").ok());
}

TEST_CASE("Store: a secret is random, stays, and differs by name", "[store]") {
  auto harness = MakeStoreHarness();
  CHECK_FALSE(*harness->store().HasSecret("a"));
  const std::string secret = *harness->store().Secret("a");
  CHECK(*harness->store().HasSecret("a"));
  CHECK_FALSE(*harness->store().HasSecret("b"));
  CHECK(secret.size() >= 32);
  CHECK(*harness->store().Secret("b") != secret);
  harness->Reopen();
  CHECK(*harness->store().Secret("a") == secret);
}

TEST_CASE("Store: a leader gets back snapshots and versions of models that live", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Lead(harness->store());
  SessionRow ended = TestSession("s2");
  ended.state = SessionState::kEnded;
  ModelRow unloaded = TestModel("s2:train:0", "s2");
  unloaded.state = ModelState::kUnloaded;
  const VersionRow version{.version_id = "v1",
                           .model_id = "s1:train:0",
                           .tenant_id = "t1",
                           .seq_id = 4,
                           .is_inflight = true,
                           .dir = "d",
                           .size_bytes = 6,
                           .manifest_sha256 = "sha"};
  VersionRow dropped = version;
  dropped.version_id = "v2";
  Commit(
      harness->store(), term,
      {PutSession{TestSession("s1")}, PutModel{TestModel("s1:train:0")}, PutSession{ended},
       PutModel{unloaded}, PutSnapshot{TestSnapshot("n2", 20)}, PutSnapshot{TestSnapshot("n1", 10)},
       PutSnapshot{TestSnapshot("n0", 5)}, PutSnapshot{TestSnapshot("other", 1, "s2:train:0")},
       DeleteSnapshot{"n0"}, PutVersion{version}, PutVersion{dropped}, DeleteVersion{"v2"}});
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state.ok());
  REQUIRE(state->snapshots.size() == 2);
  CHECK(state->snapshots[0].snapshot_id == "n1");
  CHECK(state->snapshots[1].snapshot_id == "n2");
  CHECK(state->snapshots[1].applied_seq == 20);
  CHECK(state->snapshots[1].window == "8,9");
  CHECK(state->snapshots[1].size_bytes == 5);
  CHECK(state->snapshots[1].manifest_sha256 == "sha");
  CHECK(state->snapshots[1].term == 3);
  REQUIRE(state->versions.size() == 1);
  CHECK(state->versions[0].version_id == "v1");
  CHECK(state->versions[0].seq_id == 4);
  CHECK(state->versions[0].is_inflight);
  CHECK(state->versions[0].dir == "d");
}

TEST_CASE("Store: of ended requests a leader gets those that it may be asked for again",
          "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = Lead(store);
  const int64_t now = absl::GetCurrentTimeNanos();
  ModelRow model = TestModel("s1:train:0");
  model.closed_seq = model.gradient_from_seq = model.log_from_seq = 4;
  SamplerRow sampler;
  sampler.sampling_session_id = "s1:sample:0";
  sampler.session_id = "s1";
  RequestRow refused = TestRequest("refused", 3);
  refused.state = RequestState::kFailed;
  refused.done_at = now;
  RequestRow sample = TestRequest("old sample", 1, "s1:sample:0");
  sample.op_class = OpClass::kSample;
  Commit(store, term,
         {PutSession{TestSession("s1")}, PutModel{model}, PutSampler{sampler},
          InsertRequest{TestRequest("recent", 1)}, InsertRequest{TestRequest("old", 2)},
          InsertRequest{refused}, InsertRequest{TestRequest("logged", 5)}, InsertRequest{sample}});
  Commit(store, term,
         {CompleteRequest{"recent", RequestState::kDone, "x", 200},
          CompleteRequest{"old", RequestState::kDone, "x", 50},
          CompleteRequest{"logged", RequestState::kDone, "x", 50},
          CompleteRequest{"old sample", RequestState::kDone, "x", 50}},
         {{"x", "r"}});
  PurgeAll(store, term, {.done_before = 100});
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state.ok());
  std::set<std::string> ids;
  for (const RequestRow& row : state->requests) ids.insert(row.request_id);
  CHECK(ids == std::set<std::string>{"recent", "refused", "logged"});
}

TEST_CASE("Store: data that rebuilds a model survives the end of its requests", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = Lead(store);
  ModelRow model = TestModel("s1:train:0");
  model.log_from_seq = 3;
  const auto pass = [](const std::string& id, int64_t seq, const std::string& body) {
    RequestRow row = TestRequest(id, seq);
    row.kind = OperationKind::kForwardBackward;
    row.body_id = body;
    row.body_bytes = 4;
    return InsertRequest{row};
  };
  RequestRow step = TestRequest("r5", 5);
  step.kind = OperationKind::kOptimStep;
  RequestRow creation = TestRequest("r0", 0, "s1");
  creation.op_class = OpClass::kModel;
  creation.kind = OperationKind::kLoadWeights;
  Commit(store, term,
         {PutSession{TestSession("s1")}, PutModel{model}, pass("r3", 3, "b3"), pass("r4", 4, "b4"),
          pass("r6", 6, "b6"), InsertRequest{step}, InsertRequest{creation}},
         {{"b3", "old "}, {"b4", "kept"}, {"b6", "fail"}});
  Commit(store, term,
         {CompleteRequest{"r0", RequestState::kDone, "x0", 50},
          CompleteRequest{"r3", RequestState::kDone, "x3", 50},
          CompleteRequest{"r4", RequestState::kDone, "x4", 50},
          CompleteRequest{"r6", RequestState::kFailed, "x6", 50},
          CompleteRequest{"r5", RequestState::kDone, "x5", 50, 0, "4"}},
         {{"x0", "r"}, {"x3", "r"}, {"x4", "r"}, {"x5", "r"}, {"x6", "r"}});
  PurgeAll(store, term, {100, 100, 100});
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state.ok());
  CHECK(state->models[0].log_from_seq == 3);
  std::vector<std::string> ids;
  for (const RequestRow& row : state->requests) {
    ids.push_back(row.request_id);
    if (row.request_id == "r5") CHECK(row.outcome == "4");
  }
  CHECK(ids == std::vector<std::string>{"r0", "r4", "r5", "r6"});
  CHECK(*harness->store().ReadBody("b4") == "kept");
  CHECK_FALSE(harness->store().ReadBody("b3").ok());
  CHECK_FALSE(harness->store().ReadBody("b6").ok());
}

}  // namespace
}  // namespace lathe::engine

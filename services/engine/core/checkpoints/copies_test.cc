#include "services/engine/core/checkpoints/copies.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/testing/trained_model.h"

namespace lathe::engine {
namespace {

CopyCheckpoint CopyInto(Trained& t, const std::string& tenant, const std::string& dir) {
  return {.call = ++t.h.last_call,
          .tenant_id = tenant,
          .source_path = t.path,
          .source_dir = t.Row().dir,
          .dir = dir,
          .session_id = "copied",
          .makes_session = true,
          .project_id = "p"};
}

TEST_CASE("Copy: a run of its own, which outlives its source", "[core]") {
  Trained t;
  t.Save(1, {.name = "a", .ttl_seconds = 5});
  t.h.Post(CopyInto(t, "t", "c1"));
  const std::string copy = "tinker://copied:train:0/weights/a";
  CHECK(t.h.AnswerTo(t.h.last_call).id == copy);
  const CheckpointRow& row = t.h.store.checkpoints().at(copy);
  CHECK(row.dir == "c1");
  CHECK(row.expires_at == 0);
  CHECK(t.h.store.sessions().at("copied").project_id == "p");
  CHECK(t.h.store.models().at("copied:train:0").state == ModelState::kUnloaded);
  t.h.Advance(6 * kSecond);
  CopyCheckpoint another = CopyInto(t, "t", "c2");
  another.session_id = "another";
  t.h.Post(another);
  REQUIRE(t.h.AnswerTo(t.h.last_call).error.has_value());
  CHECK(t.h.AnswerTo(t.h.last_call).error->status == absl::StatusCode::kNotFound);
  CHECK(t.h.deleted_dirs.count("c2") == 1);
  CHECK(t.h.deleted_dirs.count("c1") == 0);
}

TEST_CASE("Copy: a repetition is answered with the first one", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(CopyInto(t, "t", "c1"));
  t.h.Post(CopyInto(t, "t", "c2"));
  CHECK(t.h.AnswerTo(t.h.last_call).id == "tinker://copied:train:0/weights/a");
  CHECK(t.h.deleted_dirs == std::set<std::string>{"c2"});
}

TEST_CASE("Copy: a repetition is answered though the source is gone", "[core]") {
  Trained t;
  t.Save(1, {.name = "a", .ttl_seconds = 5});
  t.h.Post(CopyInto(t, "t", "c1"));
  CopyCheckpoint again = CopyInto(t, "t", "");
  t.h.Advance(6 * kSecond);
  t.h.Post(again);
  CHECK(t.h.AnswerTo(again.call).id == "tinker://copied:train:0/weights/a");
  CHECK(t.h.deleted_dirs.count("c1") + t.h.deleted_dirs.count("") == 0);
  again.call = ++t.h.last_call;
  again.tenant_id = "u";
  t.h.Post(again);
  CHECK(t.h.AnswerTo(again.call).error->status == absl::StatusCode::kNotFound);
}

TEST_CASE("Copy: another tenant needs a token of the owner", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(CopyInto(t, "u", "c1"));
  CHECK(t.h.AnswerTo(t.h.last_call).error->status == absl::StatusCode::kNotFound);
  CopyCheckpoint with_token = CopyInto(t, "u", "c2");
  with_token.reader_tenant_id = "t";
  t.h.Post(with_token);
  CHECK_FALSE(t.h.AnswerTo(t.h.last_call).error.has_value());
  CHECK(t.h.store.checkpoints().at("tinker://copied:train:0/weights/a").tenant_id == "u");
}

TEST_CASE("Copy: in an open session it takes the model's number", "[core]") {
  Trained t;
  t.Save(1);
  CopyCheckpoint copy = CopyInto(t, "t", "c1");
  copy.session_id = t.session;
  copy.makes_session = false;
  copy.model_seq_id = 0;
  t.h.Post(copy);
  CHECK(t.h.AnswerTo(t.h.last_call).error->code == "seq_id_reused");
  copy.call = ++t.h.last_call;
  copy.model_seq_id = 1;
  t.h.Post(copy);
  CHECK(t.h.AnswerTo(t.h.last_call).id == "tinker://" + t.session + ":train:1/weights/a");
  const CallId train = t.h.Gradient(t.session + ":train:1", 1);
  CHECK(t.h.AnswerTo(train).error->code == "model_unloaded");
}

TEST_CASE("Copy: it counts as stored, and is in the audit log", "[core]") {
  Trained t;
  t.Save(1);
  QuotaRow quota;
  quota.tenant_id = "t";
  quota.stored_bytes = 2 * t.Row().size_bytes;
  t.h.Post(SetQuota{++t.h.last_call, quota, "tenant"});
  CopyCheckpoint copy = CopyInto(t, "t", "c1");
  copy.actor = "k1";
  t.h.Post(copy);
  CHECK_FALSE(t.h.AnswerTo(t.h.last_call).error.has_value());
  copy.call = ++t.h.last_call;
  copy.session_id = "again";
  copy.dir = "c2";
  t.h.Post(copy);
  CHECK(t.h.AnswerTo(t.h.last_call).error->code == "storage_quota");
  CHECK(t.h.deleted_dirs.count("c2") == 1);
  const std::vector<AuditRow>& log = t.h.store.audit();
  const AuditRow& made = log[log.size() - 2];
  CHECK(made.event == "checkpoint_copy");
  CHECK(made.actor == "k1");
  CHECK(made.object == "tinker://copied:train:0/weights/a");
  CHECK(made.outcome == "ok");
  CHECK(made.details == Metadata{{"source_path", t.path}});
  CHECK(log.back().object == "tinker://again:train:0/weights/a");
  CHECK(log.back().outcome == "storage_quota");
}

AdoptCheckpoint Adoption(Trained& t, const std::string& name) {
  AdoptCheckpoint event{.call = ++t.h.last_call,
                        .checkpoint = t.Row(),
                        .makes_run = true,
                        .makes_session = true,
                        .session_id = "lost",
                        .model_seq_id = 0};
  CheckpointRow& row = event.checkpoint;
  row.model_id = "lost:train:0";
  row.name = name;
  row.tinker_path = CheckpointPath(row.model_id, row.kind, name);
  row.dir = "c-from-trash";
  return event;
}

TEST_CASE("Adopt: a checkpoint comes back with a run that has ended", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(Adoption(t, "a"));
  const std::string path = "tinker://lost:train:0/weights/a";
  CHECK(t.h.AnswerTo(t.h.last_call).id == path);
  CHECK(t.h.store.checkpoints().at(path).dir == "c-from-trash");
  CHECK(t.h.store.models().at("lost:train:0").state == ModelState::kUnloaded);
  CHECK(t.h.store.sessions().at("lost").state == SessionState::kEnded);
  t.h.RestartEngine();
  const auto& needed = t.h.needed_dirs;
  CHECK(std::find(needed.begin(), needed.end(), "c-from-trash") != needed.end());
}

TEST_CASE("Adopt: a path that is in use is refused and nothing is deleted", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(Adoption(t, "a"));
  AdoptCheckpoint again = Adoption(t, "a");
  again.checkpoint.dir = "c-another";
  t.h.Post(again);
  CHECK(t.h.AnswerTo(again.call).error->code == "checkpoint_exists");
  CHECK(t.h.deleted_dirs.count("c-another") == 0);
  CHECK(t.h.store.checkpoints().at(again.checkpoint.tinker_path).dir == "c-from-trash");
}

}  // namespace
}  // namespace lathe::engine

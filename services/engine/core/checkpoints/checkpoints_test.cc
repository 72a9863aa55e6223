#include "services/engine/core/checkpoints/checkpoints.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "services/engine/core/testing/trained_model.h"

namespace lathe::engine {
namespace {

TEST_CASE("Save: the row appears when the worker is done, with its path and state", "[core]") {
  Trained t;
  t.h.Step(t.model, 1);
  const CallId call = t.Save(2, {.name = "a", .ttl_seconds = 60});
  CHECK(t.h.ResultOf(call)->path == t.path);
  CHECK(t.Row().applied_seq == 1);
  CHECK(t.Row().size_bytes == 100);
  CHECK(t.Row().expires_at == t.Row().created_at + 60 * kSecond);
  CHECK(t.h.store.models().at(t.model).saved_seq == 1);
}

TEST_CASE("Save: a used name fails through the future unless it is overwritten", "[core]") {
  Trained t;
  t.Save(1);
  const std::string first_dir = t.Row().dir;
  const CallId clash = t.Save(2);
  CHECK(t.h.ErrorOf(clash)->message == "checkpoint " + t.path + " exists");
  CHECK(t.h.ErrorOf(clash)->status == absl::StatusCode::kFailedPrecondition);
  CHECK(t.h.deleted_dirs.count(first_dir) == 0);
  const CallId overwrite = t.Save(3, {.name = "a", .overwrite = true});
  CHECK(t.h.StateOf(overwrite) == RequestState::kDone);
  CHECK(t.Row().dir != first_dir);
  CHECK(t.h.deleted_dirs.count(first_dir) == 1);
}

TEST_CASE("Save: both kinds have names of their own", "[core]") {
  Trained t;
  t.Save(1);
  const CallId sampler = t.h.Save(t.model, 2, {.name = "a"}, OperationKind::kSaveWeightsForSampler);
  t.h.RunWorker();
  CHECK(t.h.ResultOf(sampler)->path == "tinker://" + t.model + "/sampler_weights/a");
}

TEST_CASE("Save: a failed one leaves no files", "[core]") {
  Trained t;
  t.h.worker->FailOnce(t.model, 1, {absl::StatusCode::kInternal, "x", "", "disk full"});
  const CallId call = t.Save(1);
  CHECK(t.h.StateOf(call) == RequestState::kFailed);
  CHECK(t.h.store.checkpoints().empty());
  CHECK(t.h.deleted_dirs.size() == 1);
}

TEST_CASE("Load: a model is created from a checkpoint with its shape", "[core]") {
  Trained t;
  t.Save(1);
  const CallId call = t.Load(1);
  CHECK(t.h.ResultOf(call)->model_id == t.session + ":train:1");
  CHECK(t.h.ResultOf(call)->path == t.path);
  CHECK(t.h.store.models().at(t.session + ":train:1").state == ModelState::kReady);
  const CallId step = t.h.Step(t.session + ":train:1", 1);
  t.h.RunWorker();
  CHECK(t.h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Load: into a model it moves applied_seq and empties the gradient", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Gradient(t.model, 2);
  const CallId load = t.h.SubmitArgs(t.model, OpClass::kTrain, 3, OperationKind::kLoadWeights,
                                     LoadArgs{.path = t.path, .with_optimizer = true});
  t.h.Step(t.model, 4);
  t.h.RunWorker();
  CHECK(t.h.StateOf(load) == RequestState::kDone);
  CHECK(t.h.worker->History(t.model).back() == "step 4 []");
  CHECK(t.h.worker->num_refused_steps() == 0);
}

TEST_CASE("Load: another base model or a sampler checkpoint is refused by name", "[core]") {
  Trained t;
  t.Save(1);
  LoadArgs args{.path = t.path, .creates_model = true, .base_model = "another"};
  CallId call = t.h.SubmitArgs(t.session, OpClass::kModel, 1, OperationKind::kLoadWeights, args);
  CHECK(t.h.AnswerTo(call).error->code == "incompatible_checkpoint");
  t.h.Save(t.model, 2, {.name = "s"}, OperationKind::kSaveWeightsForSampler);
  t.h.RunWorker();
  args = {.path = "tinker://" + t.model + "/sampler_weights/s", .creates_model = true};
  call = t.h.SubmitArgs(t.session, OpClass::kModel, 1, OperationKind::kLoadWeights, args);
  CHECK(t.h.AnswerTo(call).error->code == "incompatible_checkpoint");
}

TEST_CASE("Load: another rank is refused with both shapes", "[core]") {
  Trained t;
  t.Save(1);
  CreateModelArgs create;
  create.base_model = "base";
  create.lora.rank = 8;
  t.h.SubmitArgs(t.session, OpClass::kModel, 1, OperationKind::kCreateModel, create);
  t.h.RunWorker();
  const CallId call = t.h.SubmitArgs(t.session + ":train:1", OpClass::kTrain, 1,
                                     OperationKind::kLoadWeights, LoadArgs{.path = t.path});
  REQUIRE(t.h.Done(call));
  CHECK(t.h.ErrorOf(call)->code == "incompatible_checkpoint");
  CHECK(t.h.ErrorOf(call)->message.find("rank 8") != std::string::npos);
}

// Saves a model of the harness's rank and module families, with its own alpha and target modules.
std::string SaveNarrow(Trained& t, int64_t model_seq) {
  CreateModelArgs create;
  create.base_model = "base";
  create.lora.alpha = 16;
  create.lora.target_modules = {"q_proj", "v_proj"};
  t.h.SubmitArgs(t.session, OpClass::kModel, model_seq, OperationKind::kCreateModel, create);
  t.h.RunWorker();
  const std::string model = absl::StrCat(t.session, ":train:", model_seq);
  t.h.Save(model, 1, {.name = "narrow"});
  t.h.RunWorker();
  return "tinker://" + model + "/weights/narrow";
}

TEST_CASE("Load: the model takes on the checkpoint's alpha and modules", "[core]") {
  Trained t;
  const std::string path = SaveNarrow(t, 1);
  const CallId into =
      t.h.SubmitArgs(t.model, OpClass::kTrain, 1, OperationKind::kLoadWeights, LoadArgs{path});
  const CallId create = t.h.SubmitArgs(t.session, OpClass::kModel, 2, OperationKind::kLoadWeights,
                                       LoadArgs{.path = path,
                                                .creates_model = true,
                                                .lora_alpha = 16,
                                                .target_modules = {"v_proj", "q_proj"}});
  t.h.RunWorker();
  CHECK(t.h.StateOf(into) == RequestState::kDone);
  CHECK(t.h.StateOf(create) == RequestState::kDone);
  t.h.RestartEngine();
  for (const std::string& model : {t.model, t.session + ":train:2"}) {
    const LoraConfig& lora = t.h.store.models().at(model).lora;
    CHECK(lora.alpha == 16);
    CHECK(lora.target_modules == std::vector<std::string>{"q_proj", "v_proj"});
    CHECK(lora.train_mlp);
  }
}

TEST_CASE("Load: metadata that contradicts the checkpoint is refused by name", "[core]") {
  Trained t;
  const std::string path = SaveNarrow(t, 1);
  LoadArgs args{.path = path, .creates_model = true, .lora_alpha = 32};
  CallId call = t.h.SubmitArgs(t.session, OpClass::kModel, 2, OperationKind::kLoadWeights, args);
  CHECK(t.h.AnswerTo(call).error->field == "user_metadata.lathe_lora_alpha");
  CHECK(t.h.AnswerTo(call).error->message ==
        "user_metadata.lathe_lora_alpha is 32, checkpoint " + path + " has 16 and a load keeps it");
  for (const std::vector<std::string>& modules : std::vector<std::vector<std::string>>{
           {"q_proj"}, {"q_proj", "v_proj", "v_proj"}, {"q_proj", "\n"}, {""}}) {
    args = {.path = path, .creates_model = true, .target_modules = modules};
    call = t.h.SubmitArgs(t.session, OpClass::kModel, 2, OperationKind::kLoadWeights, args);
    REQUIRE(t.h.AnswerTo(call).error.has_value());
    CHECK(t.h.AnswerTo(call).error->field == "user_metadata.lathe_target_modules");
  }
  args.target_modules = {"q_proj", "\n"};
  call = t.h.SubmitArgs(t.session, OpClass::kModel, 2, OperationKind::kLoadWeights, args);
  CHECK(t.h.AnswerTo(call).error->message ==
        "user_metadata.lathe_target_modules is 'q_proj,\\n', checkpoint " + path +
            " has q_proj,v_proj and a load keeps them");
}

TEST_CASE("Load: a load behind a save reads the files of that save", "[core]") {
  Trained t;
  t.Save(1);
  const std::string old_dir = t.Row().dir;
  t.h.Step(t.model, 2);
  t.h.Save(t.model, 3, {.name = "a", .overwrite = true});
  const CallId load = t.h.SubmitArgs(t.model, OpClass::kTrain, 4, OperationKind::kLoadWeights,
                                     LoadArgs{.path = t.path});
  t.h.Save(t.model, 5, {.name = "new"});
  const CallId fresh = t.h.SubmitArgs(t.model, OpClass::kTrain, 6, OperationKind::kLoadWeights,
                                      LoadArgs{.path = "tinker://" + t.model + "/weights/new"});
  t.h.RunWorker();
  CHECK(t.h.StateOf(load) == RequestState::kDone);
  CHECK(t.h.StateOf(fresh) == RequestState::kDone);
  const auto sent = t.h.worker->Received<SendLoadAdapter>();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].dir == t.Row().dir);
  CHECK(sent[0].dir != old_dir);
}

TEST_CASE("Load: of an absent or foreign path it fails through the future, with what follows",
          "[core]") {
  const bool is_there = GENERATE(true, false);
  Trained t;
  const std::string session = t.h.NewSession(SessionOrdering::kSerial, "u");
  const std::string foreign_model = t.h.NewModel(session, 0, "u");
  t.h.SubmitArgs(foreign_model, OpClass::kTrain, 1, OperationKind::kSaveWeights,
                 SaveArgs{.name = "a"}, "u");
  t.h.RunWorker();
  const std::string foreign = "tinker://" + foreign_model + "/weights/a";
  const std::string path = is_there ? foreign : foreign + "9";
  const CallId load = t.h.SubmitArgs(t.model, OpClass::kTrain, 1, OperationKind::kLoadWeights,
                                     LoadArgs{.path = path});
  const CallId behind = t.h.Gradient(t.model, 2);
  t.h.RunWorker();
  REQUIRE(t.h.Done(load));
  CHECK(t.h.ErrorOf(load)->status == absl::StatusCode::kNotFound);
  CHECK(t.h.ErrorOf(load)->message == "checkpoint " + path + " not found");
  CHECK(t.h.ErrorOf(behind)->code == "load_failed");
}

TEST_CASE("Load: files that a worker reads stay over a restart", "[core]") {
  Trained t;
  t.Save(1);
  const CallId load = t.h.SubmitArgs(t.model, OpClass::kTrain, 2, OperationKind::kLoadWeights,
                                     LoadArgs{.path = t.path});
  t.h.RestartEngine();
  const std::string dir = t.Row().dir;
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", t.path});
  CHECK(t.h.deleted_dirs.count(dir) == 0);
  t.h.ReattachWorker();
  t.h.RunWorker();
  CHECK(t.h.StateOf(load) == RequestState::kDone);
  CHECK(t.h.deleted_dirs.count(dir) == 0);  // a recovery of the model may need the files
  t.h.Post(FinishSession{++t.h.last_call, "t", t.session, "success", ""});
  CHECK(t.h.deleted_dirs.count(dir) == 1);
}

TEST_CASE("Save: a published checkpoint stays published when it is overwritten", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(PublishCheckpoint{++t.h.last_call, "t", t.path, true, "k1"});
  t.Save(2, {.name = "a", .overwrite = true});
  CHECK(t.Row().is_public);
}

TEST_CASE("Delete: files stay while a sampler uses them", "[core]") {
  Trained t;
  t.Save(1);
  const std::string dir = t.Row().dir;
  t.h.Sampler(t.session, 0, t.path);
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", t.path});
  CHECK(t.Row().state == CheckpointState::kDeleted);
  CHECK(t.h.deleted_dirs.count(dir) == 0);
  const CallId sample = t.h.Sample(t.session + ":sample:0", 1);
  t.h.RunWorker();
  CHECK(t.h.StateOf(sample) == RequestState::kDone);
  t.h.Post(FinishSession{++t.h.last_call, "t", t.session, "success", ""});
  CHECK(t.h.deleted_dirs.count(dir) == 1);
}

TEST_CASE("Delete: another tenant's checkpoint looks absent", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "u", t.path});
  CHECK(t.h.AnswerTo(t.h.last_call).error->status == absl::StatusCode::kNotFound);
  CHECK(t.Row().state == CheckpointState::kComplete);
}

TEST_CASE("Expiry: a checkpoint past its time is swept with its files", "[core]") {
  Trained t;
  t.Save(1, {.name = "a", .ttl_seconds = 5});
  const std::string dir = t.Row().dir;
  t.h.Advance(6 * kSecond);
  CHECK(t.Row().state == CheckpointState::kDeleted);
  CHECK(t.h.deleted_dirs.count(dir) == 1);
}

TEST_CASE("Expiry: a checkpoint that is being loaded keeps its files", "[core]") {
  Trained t;
  t.Save(1, {.name = "a", .ttl_seconds = 5});
  const std::string dir = t.Row().dir;
  const CallId load = t.h.SubmitArgs(t.session, OpClass::kModel, 1, OperationKind::kLoadWeights,
                                     LoadArgs{.path = t.path, .creates_model = true});
  t.h.Advance(6 * kSecond);
  CHECK(t.Row().state == CheckpointState::kDeleted);
  CHECK(t.h.deleted_dirs.count(dir) == 0);
  t.h.RunWorker();
  CHECK(t.h.StateOf(load) == RequestState::kDone);
  CHECK(t.h.deleted_dirs.count(dir) == 0);  // a recovery of the model may need the files
  t.h.Post(FinishSession{++t.h.last_call, "t", t.session, "success", ""});
  CHECK(t.h.deleted_dirs.count(dir) == 1);
}

TEST_CASE("Restart: files of a deletion are not needed, named or written ones are", "[core]") {
  Trained t;
  t.Save(1);
  const std::string deleted = t.Row().dir;
  t.Save(2, {.name = "b"});
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", t.path});
  t.h.Save(t.model, 3, {.name = "c"});  // the worker has not run the save
  t.h.RestartEngine();
  const std::string kept = t.h.store.checkpoints().at("tinker://" + t.model + "/weights/b").dir;
  const auto needs = [&](const std::string& dir) {
    return std::count(t.h.needed_dirs.begin(), t.h.needed_dirs.end(), dir) == 1;
  };
  CHECK(needs(kept));
  CHECK_FALSE(needs(deleted));
  CHECK(t.h.needed_dirs.size() == 2);
}

TEST_CASE("Save: a worker that repeats one writes elsewhere than the one that was lost", "[core]") {
  Trained t;
  const auto requested_dir = [&] {
    return t.h.worker->Received<SendSaveCheckpoint>().back().row.dir;
  };
  t.h.Save(t.model, 1, {.name = "a"});
  const std::string first = requested_dir();
  SECTION("the same process continues its commands, under another leader too") {
    t.h.RestartEngine();
    t.h.ReattachWorker();
    t.h.RunWorker();
    CHECK(t.Row().dir == first);
  }
  SECTION("another process") {
    t.h.AttachWorker("p2");
    t.h.RunWorker();
    CHECK(requested_dir() != first);
    CHECK(t.h.deleted_dirs.count(first) == 1);
    CHECK(t.Row().dir == requested_dir());
    CHECK(t.h.disk.Find(t.Row().dir) != nullptr);
  }
}

TEST_CASE("Restart: a store without a past removes nothing", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  CHECK(std::none_of(h.actions.begin(), h.actions.end(), [](const Action& action) {
    return std::holds_alternative<DeleteOtherFiles>(action);
  }));
}

TEST_CASE("External: saved with its recipients, and only to be downloaded", "[core]") {
  Trained t;
  const CallId save = t.h.Save(t.model, 1, {.name = "x", .age_recipients = {"age1"}},
                               OperationKind::kSaveWeightsExternal);
  t.h.RunWorker();
  const std::string path = "tinker://" + t.model + "/external_weights/x";
  CHECK(t.h.ResultOf(save)->path == path);
  CHECK(t.h.ResultOf(save)->size_bytes == 100);
  CHECK(t.h.store.checkpoints().at(path).kind == CheckpointKind::kExternal);
  const CallId load = t.h.SubmitArgs(t.session, OpClass::kModel, 1, OperationKind::kLoadWeights,
                                     LoadArgs{.path = path, .creates_model = true});
  CHECK(t.h.AnswerTo(load).error->code == "incompatible_checkpoint");
  const CallId sampler = t.h.Sampler(t.session, 0, path);
  CHECK(t.h.AnswerTo(sampler).error->code == "incompatible_checkpoint");
}

TEST_CASE("Expiry: a TTL can be taken back", "[core]") {
  Trained t;
  t.Save(1, {.name = "a", .ttl_seconds = 5});
  t.h.Post(SetCheckpointTtl{++t.h.last_call, "t", t.path, 0});
  t.h.Advance(6 * kSecond);
  CHECK(t.Row().state == CheckpointState::kComplete);
}

TEST_CASE("Checkpoints: every change and every refusal is in the audit log", "[core]") {
  Trained t;
  t.Save(1);
  t.h.Post(PublishCheckpoint{++t.h.last_call, "t", t.path, true, "k1"});
  t.h.Post(SetCheckpointTtl{++t.h.last_call, "t", t.path, 60, "k1"});
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "other", t.path, "k2"});
  t.h.Advance(61 * kSecond);
  const std::vector<AuditRow>& log = t.h.store.audit();
  REQUIRE(log.size() == 4);
  CHECK(log[0].event == "checkpoint_publish");
  CHECK(log[0].actor == "k1");
  CHECK(log[0].object == t.path);
  CHECK(log[1].event == "checkpoint_set_ttl");
  CHECK(log[2].tenant_id == "other");
  CHECK(log[2].outcome == "not_found");
  CHECK(log[3].event == "checkpoint_expire");
  CHECK(log[3].actor == "engine");
}

}  // namespace
}  // namespace lathe::engine

#include "services/worker/rpc/attach_protocol.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include <variant>

#include "libs/common/rpc/testing/recorded_messages.h"
#include "services/worker/rpc/testing/fake_executor.h"
#include "services/worker/rpc/testing/test_messages.h"

namespace lathe::worker {
namespace {

using Verdict = AttachProtocol::Verdict;

lathe::v1::EngineMessage OptimStepMessage(int64_t epoch, const std::string& request_id) {
  lathe::v1::EngineMessage message;
  message.set_epoch(epoch);
  message.mutable_optim_step()->set_request_id(request_id);
  message.mutable_optim_step()->set_model_id("m");
  message.mutable_optim_step()->set_seq_id(2);
  return message;
}

struct Worker {
  FakeExecutor executor;
  AttachProtocol protocol{WorkerIdentity{.group = "g",
                                         .process_id = "p",
                                         .base_model = "b",
                                         .is_supervised = true,
                                         .role = "sample"},
                          executor};

  std::vector<lathe::v1::WorkerMessage> Drain() {
    std::vector<lathe::v1::WorkerMessage> messages;
    while (auto message = protocol.PopOutgoing()) messages.push_back(*std::move(message));
    return messages;
  }
  void FinishStep(const std::string& request_id) {
    protocol.Absorb({.generation = executor.generation(),
                     .report = StepDone{request_id, {{"grad_norm", 1.5}}},
                     .model = ModelState{"m", 2, {}}});
  }
};

TEST_CASE("Hello lists what the process holds and what it is still running", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  ExecutorState state;
  state.device = "cpu";
  state.models = {{"m", 1, {2, 3}}};
  state.versions = {{"v", 5}};
  worker.executor.SetState(state);
  const lathe::v1::Hello hello = worker.protocol.BeginStream("secret").hello();
  CHECK(hello.group() == "g");
  CHECK(hello.secret() == "secret");
  CHECK(hello.process_id() == "p");
  CHECK(hello.epoch() == 3);
  CHECK(hello.term() == 1);
  CHECK(hello.is_supervised());
  CHECK(hello.role() == lathe::v1::GROUP_ROLE_SAMPLE);
  REQUIRE(hello.models_size() == 1);
  CHECK(hello.models(0).applied_seq() == 1);
  CHECK(hello.models(0).window_size() == 2);
  CHECK(hello.versions(0).version_id() == "v");
  CHECK(hello.versions(0).seq_id() == 5);
  CHECK_FALSE(hello.has_ready());
  REQUIRE(hello.running_request_ids_size() == 1);
  CHECK(hello.running_request_ids(0) == "r1");
  CHECK_FALSE(hello.has_checkpoint_place());
}

TEST_CASE("Hello names the object store of checkpoints", "[rpc]") {
  FakeExecutor executor;
  AttachProtocol protocol({.group = "g", .checkpoint_place = {"s3://bucket/prefix", "id"}},
                          executor);
  const lathe::v1::Hello hello = protocol.BeginStream("s").hello();
  CHECK(hello.checkpoint_place().address() == "s3://bucket/prefix");
  CHECK(hello.checkpoint_place().store_id() == "id");
}

TEST_CASE("an operation is answered with its result and the model's state", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  REQUIRE(worker.executor.commands().size() == 1);
  worker.FinishStep("r1");
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].epoch() == 3);
  const lathe::v1::OperationDone& done = messages[0].done();
  CHECK(done.request_id() == "r1");
  CHECK(done.result().kind() == lathe::v1::OPERATION_KIND_OPTIM_STEP);
  CHECK(done.result().optim_step().metrics(0).value() == 1.5);
  CHECK(done.model().applied_seq() == 2);
}

TEST_CASE("a request that comes twice runs once", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  CHECK(worker.executor.commands().size() == 1);
  CHECK(worker.Drain().empty());
  worker.FinishStep("r1");
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  CHECK(worker.executor.commands().size() == 1);
  CHECK(worker.Drain().size() == 2);
}

TEST_CASE("adoption sends every unacknowledged result again", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  worker.protocol.Receive(OptimStepMessage(3, "r2"));
  worker.protocol.Receive(OptimStepMessage(3, "r3"));
  worker.FinishStep("r1");
  worker.FinishStep("r2");
  lathe::v1::EngineMessage ack;
  ack.set_epoch(3);
  ack.mutable_ack()->add_request_ids("r1");
  worker.protocol.Receive(ack);
  worker.protocol.BeginStream("s");
  worker.FinishStep("r3");
  CHECK(worker.Drain().empty());
  worker.protocol.Receive(Adopt(4, 2));
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].done().request_id() == "r2");
  CHECK(messages[0].epoch() == 4);
  CHECK(messages[1].done().request_id() == "r3");
  CHECK(worker.executor.generation() == 1);
}

TEST_CASE("Form forgets everything, also what is reported later", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.Receive(OptimStepMessage(3, "r1"));
  worker.FinishStep("r1");
  worker.protocol.Receive(OptimStepMessage(3, "r2"));
  worker.protocol.Receive(Form(4, 1));
  CHECK(worker.executor.generation() == 2);
  worker.protocol.Absorb({.generation = 1, .report = StepDone{"r2", {}}, .model = std::nullopt});
  CHECK(worker.Drain().empty());
  CHECK(worker.protocol.BeginStream("s").hello().running_request_ids_size() == 0);
}

TEST_CASE("messages of another epoch and lower terms are not obeyed", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  CHECK(worker.protocol.Receive(OptimStepMessage(3, "r1")) == Verdict::kContinue);
  worker.protocol.Receive(Form(3, 5));
  worker.protocol.Receive(OptimStepMessage(2, "r1"));
  CHECK(worker.executor.commands().empty());
  CHECK(worker.protocol.Receive(Form(9, 4)) == Verdict::kReconnect);
  CHECK(worker.protocol.Receive(Adopt(9, 4)) == Verdict::kReconnect);
  lathe::v1::EngineMessage heartbeat;
  heartbeat.mutable_heartbeat()->set_term(4);
  CHECK(worker.protocol.Receive(heartbeat) == Verdict::kReconnect);
  CHECK(worker.executor.generation() == 1);
}

TEST_CASE("a heartbeat carries every counter of its message", "[rpc]") {
  Worker worker;
  ExecutorState state;
  int64_t next = 1;
  std::map<std::string, int64_t> expected;
  for (const CounterRow& row : kCounters) {
    const auto* const number = std::get_if<int64_t ExecutorCounters::*>(&row.field);
    if (number == nullptr) continue;
    state.counters.*(*number) = next;
    expected[row.metric] = next++;
  }
  worker.executor.SetState(state);
  worker.protocol.BeginStream("s");
  worker.protocol.QueueHeartbeat();
  const lathe::v1::WorkerHeartbeat heartbeat = worker.Drain().back().heartbeat();
  CHECK(!heartbeat.has_memory());
  const google::protobuf::Descriptor& fields = *heartbeat.counters().GetDescriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    INFO(fields.field(i)->name());
    CHECK(heartbeat.counters().GetReflection()->GetInt64(heartbeat.counters(), fields.field(i)) ==
          expected.at(absl::StrCat("lathe_worker_", fields.field(i)->name(), "_total")));
  }
}

TEST_CASE("a heartbeat says what memory is used for", "[rpc]") {
  Worker worker;
  ExecutorState state;
  state.memory = {.used = 3, .limit = 9, .shares = {{"base", 1, 4}, {"other", 2, 5}}};
  worker.executor.SetState(state);
  worker.protocol.BeginStream("s");
  worker.protocol.QueueHeartbeat();
  const lathe::v1::MemoryUse memory = worker.Drain().back().heartbeat().memory();
  CHECK(memory.used_bytes() == 3);
  CHECK(memory.limit_bytes() == 9);
  REQUIRE(memory.shares_size() == 2);
  CHECK(memory.shares(1).owner() == "other");
  CHECK(memory.shares(1).used_bytes() == 2);
  CHECK(memory.shares(1).limit_bytes() == 5);
}

TEST_CASE("requests of one batch stay together", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  lathe::v1::EngineMessage message;
  message.set_epoch(3);
  AddTrain(&message, "a");
  AddTrain(&message, "b");
  AddTrain(&message, "bad");
  message.mutable_train_batch()->mutable_items(2)->mutable_request()->mutable_loss()->set_name("?");
  worker.protocol.Receive(message);
  const auto commands = worker.executor.commands();
  REQUIRE(commands.size() == 1);
  CHECK(std::get<TrainBatch>(commands[0]).requests.size() == 2);
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].done().request_id() == "bad");
  CHECK(messages[0].done().result().error().category() == lathe::v1::ERROR_CATEGORY_USER);
}

TEST_CASE("a full command queue is answered at once", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.executor.SetFull(true);
  lathe::v1::EngineMessage message;
  message.set_epoch(3);
  AddTrain(&message, "a");
  worker.protocol.Receive(message);
  worker.protocol.Receive(OptimStepMessage(3, "b"));
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 2);
  for (const auto& refused : messages) {
    CHECK(refused.done().result().error().code() == "resource_exhausted");
    CHECK(refused.done().result().error().category() == lathe::v1::ERROR_CATEGORY_SERVER);
  }
}

TEST_CASE("commands that come while the process ends are not answered", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.executor.Stop();
  lathe::v1::EngineMessage message;
  message.set_epoch(3);
  AddTrain(&message, "a");
  worker.protocol.Receive(message);
  worker.protocol.Receive(OptimStepMessage(3, "b"));
  CHECK(worker.Drain().empty());
}

TEST_CASE("a snapshot and a save of a version are answered, refused or not", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  lathe::v1::EngineMessage snapshot;
  snapshot.set_epoch(3);
  snapshot.mutable_snapshot()->set_snapshot_id("x");
  snapshot.mutable_snapshot()->set_model_id("m");
  lathe::v1::EngineMessage save;
  save.set_epoch(3);
  save.mutable_save_version()->set_version_id("v");
  save.mutable_save_version()->set_dir("/d");
  worker.executor.SetFull(true);
  worker.protocol.Receive(snapshot);
  worker.protocol.Receive(save);
  const auto refused = worker.Drain();
  REQUIRE(refused.size() == 2);
  CHECK(refused[0].snapshot_done().snapshot_id() == "x");
  CHECK(refused[0].snapshot_done().model().model_id() == "m");
  CHECK(refused[0].snapshot_done().error().code() == "resource_exhausted");
  CHECK(refused[1].version_saved().version_id() == "v");
  CHECK(refused[1].version_saved().dir() == "/d");
  CHECK(refused[1].version_saved().error().code() == "resource_exhausted");

  worker.protocol.Absorb({.generation = 1,
                          .report = SnapshotDone{.snapshot_id = "x",
                                                 .state = {"m", 4, {5, 6}},
                                                 .size_bytes = 100,
                                                 .manifest_sha256 = "abc",
                                                 .write_time = absl::Milliseconds(3)},
                          .model = std::nullopt});
  worker.protocol.Absorb({.generation = 1,
                          .report = VersionSaved{.version_id = "v",
                                                 .dir = "/d",
                                                 .seq_id = 7,
                                                 .size_bytes = 50,
                                                 .manifest_sha256 = "def"},
                          .model = std::nullopt});
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 2);
  const lathe::v1::SnapshotDone& done = messages[0].snapshot_done();
  CHECK(messages[0].epoch() == 3);
  CHECK_FALSE(done.has_error());
  CHECK(done.model().model_id() == "m");
  CHECK(done.model().applied_seq() == 4);
  CHECK(done.model().window_size() == 2);
  CHECK(done.size_bytes() == 100);
  CHECK(done.manifest_sha256() == "abc");
  CHECK(done.write_nanoseconds() == 3000000);
  const lathe::v1::VersionSaved& saved = messages[1].version_saved();
  CHECK_FALSE(saved.has_error());
  CHECK(saved.dir() == "/d");
  CHECK(saved.seq_id() == 7);
  CHECK(saved.size_bytes() == 50);
  CHECK(saved.manifest_sha256() == "def");
}

TEST_CASE("a snapshot that is written between two streams is reported to the adopting engine",
          "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  worker.protocol.BeginStream("s");
  worker.protocol.Absorb(
      {.generation = 1, .report = SnapshotDone{.snapshot_id = "x"}, .model = std::nullopt});
  CHECK(worker.Drain().empty());
  worker.protocol.Receive(Adopt(4, 1));
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].epoch() == 4);
  CHECK(messages[0].snapshot_done().snapshot_id() == "x");
  worker.protocol.BeginStream("s");
  worker.protocol.Absorb(
      {.generation = 1, .report = SnapshotDone{.snapshot_id = "y"}, .model = std::nullopt});
  worker.protocol.Receive(Form(5, 1));
  CHECK(worker.Drain().empty());
}

TEST_CASE("a request of an earlier process runs in this one, and again after the next Form",
          "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  for (const int64_t epoch : {3, 4}) {
    worker.protocol.Receive(Form(epoch, 1));
    worker.protocol.Receive(OptimStepMessage(epoch, "done before"));
    CHECK(worker.executor.commands().size() == 1);
    worker.protocol.Absorb({.generation = worker.executor.generation(),
                            .report = StepDone{"done before", {}},
                            .model = std::nullopt});
    const auto messages = worker.Drain();
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].done().request_id() == "done before");
  }
}

TEST_CASE("progress is reported while loading and readiness once", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  ExecutorState state;
  state.bytes_loaded = 10;
  state.bytes_total = 20;
  worker.executor.SetState(state);
  worker.protocol.StateChanged();
  state.ready = true;
  state.model.name = "b";
  state.model.max_running_samples = 256;
  state.model.lora_modules = {{"q_proj", LoraFamily::kAttention},
                              {"router", LoraFamily::kMlp},
                              {"lm_head", LoraFamily::kUnembedding}};
  worker.executor.SetState(state);
  worker.protocol.StateChanged();
  worker.protocol.StateChanged();
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].progress().bytes_loaded() == 10);
  const lathe::v1::ModelInfo& model = messages[1].ready().model();
  CHECK(model.name() == "b");
  CHECK(model.max_running_samples() == 256);
  REQUIRE(model.lora_modules_size() == 3);
  CHECK(model.lora_modules(0).name() == "q_proj");
  CHECK(model.lora_modules(0).family() == lathe::v1::LORA_FAMILY_ATTENTION);
  CHECK(model.lora_modules(1).name() == "router");
  CHECK(model.lora_modules(1).family() == lathe::v1::LORA_FAMILY_MLP);
  CHECK(model.lora_modules(2).family() == lathe::v1::LORA_FAMILY_UNEMBEDDING);
  CHECK(worker.protocol.BeginStream("s").hello().has_ready());
  worker.protocol.StateChanged();
  CHECK(worker.Drain().empty());
}

TEST_CASE("logprobs of two-dimensional targets carry their columns", "[rpc]") {
  Worker worker;
  worker.protocol.BeginStream("s");
  worker.protocol.Receive(Form(3, 1));
  lathe::v1::EngineMessage message;
  message.set_epoch(3);
  AddTrain(&message, "a");
  lathe::v1::Tensor* targets = message.mutable_train_batch()
                                   ->mutable_items(0)
                                   ->mutable_request()
                                   ->mutable_data(0)
                                   ->mutable_loss_fn_inputs(0)
                                   ->mutable_tensor();
  targets->add_shape(1);
  targets->add_shape(2);
  targets->set_dense(WritePacked(std::vector<int64_t>{2, 3}));
  worker.protocol.Receive(message);
  worker.protocol.Absorb({.generation = 1,
                          .report = TrainDone{"a", {{{-1.0f, -2.0f}}, {{"loss:sum", 3.0}}}},
                          .model = std::nullopt});
  const auto messages = worker.Drain();
  REQUIRE(messages.size() == 1);
  const auto& result = messages[0].done().result().forward_backward();
  CHECK(result.outputs(0).num_targets() == 2);
  CHECK(result.outputs(0).logprobs().size() == 8);
  CHECK(result.metrics(0).name() == "loss:sum");
}

TEST_CASE("Die ends the process with its reason", "[rpc]") {
  Worker worker;
  lathe::v1::EngineMessage die;
  die.mutable_die()->set_reason("wrong secret");
  worker.protocol.BeginStream("s");
  CHECK(worker.protocol.Receive(die) == Verdict::kDie);
  CHECK(worker.protocol.reason() == "wrong secret");
}

TEST_CASE("commands of the release before are obeyed", "[rpc]") {
  const std::vector<lathe::v1::EngineMessage> messages =
      RecordedMessages<lathe::v1::EngineMessage>(LATHE_COMPAT_DIR "/WorkerPool.txtpb");
  CHECK(messages.size() >= 20);
  for (lathe::v1::EngineMessage message : messages) {
    if (message.has_piece()) continue;  // holds no whole message
    INFO(message.DebugString());
    Worker worker;
    worker.protocol.BeginStream("s");
    worker.protocol.Receive(Form(3, 1));
    message.set_epoch(3);
    const size_t num_before = worker.executor.commands().size();
    const Verdict verdict = worker.protocol.Receive(message);
    if (message.has_die()) {
      CHECK(verdict == Verdict::kDie);
      continue;
    }
    CHECK(verdict == Verdict::kContinue);
    // A command runs, or is answered: that of a recorded message may name impossible values.
    if (message.has_form() || message.has_adopt() || message.has_heartbeat() || message.has_ack()) {
      continue;
    }
    CHECK(worker.executor.commands().size() + worker.Drain().size() > num_before);
  }
}

}  // namespace
}  // namespace lathe::worker

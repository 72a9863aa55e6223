#include "services/worker/rpc/attach_client.h"

#include <catch2/catch.hpp>

#include <optional>
#include <variant>

#include "absl/synchronization/notification.h"
#include "services/worker/rpc/piece.h"
#include "services/worker/rpc/tensor_conversion.h"
#include "services/worker/rpc/testing/fake_engine.h"
#include "services/worker/rpc/testing/fake_executor.h"
#include "services/worker/rpc/testing/test_messages.h"

namespace lathe::worker {
namespace {

lathe::v1::EngineMessage Train(int64_t epoch, const std::string& request_id, int num_tokens = 1) {
  lathe::v1::EngineMessage message;
  message.set_epoch(epoch);
  lathe::v1::TrainItem* item = message.mutable_train_batch()->add_items();
  item->set_request_id(request_id);
  item->mutable_request()->set_model_id("m");
  item->mutable_request()->mutable_loss()->set_name("cross_entropy");
  lathe::v1::Datum* datum = item->mutable_request()->add_data();
  datum->add_model_input()->set_tokens(WritePacked(std::vector<int32_t>(num_tokens, 1)));
  lathe::v1::NamedTensor* targets = datum->add_loss_fn_inputs();
  targets->set_name("target_tokens");
  targets->mutable_tensor()->set_dtype(lathe::v1::DTYPE_INT64);
  targets->mutable_tensor()->set_dense(WritePacked(std::vector<int64_t>(num_tokens, 2)));
  return message;
}

struct ClientWorker {
  explicit ClientWorker(const FakeDataDir& dir)
      : client({.engine_addresses = {dir.address()},
                .secret_path = dir.secret_path(),
                .heartbeat_interval = absl::Milliseconds(20)},
               {.group = "g", .process_id = "p", .base_model = "b"}, executor,
               [this](const std::string& reason) {
                 die_reason = reason;
                 died.Notify();
               }) {
    client.Start();
  }

  void Finish(const std::string& request_id, std::vector<float> logprobs = {-1.0f}) {
    client.OnReport({.generation = executor.generation(),
                     .report = TrainDone{request_id, {{std::move(logprobs)}, {}}},
                     .model = ModelState{"m", 0, {1}}});
  }

  FakeExecutor executor;
  std::string die_reason;
  absl::Notification died;
  AttachClient client;
};

TEST_CASE("a batch is executed, its result sent, and forgotten once acknowledged", "[rpc]") {
  const FakeDataDir dir;
  auto engine = std::make_unique<FakeEngine>(dir.address());
  ClientWorker worker(dir);
  const lathe::v1::WorkerMessage hello = engine->Next();
  REQUIRE(hello.has_hello());
  CHECK(hello.hello().secret() == "hunter2");
  engine->Send(Form(5, 1));
  engine->Send(Train(5, "r1"));
  worker.executor.AwaitCommands(1);
  worker.Finish("r1");
  const lathe::v1::WorkerMessage done = engine->Next();
  CHECK(done.epoch() == 5);
  CHECK(done.done().request_id() == "r1");
  CHECK(done.done().model().window(0) == 1);
  CHECK(engine->NextHeartbeat().has_heartbeat());

  lathe::v1::EngineMessage ack;
  ack.set_epoch(5);
  ack.mutable_ack()->add_request_ids("r1");
  engine->Send(ack);
  engine->Send(Train(5, "r1"));  // runs again, because it was acknowledged
  worker.executor.AwaitCommands(2);
}

TEST_CASE("an engine that comes back adopts the worker and gets what it missed", "[rpc]") {
  const FakeDataDir dir;
  auto engine = std::make_unique<FakeEngine>(dir.address());
  ClientWorker worker(dir);
  engine->Next();
  engine->Send(Form(5, 1));
  engine->Send(Train(5, "r1"));
  engine->Send(Train(5, "r2"));
  worker.executor.AwaitCommands(2);
  engine.reset();
  worker.Finish("r1");
  engine = std::make_unique<FakeEngine>(dir.address());
  const lathe::v1::WorkerMessage hello = engine->Next();
  REQUIRE(hello.has_hello());
  CHECK(hello.hello().process_id() == "p");
  CHECK(hello.hello().epoch() == 5);
  engine->Send(Adopt(5, 2));
  CHECK(engine->Next().done().request_id() == "r1");
  worker.Finish("r2");
  CHECK(engine->Next().done().request_id() == "r2");
  CHECK(worker.executor.commands().size() == 2);
}

TEST_CASE("large messages cross in pieces both ways", "[rpc]") {
  const FakeDataDir dir;
  FakeEngine engine(dir.address());
  ClientWorker worker(dir);
  engine.Next();
  engine.Send(Form(5, 1));
  constexpr int kNumTokens = 600'000;
  const std::string data = Train(5, "large", kNumTokens).SerializeAsString();
  for (size_t begin = 0; begin < data.size(); begin += kMaxPieceBytes) {
    lathe::v1::EngineMessage part;
    part.set_epoch(5);
    part.mutable_piece()->set_data(data.substr(begin, kMaxPieceBytes));
    part.mutable_piece()->set_last(begin + kMaxPieceBytes >= data.size());
    engine.Send(part);
  }
  worker.executor.AwaitCommands(1);
  const auto commands = worker.executor.commands();
  CHECK(std::get<TrainBatch>(commands[0]).requests[0].data[0].tokens.size() == kNumTokens);

  worker.Finish("large", std::vector<float>(kNumTokens, -1.0f));
  std::string answer;
  bool last = false;
  while (!last) {
    const lathe::v1::WorkerMessage part = engine.Next();
    REQUIRE(part.has_piece());
    answer += part.piece().data();
    last = part.piece().last();
  }
  lathe::v1::WorkerMessage done;
  REQUIRE(done.ParseFromString(answer));
  CHECK(done.done().result().forward_backward().outputs(0).logprobs().size() == 4 * kNumTokens);
}

TEST_CASE("an engine of a lower term is left, and one of a higher term obeyed", "[rpc]") {
  const FakeDataDir dir;
  FakeEngine engine(dir.address());
  ClientWorker worker(dir);
  engine.Next();
  engine.Send(Form(5, 7));
  engine.Send(Train(5, "r1"));
  worker.executor.AwaitCommands(1);
  engine.Send(Form(6, 6));
  const lathe::v1::WorkerMessage again = engine.Next();
  REQUIRE(again.has_hello());
  CHECK(again.hello().term() == 7);
  CHECK(worker.executor.commands().size() == 1);
}

TEST_CASE("a silent engine is abandoned for the next address", "[rpc]") {
  const FakeDataDir silent_dir;
  const FakeDataDir other_dir;
  FakeEngine silent(silent_dir.address());
  FakeEngine other(other_dir.address());
  FakeExecutor executor;
  AttachClient client({.engine_addresses = {silent_dir.address(), other_dir.address()},
                       .secret_path = other_dir.secret_path(),
                       .silence_limit = absl::Milliseconds(50)},
                      {.group = "g", .process_id = "p", .base_model = "b"}, executor,
                      [](const std::string&) {});
  client.Start();
  CHECK(silent.Next().has_hello());
  CHECK(other.Next().has_hello());
}

TEST_CASE("a worker that is asked to stop reports it and does not reconnect", "[rpc]") {
  const FakeDataDir dir;
  auto engine = std::make_unique<FakeEngine>(dir.address());
  ClientWorker worker(dir);
  engine->Next();
  engine->Send(Form(5, 1));
  worker.client.Leave("stopped", LeaveCause::kStopped);
  const lathe::v1::WorkerMessage leaving = engine->Next();
  CHECK(leaving.leaving().reason() == "stopped");
  CHECK_FALSE(leaving.leaving().has_failed());
  engine.reset();
  engine = std::make_unique<FakeEngine>(dir.address());
  // The first pause after a stream is the shortest: at most a twentieth of this patience.
  CHECK_FALSE(engine->Next(/*patience=*/absl::Seconds(1)).has_hello());
  worker.client.Stop();
}

TEST_CASE("another engine adopts the worker and gets what the first one missed", "[rpc]") {
  const FakeDataDir first_dir;
  const FakeDataDir second_dir;
  auto first = std::make_unique<FakeEngine>(first_dir.address());
  FakeExecutor executor;
  AttachClient client({.engine_addresses = {first_dir.address(), second_dir.address()},
                       .secret_path = first_dir.secret_path()},
                      {.group = "g", .process_id = "p", .base_model = "b"}, executor,
                      [](const std::string&) {});
  client.Start();
  REQUIRE(first->Next().has_hello());
  first->Send(Form(5, 1));
  first->Send(Train(5, "r1"));
  executor.AwaitCommands(1);
  first.reset();
  client.OnReport({.generation = executor.generation(),
                   .report = TrainDone{"r1", {{{-1.0f}}, {}}},
                   .model = ModelState{"m", 0, {1}}});
  FakeEngine second(second_dir.address());
  const lathe::v1::WorkerMessage hello = second.Next();
  REQUIRE(hello.has_hello());
  CHECK(hello.hello().epoch() == 5);
  second.Send(Adopt(5, 2));
  CHECK(second.Next().done().request_id() == "r1");
  CHECK(executor.commands().size() == 1);
}

TEST_CASE("an engine ends the process with Die", "[rpc]") {
  const FakeDataDir dir;
  FakeEngine engine(dir.address());
  ClientWorker worker(dir);
  engine.Next();
  lathe::v1::EngineMessage die;
  die.mutable_die()->set_reason("replaced");
  engine.Send(die);
  worker.died.WaitForNotification();
  CHECK(worker.die_reason == "replaced");
}

}  // namespace
}  // namespace lathe::worker

// Access rules, and the responses to administrators and workers.
#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/protocol.h"
#include "libs/common/rpc/status.h"
#include "libs/common/version.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

TEST_CASE("Engine: a tenant sees nothing of another", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  const std::string request_id = f.client.Train(1);
  f.client.Result(request_id);
  Client stranger(f.engine, f.engine.MakeKey("other"));

  v1::GetModelRequest get_model;
  get_model.set_model_id(f.client.model_id());
  v1::GetModelResponse model;
  CHECK(f.engine.engine().GetModel(CallContext(stranger.key()), get_model, &model).error_code() ==
        grpc::StatusCode::NOT_FOUND);
  v1::GetResultResponse result;
  CHECK(stranger.GetResult(request_id, &result).error_code() == grpc::StatusCode::NOT_FOUND);
  std::string id;
  CHECK(stranger.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(2), &id).code() ==
        absl::StatusCode::kNotFound);
  v1::ListRunsResponse runs;
  REQUIRE(f.engine.engine().ListRuns(CallContext(stranger.key()), {}, &runs).ok());
  CHECK(runs.total_count() == 0);
  REQUIRE(f.engine.engine().ListRuns(CallContext(f.client.key()), {}, &runs).ok());
  CHECK(runs.total_count() == 1);
}

TEST_CASE("Engine: calls without a valid key or scope are refused", "[engine]") {
  Fixture f;
  v1::ListRunsResponse runs;
  CHECK(f.engine.engine().ListRuns(CallContext("tml-nonsense"), {}, &runs).error_code() ==
        grpc::StatusCode::UNAUTHENTICATED);
  const std::string reader = f.engine.MakeKey("default", {"read"});
  CHECK(f.engine.engine().ListRuns(CallContext(reader), {}, &runs).ok());
  v1::SubmitResponse response;
  const absl::Status refused =
      FromGrpcStatus(f.engine.engine().CreateModel(CallContext(reader), {}, &response));
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK(ErrorCode(refused) == "missing_scope");
}

TEST_CASE("Engine: a worker with another secret is refused", "[engine]") {
  TestEngine engine;
  FakeWorker::Options options = engine.WorkerOptions();
  options.secret = "guessed";
  FakeWorker worker(options);
  CHECK(worker.WaitForEnd().error_code() == grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("Engine: a worker of the release before or after trains", "[engine]") {
  TestEngine engine(RangeOf(5));
  FakeWorker::Options options = engine.WorkerOptions();
  options.protocol = RangeOf(GENERATE(4, 5, 6));
  FakeWorker worker(options);
  engine.WaitForBaseModel(options.base_model);
  Client client(engine, engine.MakeKey("default"));
  client.MakeModel();
  std::string step;
  REQUIRE(client.OptimStep(1, &step).ok());
  CHECK(client.Result(step).has_optim_step());
}

TEST_CASE("Engine: a worker that is two releases apart is refused with both protocols",
          "[engine]") {
  TestEngine engine(RangeOf(5));
  const auto [protocol, error] =
      GENERATE(table<ProtocolRange, std::string>({{RangeOf(3), "protocol 3 of the worker"},
                                                  {ProtocolRange(), "protocol 0 of the worker"},
                                                  {RangeOf(7), "protocol 5 of the engine"}}));
  FakeWorker::Options options = engine.WorkerOptions();
  options.protocol = protocol;
  FakeWorker worker(options);
  const grpc::Status status = worker.WaitForEnd();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  const std::string range = protocol.newest > 5 ? "outside 6..7" : "outside 4..5";
  CHECK_THAT(status.error_message(), Catch::StartsWith(error) && Catch::Contains(range));
}

TEST_CASE("Engine: the Watch stream of a gateway that is two releases apart is refused",
          "[engine]") {
  TestEngine engine;
  const int64_t own = OwnProtocol().newest;
  const auto end_of = [&](const std::string& range) {
    grpc::ClientContext context;
    if (!range.empty()) context.AddMetadata(kProtocolHeader, range);
    const auto stream = engine.engine().Watch(&context);
    stream->Write({});
    v1::WatchResponse response;
    const bool is_answered = stream->Read(&response);
    if (is_answered) context.TryCancel();
    const grpc::Status status = stream->Finish();
    return is_answered ? grpc::Status::OK : status;
  };
  CHECK(end_of("").ok());
  CHECK(end_of(ToText(OwnProtocol())).ok());
  CHECK(end_of(ToText(RangeOf(own + 1))).ok());
  const grpc::Status refused = end_of(ToText(RangeOf(own + 2)));
  CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(refused.error_message(), Catch::EndsWith("upgrade the engine"));
  CHECK(end_of("4").error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Engine: a saved checkpoint is listed, described, signed and opened", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  const std::string path = f.client.Result(f.client.Save(1, "final")).save_weights().path();
  CHECK(path == "tinker://" + f.client.model_id() + "/weights/final");

  v1::ListCheckpointsResponse list;
  REQUIRE(f.engine.engine().ListCheckpoints(CallContext(f.client.key()), {}, &list).ok());
  REQUIRE(list.checkpoints_size() == 1);
  CHECK(list.checkpoints(0).tinker_path() == path);
  CHECK(list.checkpoints(0).size_bytes() == 123);
  v1::GetWeightsInfoRequest info;
  info.set_tinker_path(path);
  v1::GetWeightsInfoResponse described;
  REQUIRE(f.engine.engine().GetWeightsInfo(CallContext(f.client.key()), info, &described).ok());
  CHECK(described.lora_rank() == 8);
  const std::string stranger = f.engine.MakeKey("other");
  CHECK(f.engine.engine().GetWeightsInfo(CallContext(stranger), info, &described).error_code() ==
        grpc::StatusCode::NOT_FOUND);

  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(path);
  v1::DescribeArchiveResponse archive;
  REQUIRE(f.engine.engine().DescribeArchive(CallContext(f.client.key()), describe, &archive).ok());
  v1::OpenArchiveRequest open;
  open.set_token(archive.token());
  v1::OpenArchiveResponse opened;
  REQUIRE(f.engine.engine().OpenArchive(CallContext(""), open, &opened).ok());
  CHECK(opened.files_size() == 3);
  open.mutable_token()->at(3) ^= 1;
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
  f.engine.clock().Advance(ArchiveSigner::kLifetime);
  open.set_token(archive.token());
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::OUT_OF_RANGE);
}

TEST_CASE("Engine: admin makes and revokes keys, shows status and drains", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::CreateKeyRequest create;
  create.set_tenant("fresh");
  v1::CreateKeyResponse key;
  REQUIRE(f.engine.admin().CreateKey(CallContext(""), create, &key).ok());
  v1::AuthenticateResponse authenticated;
  CHECK(f.engine.engine().Authenticate(CallContext(key.api_key()), {}, &authenticated).ok());
  CHECK(authenticated.scopes_size() == 4);
  v1::RevokeKeyRequest revoke;
  revoke.set_key_id(key.key_id());
  v1::RevokeKeyResponse revoked;
  REQUIRE(f.engine.admin().RevokeKey(CallContext(""), revoke, &revoked).ok());
  CHECK_FALSE(f.engine.engine().Authenticate(CallContext(key.api_key()), {}, &authenticated).ok());

  std::string step;
  REQUIRE(f.client.OptimStep(1, &step).ok());
  f.client.Result(step);
  v1::GetStatusResponse status;
  REQUIRE(f.engine.admin().GetStatus(CallContext(""), {}, &status).ok());
  CHECK(status.version() == std::string(lathe::kVersion));
  REQUIRE(status.groups_size() == 1);
  CHECK(status.groups(0).state() == "ready");
  CHECK(status.groups(0).base_model() == "tiny");
  REQUIRE(status.models_size() == 1);
  CHECK(status.models(0).unsaved());
  CHECK(status.models(0).tenant() == "default");

  v1::DrainRequest drain;
  drain.set_timeout_ms(30'000);
  v1::DrainResponse drained;
  REQUIRE(f.engine.admin().Drain(CallContext(""), drain, &drained).ok());
  REQUIRE(drained.unsaved_model_ids_size() == 1);
  CHECK(drained.pending_requests() == 0);
  std::string id;
  CHECK_FALSE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(2), &id).ok());
}

}  // namespace
}  // namespace lathe::engine

// lathe.v1.Checkpoints against a whole engine.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

// A model with a checkpoint of each kind.
struct Saved : Fixture {
  std::string training;
  std::string external;

  Saved() {
    client.MakeModel();
    training = client.Result(client.Save(1, "a")).save_weights().path();
    const v1::OperationResult result = client.Result(Export(2, {}));
    external = result.save_weights_external().path();
    CHECK(result.kind() == v1::OPERATION_KIND_SAVE_WEIGHTS_EXTERNAL);
    CHECK(result.save_weights_external().size_bytes() == 123);
  }

  std::string Export(int64_t seq, const std::vector<std::string>& recipients) {
    v1::SaveWeightsExternalRequest request;
    request.set_model_id(client.model_id());
    request.set_seq_id(seq);
    request.set_name("x");
    request.set_ttl_seconds(600);
    for (const std::string& text : recipients) request.add_age_encryption_recipients(text);
    v1::SubmitResponse response;
    REQUIRE(engine.checkpoints()
                .SaveWeightsExternal(CallContext(client.key()), request, &response)
                .ok());
    return response.request_id();
  }

  // Returns the names in the copies' own files, from the file system alone.
  std::set<std::string> NamesOfCopies() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(engine.checkpoints_dir())) {
      std::ifstream file(entry.path() / kCopyNameFile);
      std::string name;
      if (std::getline(file, name)) names.insert(name);
    }
    return names;
  }

  absl::Status Copy(const std::string& key, v1::CopyWeightsRequest request, std::string* path) {
    v1::CopyWeightsResponse response;
    const grpc::Status status =
        engine.checkpoints().CopyWeights(CallContext(key), request, &response);
    *path = response.tinker_path();
    return FromGrpcStatus(status);
  }
};

TEST_CASE("Checkpoints: an external one is listed, linked, and ends with its links",
          "[engine][checkpoints]") {
  Saved f;
  CHECK(f.external == "tinker://" + f.client.model_id() + "/external_weights/x");
  v1::ListCheckpointsResponse list;
  REQUIRE(f.engine.engine().ListCheckpoints(CallContext(f.client.key()), {}, &list).ok());
  CHECK(list.total_count() == 2);
  CHECK(list.checkpoints(0).checkpoint_type() == "external");
  v1::ListCheckpointsRequest old;
  old.set_without_external(true);
  REQUIRE(f.engine.engine().ListCheckpoints(CallContext(f.client.key()), old, &list).ok());
  CHECK(list.total_count() == 1);

  v1::DescribeExternalWeightsRequest request;
  request.set_tinker_path(f.external);
  v1::DescribeExternalWeightsResponse links;
  REQUIRE(f.engine.checkpoints()
              .DescribeExternalWeights(CallContext(f.client.key()), request, &links)
              .ok());
  REQUIRE(links.files_size() == 2);
  CHECK(links.files(0).name() == "adapter_config.json");
  v1::OpenArchiveRequest open;
  open.set_token(links.files(1).token());
  v1::OpenArchiveResponse opened;
  REQUIRE(f.engine.engine().OpenArchive(CallContext(""), open, &opened).ok());
  CHECK(opened.is_plain());
  REQUIRE(opened.files_size() == 1);
  CHECK(opened.files(0).name() == "adapter_model.safetensors");
  f.engine.clock().Advance(absl::Seconds(600));
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::OUT_OF_RANGE);

  request.set_tinker_path(f.training);
  CHECK(f.engine.checkpoints()
            .DescribeExternalWeights(CallContext(f.client.key()), request, &links)
            .error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Checkpoints: recipients that cannot be used fail through the future",
          "[engine][checkpoints]") {
  Saved f;
  const auto [recipients, word] = GENERATE(table<std::vector<std::string>, std::string>({
      {{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"}, "SSH"},
      {{"age1nonsense"}, "age_encryption_recipients[0]"},
      {std::vector<std::string>(11, "age1"), "limit is 10"},
  }));
  const v1::OperationResult result = f.client.Result(f.Export(3, recipients));
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK(result.error().code() == "bad_recipient");
  CHECK(result.error().field() == "age_encryption_recipients");
  CHECK_THAT(result.error().message(), Catch::Contains(word));
}

TEST_CASE("Checkpoints: a copy is a checkpoint of its own, once per idempotency key",
          "[engine][checkpoints]") {
  Saved f;
  v1::CopyWeightsRequest request;
  request.set_source_path(f.training);
  request.set_idempotency_key("k1");
  std::string first;
  std::string again;
  REQUIRE(f.Copy(f.client.key(), request, &first).ok());
  REQUIRE(f.Copy(f.client.key(), request, &again).ok());
  CHECK(first == again);
  CHECK(first != f.training);
  CHECK(f.NamesOfCopies() == std::set<std::string>{first});
  request.set_idempotency_key("k2");
  std::string other;
  REQUIRE(f.Copy(f.client.key(), request, &other).ok());
  CHECK(other != first);

  v1::DeleteCheckpointRequest remove;
  remove.set_tinker_path(f.training);
  v1::DeleteCheckpointResponse removed;
  REQUIRE(f.engine.engine().DeleteCheckpoint(CallContext(f.client.key()), remove, &removed).ok());
  request.set_idempotency_key("k1");
  REQUIRE(f.Copy(f.client.key(), request, &again).ok());
  CHECK(first == again);
  request.set_idempotency_key("k3");
  CHECK(absl::IsNotFound(f.Copy(f.client.key(), request, &other)));
  f.engine.Restart();
  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(first);
  v1::DescribeArchiveResponse archive;
  CHECK(f.engine.engine().DescribeArchive(CallContext(f.client.key()), describe, &archive).ok());
}

TEST_CASE("Checkpoints: a token of the owner lets another tenant copy", "[engine][checkpoints]") {
  Saved f;
  const std::string stranger = f.engine.MakeKey("other");
  v1::CopyWeightsRequest request;
  request.set_source_path(f.training);
  std::string path;
  CHECK(absl::IsNotFound(f.Copy(stranger, request, &path)));
  request.set_weights_access_token("tml-nonsense");
  const absl::Status refused = f.Copy(stranger, request, &path);
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(ErrorCode(refused) == "bad_weights_access_token");
  request.set_weights_access_token(f.client.key());
  CHECK(f.Copy(stranger, request, &path).ok());
  v1::GetWeightsInfoRequest info;
  info.set_tinker_path(path);
  v1::GetWeightsInfoResponse described;
  CHECK(f.engine.engine().GetWeightsInfo(CallContext(stranger), info, &described).ok());
}

TEST_CASE("Checkpoints: a stranger's link to a public one ends when it is private again",
          "[engine][checkpoints]") {
  Saved f;
  const auto publish = [&f](bool is_public) {
    v1::PublishCheckpointRequest request;
    request.set_tinker_path(f.training);
    request.set_public_(is_public);
    v1::PublishCheckpointResponse response;
    REQUIRE(
        f.engine.engine().PublishCheckpoint(CallContext(f.client.key()), request, &response).ok());
  };
  publish(true);
  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(f.training);
  v1::DescribeArchiveResponse archive;
  const std::string stranger = f.engine.MakeKey("other");
  REQUIRE(f.engine.engine().DescribeArchive(CallContext(stranger), describe, &archive).ok());
  v1::OpenArchiveRequest open;
  open.set_token(archive.token());
  v1::OpenArchiveResponse opened;
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).ok());
  CHECK_THAT(opened.file_name(), Catch::EndsWith("-a.tar"));
  publish(false);
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Checkpoints: a link does not lead to files that replaced those it was made for",
          "[engine][checkpoints]") {
  Saved f;
  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(f.training);
  v1::DescribeArchiveResponse archive;
  REQUIRE(f.engine.engine().DescribeArchive(CallContext(f.client.key()), describe, &archive).ok());
  v1::DeleteCheckpointRequest remove;
  remove.set_tinker_path(f.training);
  v1::DeleteCheckpointResponse removed;
  REQUIRE(f.engine.engine().DeleteCheckpoint(CallContext(f.client.key()), remove, &removed).ok());
  CHECK(f.client.Result(f.client.Save(3, "a")).save_weights().path() == f.training);
  v1::OpenArchiveRequest open;
  open.set_token(archive.token());
  v1::OpenArchiveResponse opened;
  const absl::Status status =
      FromGrpcStatus(f.engine.engine().OpenArchive(CallContext(""), open, &opened));
  CHECK(ErrorCode(status) == "checkpoint_missing");
}

TEST_CASE("Checkpoints: a text signed for one purpose is not valid for another", "[engine]") {
  const TextSigner archives("secret", "archive");
  const TextSigner traces("secret", "trace");
  CHECK(archives.Verify(archives.Sign("text")) == "text");
  CHECK_FALSE(traces.Verify(archives.Sign("text")).has_value());
  CHECK_FALSE(TextSigner("other", "archive").Verify(archives.Sign("text")).has_value());
}

TEST_CASE("Checkpoints: a copy that cannot be made leaves no files", "[engine][checkpoints]") {
  Saved f;
  const auto num_dirs = [&] {
    const auto& dir = f.engine.runtime().checkpoints_dir();
    return std::distance(std::filesystem::directory_iterator(dir),
                         std::filesystem::directory_iterator());
  };
  const auto before = num_dirs();
  v1::CopyWeightsRequest request;
  request.set_source_path(f.training);
  request.set_session_id("nobody's");
  request.set_model_seq_id(1);
  std::string path;
  CHECK(absl::IsNotFound(f.Copy(f.client.key(), request, &path)));
  request.set_destination_project_id("p");
  CHECK(absl::IsInvalidArgument(f.Copy(f.client.key(), request, &path)));
  f.engine.Restart();
  CHECK(num_dirs() == before);
}

TEST_CASE("Checkpoints: files that a crash left are removed at the next start",
          "[engine][checkpoints]") {
  Saved f;
  const std::filesystem::path root = f.engine.runtime().checkpoints_dir();
  const auto orphan = root / ("c" + std::string(32, '0'));
  const auto foreign = root / "notes";
  std::filesystem::create_directories(orphan);
  std::filesystem::create_directories(foreign);
  f.engine.Restart();
  f.engine.Restart();  // stopping removes overdue files
  CHECK_FALSE(std::filesystem::exists(orphan));
  CHECK(std::filesystem::exists(foreign));
  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(f.training);
  v1::DescribeArchiveResponse archive;
  CHECK(f.engine.engine().DescribeArchive(CallContext(f.client.key()), describe, &archive).ok());
}

TEST_CASE("Checkpoints: a copy that the engine has no room for leaves no files",
          "[engine][checkpoints]") {
  Saved f;
  v1::CopyWeightsRequest request;
  request.set_source_path(f.training);
  f.engine.Restart(/*max_waiting_calls=*/0);
  std::string path;
  const absl::Status refused = f.Copy(f.client.key(), request, &path);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ErrorCode(refused) == "too_many_calls");
  f.engine.Stop();
  CHECK(f.NamesOfCopies().empty());
}

}  // namespace
}  // namespace lathe::engine

#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/json/weights_json.h"

namespace lathe::gateway {
namespace {

TEST_CASE("create_model of SDK 0.38.0 is read whole", "[json]") {
  const auto request = ReadBody(
      R"({"session_id":"sess1","model_seq_id":3,"base_model":"Qwen/Qwen3-8B",
          "lora_config":{"rank":8,"seed":1,"train_unembed":true,"train_mlp":false,"train_attn":true},
          "user_metadata":{"b":{"x":[1]},"a":"text"},"optimizer_config":{"type":"adamw"},
          "type":"create_model","later":1})",
      kCreateModel);
  REQUIRE(request.ok());
  CHECK(request->session_id() == "sess1");
  CHECK(request->model_seq_id() == 3);
  CHECK(request->lora_config().rank() == 8);
  CHECK(request->lora_config().seed() == 1);
  CHECK_FALSE(request->lora_config().train_mlp());
  CHECK(request->optimizer_type() == "adamw");
  REQUIRE(request->user_metadata_size() == 2);
  CHECK(request->user_metadata(0).name() == "a");
  CHECK(request->user_metadata(1).value() == R"({"x":[1]})");
}

TEST_CASE("create_model: alpha and modules of an adapter are read", "[json]") {
  const std::string body = R"({"session_id":"s","model_seq_id":0,"base_model":"m","lora_config":)";
  const auto request =
      ReadBody(body + R"({"alpha":16.5,"target_modules":["q_proj","lm_head"]}})", kCreateModel);
  REQUIRE(request.ok());
  CHECK(request->lora_config().alpha() == 16.5);
  REQUIRE(request->lora_config().target_modules_size() == 2);
  CHECK(request->lora_config().target_modules(1) == "lm_head");
  for (const char* modules : {"[]", "[1]", "\"q_proj\"", "{}"}) {
    const auto refused = ReadBody(body + R"({"target_modules":)" + modules + "}}", kCreateModel);
    CHECK(ErrorField(refused.status()) == "/lora_config/target_modules");
  }
  const auto text = ReadBody(body + R"({"alpha":"16"}})", kCreateModel);
  CHECK(ErrorField(text.status()) == "/lora_config/alpha");
}

TEST_CASE("A wrong type is refused with a JSON pointer", "[json]") {
  const auto request =
      ReadBody(R"({"session_id":"s","model_seq_id":0,"base_model":"m","lora_config":{"rank":"8"}})",
               kCreateModel);
  CHECK(ErrorCode(request.status()) == "invalid_field");
  CHECK(ErrorField(request.status()) == "/lora_config/rank");
}

TEST_CASE("A missing field and a body that is no object are refused", "[json]") {
  CHECK(ErrorField(ReadBody("{}", kUnloadModel).status()) == "/model_id");
  CHECK(ErrorCode(ReadBody("[1]", kUnloadModel).status()) == "invalid_field");
  CHECK(ErrorField(ReadBody(R"({"model_id":5})", kUnloadModel).status()) == "/model_id");
}

TEST_CASE("A session's metadata, tags and names are kept", "[json]") {
  const auto request = ReadBody(
      R"({"tags":["x"],"user_metadata":{"a":"b"},"sdk_version":"0.38.0","display_name":"run"})",
      kCreateSession);
  REQUIRE(request.ok());
  CHECK(request->tags(0) == "x");
  CHECK(request->display_name() == "run");
  CHECK_FALSE(ReadBody(R"({"tags":"x"})", kCreateSession).ok());
}

TEST_CASE("finish understands its reason", "[json]") {
  const auto request = ReadBody(R"({"reason":{"type":"errored"},"detail":null})", kFinishSession);
  REQUIRE(request.ok());
  CHECK(request->reason() == "errored");
  const auto none = GENERATE(as<std::string>(), "{}", R"({"reason":null})", R"({"reason":{}})");
  CHECK(ReadBody(none, kFinishSession)->reason() == "success");
}

TEST_CASE("optim_step distinguishes Adam from another optimizer", "[json]") {
  const auto adam =
      ReadBody(R"({"adam_params":{"learning_rate":0.5},"model_id":"m","seq_id":2})", kOptimStep);
  REQUIRE(adam.ok());
  CHECK(adam->adam_params().learning_rate() == 0.5);
  CHECK(adam->adam_params().beta2() == 0.95);
  const auto other = ReadBody(
      R"({"optimizer_params":{"type":"dimuon","learning_rate":0.1},"model_id":"m","seq_id":1})",
      kOptimStep);
  REQUIRE(other.ok());
  CHECK_FALSE(other->has_adam_params());
  CHECK(other->other_optimizer_type() == "dimuon");
  CHECK_FALSE(ReadBody(R"({"model_id":"m","seq_id":1})", kOptimStep).ok());
}

TEST_CASE("optim_step needs a learning rate, and null is no number", "[json]") {
  const auto step = [](const std::string& adam) {
    return ReadBody(R"({"model_id":"m","seq_id":1,"adam_params":)" + adam + "}", kOptimStep);
  };
  const auto without = GENERATE(as<std::string>(), "{}", R"({"lr":0.1})", R"({"beta1":0.9})");
  CHECK(ErrorField(step(without).status()) == "/adam_params/learning_rate");
  const auto name = GENERATE(as<std::string>(), "learning_rate", "beta1", "beta2", "eps",
                             "weight_decay", "grad_clip_norm");
  const std::string rest = name == "learning_rate" ? "" : R"("learning_rate":0.1,)";
  const auto null = step("{" + rest + "\"" + name + R"(":null})");
  CHECK(ErrorField(null.status()) == "/adam_params/" + name);
  CHECK(null.status().message() ==
        "field /adam_params/" + name + ": expected a finite number, got null");
}

TEST_CASE("An export names its recipients", "[json]") {
  const auto plain = ReadBody(R"({"model_id":"m","seq_id":1,"path":"x"})", kSaveWeightsExternal);
  REQUIRE(plain.ok());
  CHECK(plain->age_encryption_recipients_size() == 0);
  CHECK_FALSE(plain->has_ttl_seconds());
  const auto sealed = ReadBody(R"({"model_id":"m","seq_id":1,"path":"x","ttl_seconds":3600,
                "age_encryption_recipients":["age1a","age1b"]})",
                               kSaveWeightsExternal);
  REQUIRE(sealed.ok());
  CHECK(sealed->ttl_seconds() == 3600);
  CHECK(sealed->age_encryption_recipients(1) == "age1b");
  const auto text = GENERATE(as<std::string>(), R"("age1a")", "[1]", "{}");
  CHECK_FALSE(ReadBody(R"({"model_id":"m","path":"x","age_encryption_recipients":)" + text + "}",
                       kSaveWeightsExternal)
                  .ok());
}

TEST_CASE("A copy goes into a project, or to a model's place in a session", "[json]") {
  const auto newer = ReadBody(
      R"({"source_path":"tinker://r/weights/a","destination_project_id":"p"})", kCopyWeights);
  REQUIRE(newer.ok());
  CHECK(newer->destination_project_id() == "p");
  CHECK_FALSE(newer->has_model_seq_id());
  const auto older =
      ReadBody(R"({"source_path":"tinker://r/weights/a","session_id":"s","model_seq_id":0,
                "weights_access_token":"t"})",
               kCopyWeights);
  REQUIRE(older.ok());
  CHECK(older->has_model_seq_id());
  CHECK(older->weights_access_token() == "t");
  CHECK_FALSE(ReadBody(R"({"destination_project_id":"p"})", kCopyWeights).ok());
}

TEST_CASE("Both forms of save_weights_for_sampler are distinguished", "[json]") {
  const auto named =
      ReadBody(R"({"model_id":"m","seq_id":3,"path":"0001"})", kSaveWeightsForSampler);
  REQUIRE(named.ok());
  CHECK(named->name() == "0001");
  CHECK_FALSE(named->has_sampling_session_seq_id());
  const auto unnamed =
      ReadBody(R"({"model_id":"m","seq_id":3,"sampling_session_seq_id":0,"kind":"snapshot"})",
               kSaveWeightsForSampler);
  REQUIRE(unnamed.ok());
  CHECK_FALSE(unnamed->has_name());
  CHECK(unnamed->has_sampling_session_seq_id());
}

TEST_CASE("Both forms of load_weights are read", "[json]") {
  const auto legacy =
      ReadBody(R"({"model_id":"m","seq_id":1,"path":"tinker://a/weights/b","optimizer":true})",
               kLoadWeights);
  REQUIRE(legacy.ok());
  CHECK(legacy->optimizer());
  CHECK_FALSE(legacy->has_model_seq_id());
  const auto creating = ReadBody(
      R"({"session_id":"s","model_seq_id":0,"path":"tinker://a/weights/b","optimizer":false})",
      kLoadWeights);
  REQUIRE(creating.ok());
  CHECK(creating->has_model_seq_id());
  const auto token = ReadBody(
      R"({"model_id":"m","path":"tinker://a/weights/b","weights_access_token":"t"})", kLoadWeights);
  REQUIRE(token.ok());
  CHECK(token->weights_access_token() == "t");
}

TEST_CASE("A TTL is a number, or an explicit null", "[json]") {
  CHECK(ReadBody(R"({"ttl_seconds":60})", kSetTtl)->ttl_seconds() == 60);
  CHECK_FALSE(ReadBody(R"({"ttl_seconds":null})", kSetTtl)->has_ttl_seconds());
  CHECK_FALSE(ReadBody("{}", kSetTtl).ok());
}

TEST_CASE("A list's bound is checked before its elements", "[json]") {
  const std::string numbers = "[" + absl::StrJoin(std::vector<int>(65, 1), ",") + "]";
  const absl::Status status = ReadBody(R"({"tags":)" + numbers + "}", kCreateSession).status();
  CHECK(status.message() == "field /tags has 65 entries, limit is 64");
  CHECK(ErrorField(status) == "/tags");
}

TEST_CASE("A small body is strict in parts without fields too", "[json]") {
  CHECK(ErrorCode(ReadBody(R"({"x":{"a":1,"a":2}})", kCreateSession).status()) == "duplicate_key");
  CHECK(ErrorCode(ReadBody(R"({"x":1e999})", kCreateSession).status()) == "bad_number");
}

TEST_CASE("The schema of a body comes from its fields", "[json]") {
  OrderedJson schemas;
  AddSchema(kLoadWeights, *v1::LoadWeightsRequest::descriptor(), &schemas);
  const OrderedJson& schema = schemas["LoadWeightsRequest"];
  CHECK(schema["required"].dump() == R"(["path"])");
  CHECK(schema["properties"]["model_seq_id"].dump() == R"({"type":"integer"})");
  CHECK(schema["properties"]["optimizer_config"]["$ref"] == "#/components/schemas/OptimizerConfig");
  CHECK(schemas["OptimizerConfig"]["properties"]["type"].dump() ==
        R"({"type":"string","const":"adamw"})");
  AddSchema(kOptimStep, *v1::OptimStepRequest::descriptor(), &schemas);
  CHECK(schemas["AdamParams"]["properties"]["beta1"]["default"] == 0.9);
  CHECK_FALSE(schemas["OptimStepRequest"]["properties"].contains("optimizer_params"));
}

TEST_CASE("Answers have the shapes that clients validate", "[json]") {
  v1::SubmitResponse future;
  future.set_request_id("r1");
  CHECK(FutureToJson(future).dump() == R"({"request_id":"r1"})");
  v1::GetModelResponse model;
  model.set_model_id("m");
  model.set_base_model("Qwen/Qwen3-0.6B");
  const Json info = GetInfoToJson(model);
  CHECK(info["model_data"]["model_name"] == "Qwen/Qwen3-0.6B");
  CHECK(info["model_data"]["tokenizer_id"].is_null());
  CHECK(info["optimizer_config"]["type"] == "adamw");
  v1::GetCapabilitiesResponse capabilities;
  capabilities.add_models()->set_name("tiny");
  CHECK(CapabilitiesToJson(capabilities)["supported_models"][0]["model_name"] == "tiny");
}

}  // namespace
}  // namespace lathe::gateway

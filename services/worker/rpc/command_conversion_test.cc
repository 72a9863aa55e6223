#include "services/worker/rpc/command_conversion.h"

#include <catch2/catch.hpp>

#include <variant>

#include "services/worker/rpc/tensor_conversion.h"

namespace lathe::worker {
namespace {

lathe::v1::Sample MakeSample() {
  lathe::v1::Sample sample;
  sample.set_request_id("r");
  sample.set_tenant_id("t");
  sample.set_version_id("v");
  lathe::v1::SampleRequest* request = sample.mutable_request();
  request->add_prompt()->set_tokens(WritePacked(std::vector<int32_t>{1, 2}));
  request->set_num_samples(3);
  request->mutable_params()->set_max_tokens(10);
  request->mutable_params()->set_seed(42);
  request->mutable_params()->set_temperature(0.5);
  request->mutable_params()->set_top_k(-1);
  request->mutable_params()->set_top_p(0.9);
  return sample;
}

TEST_CASE("a sample request keeps its parameters", "[rpc]") {
  const auto request = ToSampleRequest(MakeSample());
  REQUIRE(request.ok());
  CHECK(request->tenant_id == "t");
  CHECK(request->version_id == "v");
  CHECK(request->prompt == std::vector<int32_t>{1, 2});
  CHECK(request->num_samples == 3);
  CHECK(request->params.max_tokens == 10);
  CHECK(request->params.seed == 42);
  CHECK(request->params.temperature == 0.5);
  CHECK(request->params.top_p == 0.9);
  CHECK_FALSE(request->params.ignore_eos);
}

TEST_CASE("an empty list of stops turns every stop off, an absent one does not", "[rpc]") {
  lathe::v1::Sample sample = MakeSample();
  sample.mutable_request()->mutable_params()->mutable_stop_strings();
  CHECK(ToSampleRequest(sample)->params.ignore_eos);
  sample.mutable_request()->mutable_params()->mutable_stop_tokens();
  CHECK(ToSampleRequest(sample)->params.ignore_eos);
  sample.mutable_request()->mutable_params()->mutable_stop_tokens()->add_values(7);
  CHECK(ToSampleRequest(sample)->params.stop_tokens == std::vector<int32_t>{7});
  CHECK_FALSE(ToSampleRequest(sample)->params.ignore_eos);
  sample.mutable_request()->mutable_params()->mutable_stop_strings()->add_values(
      std::string(1, '\n'));
  CHECK(ToSampleRequest(sample)->params.stop_strings.at(0) == "\n");
}

TEST_CASE("a sample request keeps what it asks of its prompt", "[rpc]") {
  lathe::v1::Sample sample = MakeSample();
  lathe::v1::SampleRequest* request = sample.mutable_request();
  request->mutable_params()->set_min_p(0.25);
  request->set_prompt_logprobs(true);
  request->set_prompt_logprobs_last_n(1);
  request->set_prompt_alt_tokens_k(3);
  request->set_topk_sample_logprobs(4);
  lathe::v1::Tensor* targets = request->mutable_target_prompt_logprobs();
  targets->set_dtype(lathe::v1::DTYPE_INT64);
  targets->add_shape(1);
  targets->add_shape(2);
  targets->set_dense(WritePacked(std::vector<int64_t>{7, -1}));
  const auto native = ToSampleRequest(sample);
  REQUIRE(native.ok());
  CHECK(native->params.min_p == 0.25);
  CHECK(native->prompt_logprobs_last_n == 1);
  CHECK(native->prompt_alt_tokens_k == 3);
  CHECK(native->topk_sample_logprobs == 4);
  CHECK(native->targets->tokens == std::vector<int64_t>{7, -1});
  CHECK(native->targets->offsets == std::vector<int64_t>{0, 2});

  targets->set_dense(WritePacked(std::vector<int64_t>{7}));
  CHECK(ToSampleRequest(sample).status().code() == absl::StatusCode::kInvalidArgument);
  targets->set_shape(0, 2);
  CHECK(ToSampleRequest(sample).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("scored targets have the layout of the question", "[rpc]") {
  lathe::v1::Tensor asked;
  asked.set_dtype(lathe::v1::DTYPE_INT64);
  asked.add_shape(2);
  asked.add_shape(9);
  asked.mutable_sparse_csr()->set_values(WritePacked(std::vector<int64_t>{5}));
  asked.mutable_sparse_csr()->set_crow_indices(WritePacked(std::vector<int64_t>{0, 0, 1}));
  asked.mutable_sparse_csr()->set_col_indices(WritePacked(std::vector<int64_t>{8}));
  const auto targets = ReadTargets(asked, /*prompt_length=*/3);
  REQUIRE(targets.ok());
  const lathe::v1::Tensor answer =
      ToProto(PromptTargetLogprobs{.targets = *targets, .logprobs = {-0.5f}});
  CHECK(answer.dtype() == lathe::v1::DTYPE_FLOAT32);
  CHECK(answer.shape(0) == 2);
  CHECK(answer.shape(1) == 9);
  CHECK(answer.sparse_csr().crow_indices() == asked.sparse_csr().crow_indices());
  CHECK(answer.sparse_csr().col_indices() == asked.sparse_csr().col_indices());
  CHECK(answer.sparse_csr().values() == WritePacked(std::vector<float>{-0.5f}));
}

TEST_CASE("a prompt that is not tokens is an error of its request", "[rpc]") {
  lathe::v1::EngineMessage message;
  *message.mutable_sample() = MakeSample();
  message.mutable_sample()->mutable_request()->add_prompt()->set_unsupported("image");
  const auto commands = ToCommands(message);
  REQUIRE(commands.size() == 1);
  CHECK(commands[0].request_id == "r");
  CHECK(commands[0].command.status().message() ==
        "chunk is of kind 'image', only tokens are supported");
}

TEST_CASE("a creation keeps the adapter's shape", "[rpc]") {
  lathe::v1::EngineMessage message;
  lathe::v1::CreateAdapter* proto = message.mutable_create_adapter();
  proto->mutable_lora()->set_rank(4);
  proto->mutable_lora()->set_alpha(16.5);
  proto->mutable_lora()->set_seed(~uint64_t{0});
  proto->mutable_lora()->add_target_modules("q_proj");
  proto->mutable_lora()->add_target_modules("lm_head");
  const auto commands = ToCommands(message);
  REQUIRE(commands.size() == 1);
  REQUIRE(commands[0].command.ok());
  const LoraSpec lora = std::get<CreateAdapter>(*commands[0].command).lora;
  CHECK(lora.rank == 4);
  CHECK(lora.alpha == 16.5);
  CHECK(lora.seed == ~uint64_t{0});
  CHECK(lora.target_modules == std::vector<std::string>{"q_proj", "lm_head"});
}

TEST_CASE("an optimizer step keeps its window and parameters", "[rpc]") {
  lathe::v1::EngineMessage message;
  lathe::v1::OptimStep* step = message.mutable_optim_step();
  step->set_request_id("r");
  step->set_model_id("m");
  step->set_seq_id(9);
  step->set_expected_applied_seq(5);
  step->add_window(7);
  step->add_window(8);
  step->mutable_adam_params()->set_learning_rate(0.25);
  step->mutable_adam_params()->set_grad_clip_norm(2);
  const auto commands = ToCommands(message);
  REQUIRE(commands.size() == 1);
  const OptimStep& native = std::get<OptimStep>(*commands[0].command);
  CHECK(native.expected_applied_seq == 5);
  CHECK(native.window == std::vector<int64_t>{7, 8});
  CHECK(native.adam.learning_rate == 0.25);
  CHECK(native.adam.grad_clip_norm == 2);
  CHECK(commands[0].info.kind == lathe::v1::OPERATION_KIND_OPTIM_STEP);
}

TEST_CASE("saves know their kind", "[rpc]") {
  lathe::v1::EngineMessage message;
  message.mutable_save_checkpoint()->set_for_sampler(true);
  CHECK(std::get<SaveCheckpoint>(*ToCommands(message)[0].command).kind == CheckpointKind::kSampler);
  message.mutable_save_checkpoint()->set_for_sampler(false);
  CHECK(std::get<SaveCheckpoint>(*ToCommands(message)[0].command).kind ==
        CheckpointKind::kTraining);
  message.mutable_save_checkpoint()->set_external(true);
  message.mutable_save_checkpoint()->add_age_recipients("age1x");
  const SaveCheckpoint external = std::get<SaveCheckpoint>(*ToCommands(message)[0].command);
  CHECK(external.kind == CheckpointKind::kExternal);
  CHECK(external.age_recipients == std::vector<std::string>{"age1x"});
}

TEST_CASE("snapshots, restorations and versions keep every field", "[rpc]") {
  lathe::v1::EngineMessage message;
  lathe::v1::Snapshot* proto = message.mutable_snapshot();
  proto->set_snapshot_id("x");
  proto->set_model_id("m");
  proto->set_dir("/d");
  proto->set_manifest_json("{}");
  REQUIRE(ToCommands(message).size() == 1);
  CHECK(ToCommands(message)[0].request_id.empty());
  const Snapshot snapshot = std::get<Snapshot>(*ToCommands(message)[0].command);
  CHECK(snapshot.snapshot_id == "x");
  CHECK(snapshot.model_id == "m");
  CHECK(snapshot.dir == "/d");
  CHECK(snapshot.manifest_json == "{}");

  message.mutable_restore_adapter()->set_request_id("r");
  message.mutable_restore_adapter()->set_model_id("m");
  message.mutable_restore_adapter()->set_dir("/d");
  REQUIRE(ToCommands(message).size() == 1);
  CHECK(ToCommands(message)[0].request_id == "r");
  CHECK(ToCommands(message)[0].info.kind == lathe::v1::OPERATION_KIND_LOAD_WEIGHTS);
  CHECK(ToCommands(message)[0].info.model_id == "m");
  const RestoreAdapter restore = std::get<RestoreAdapter>(*ToCommands(message)[0].command);
  CHECK(restore.request_id == "r");
  CHECK(restore.model_id == "m");
  CHECK(restore.dir == "/d");

  message.mutable_save_version()->set_version_id("v");
  message.mutable_save_version()->set_dir("/d");
  message.mutable_save_version()->set_manifest_json("{}");
  const SaveVersion save = std::get<SaveVersion>(*ToCommands(message)[0].command);
  CHECK(save.version_id == "v");
  CHECK(save.dir == "/d");
  CHECK(save.manifest_json == "{}");

  message.mutable_load_version()->set_version_id("v");
  message.mutable_load_version()->set_dir("/d");
  message.mutable_load_version()->set_inflight_seq_id(9);
  const LoadVersion load = std::get<LoadVersion>(*ToCommands(message)[0].command);
  CHECK(load.version_id == "v");
  CHECK(load.dir == "/d");
  CHECK(load.inflight_seq_id == 9);
}

TEST_CASE("messages about the stream are no commands", "[rpc]") {
  lathe::v1::EngineMessage message;
  message.mutable_heartbeat();
  CHECK(ToCommands(message).empty());
}

TEST_CASE("a message without a command is not decoded as a command", "[rpc]") {
  lathe::v1::EngineMessage message;
  message.mutable_heartbeat();
  CHECK(absl::IsInternal(DecodeCommand(message.SerializeAsString()).status()));
  CHECK(absl::IsInternal(DecodeCommand("\xff").status()));
}

}  // namespace
}  // namespace lathe::worker

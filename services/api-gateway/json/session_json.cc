#include "services/api-gateway/json/session_json.h"

#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

template <typename Repeated>
Json StringList(const Repeated& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  return list;
}

constexpr Field kCreateSessionFields[] = {
    {.name = "tags", .max_count = 64},
    kMetadata,
    {.name = "sdk_version"},
    {.name = "display_name"},
    {.name = "project_id", .ref = "ProjectId"},
};

constexpr Field kHeartbeatFields[] = {{.name = "session_id", .is_required = true}};

constexpr Field kReasonFields[] = {{.name = "type",
                                    .to = "reason",
                                    .fallback = "success",
                                    .schema = R"("enum": ["success", "errored", "interrupted"])"}};
constexpr ObjectFields kReason = {"", kReasonFields};
constexpr Field kFinishSessionFields[] = {
    {.name = "reason", .to = kSame, .object = &kReason},
    {.name = "detail"},
};

}  // namespace

constexpr BodyFields<v1::CreateSessionRequest> kCreateSession = {
    {"CreateSessionRequest", kCreateSessionFields}};
constexpr BodyFields<v1::HeartbeatRequest> kHeartbeat = {
    {"SessionHeartbeatRequest", kHeartbeatFields}};
constexpr BodyFields<v1::FinishSessionRequest> kFinishSession = {
    {"FinishSessionRequest", kFinishSessionFields}};

Json CreateSessionToJson(const v1::CreateSessionResponse& response) {
  return {{"type", "create_session"},
          {"session_id", response.session_id()},
          {"info_message", nullptr},
          {"warning_message", nullptr},
          {"error_message", nullptr}};
}

Json CursorToJson(int64_t limit, int64_t offset, int64_t total_count) {
  return {{"limit", limit}, {"offset", offset}, {"total_count", total_count}};
}

Json ListSessionsToJson(const v1::ListSessionsResponse& response, int64_t limit, int64_t offset) {
  return {{"sessions", StringList(response.session_ids())},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

Json GetSessionToJson(const v1::GetSessionResponse& response) {
  Json session = {{"training_run_ids", StringList(response.training_run_ids())},
                  {"sampler_ids", StringList(response.sampler_ids())},
                  {"user_metadata", MetadataToJson(response.user_metadata())},
                  {"display_name", nullptr}};
  if (!response.display_name().empty()) session["display_name"] = response.display_name();
  return session;
}

Json CapabilitiesToJson(const v1::GetCapabilitiesResponse& response) {
  Json models = Json::array();
  for (const v1::ServedModel& model : response.models()) {
    models.push_back({{"model_name", model.name()},
                      {"max_context_length", model.max_context_length()},
                      {"trainable", model.trainable()},
                      {"sampleable", model.sampleable()},
                      {"tokenizer_id", model.tokenizer_id()},
                      {"max_lora_rank", model.max_lora_rank()},
                      {"ready", model.ready()},
                      {"reason", model.ready() ? Json(nullptr) : Json(model.reason())}});
  }
  return {{"supported_models", std::move(models)}};
}

Json CheckpointToJson(const v1::Checkpoint& checkpoint) {
  return {{"checkpoint_id", checkpoint.checkpoint_id()},
          {"checkpoint_type", checkpoint.checkpoint_type()},
          {"time", TimestampText(checkpoint.time())},
          {"tinker_path", checkpoint.tinker_path()},
          {"size_bytes", checkpoint.size_bytes()},
          {"public", checkpoint.public_()},
          {"missing", checkpoint.missing()},
          {"user_metadata", MetadataToJson(checkpoint.user_metadata())},
          {"expires_at", checkpoint.has_expires_at() ? Json(TimestampText(checkpoint.expires_at()))
                                                     : Json(nullptr)}};
}

Json RunToJson(const v1::Run& run) {
  // The id is {session_id}:train:{number}.
  const std::string& id = run.training_run_id();
  Json json = {{"training_run_id", id},
               {"session_id", id.substr(0, id.find(":train:"))},
               {"base_model", run.base_model()},
               {"model_owner", run.model_owner()},
               {"is_lora", run.is_lora()},
               {"lora_rank", run.lora_rank()},
               {"last_request_time", TimestampText(run.last_request_time())},
               {"corrupted", run.corrupted()},
               {"last_checkpoint", nullptr},
               {"last_sampler_checkpoint", nullptr},
               {"user_metadata", MetadataToJson(run.user_metadata())}};
  if (run.has_last_checkpoint()) json["last_checkpoint"] = CheckpointToJson(run.last_checkpoint());
  if (run.has_last_sampler_checkpoint()) {
    json["last_sampler_checkpoint"] = CheckpointToJson(run.last_sampler_checkpoint());
  }
  return json;
}

Json ListRunsToJson(const v1::ListRunsResponse& response, int64_t limit, int64_t offset) {
  Json runs = Json::array();
  for (const v1::Run& run : response.runs()) runs.push_back(RunToJson(run));
  return {{"training_runs", std::move(runs)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

Json ListCheckpointsToJson(const v1::ListCheckpointsResponse& response, int64_t limit,
                           int64_t offset) {
  Json checkpoints = Json::array();
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    checkpoints.push_back(CheckpointToJson(checkpoint));
  }
  return {{"checkpoints", std::move(checkpoints)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

}  // namespace lathe::gateway

#include "services/api-gateway/json/session_json.h"

#include "libs/common/status_macros.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

template <typename Repeated>
Json StringList(const Repeated& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  return list;
}

void ReadTags(FieldReader& in, const Json& body, v1::CreateSessionRequest* request) {
  if (!in.Has("tags")) return;
  const Json& tags = body["tags"];
  if (!tags.is_array()) return in.Fail("tags", "a list of strings");
  for (const Json& tag : tags) {
    if (!tag.is_string()) return in.Fail("tags", "a list of strings");
    request->add_tags(tag.get<std::string>());
  }
}

}  // namespace

absl::StatusOr<v1::CreateSessionRequest> CreateSessionFromJson(const Json& body) {
  FieldReader in(body);
  v1::CreateSessionRequest request;
  ReadTags(in, body, &request);
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  request.set_sdk_version(in.StringOr("sdk_version", ""));
  request.set_display_name(in.StringOr("display_name", ""));
  request.set_project_id(in.StringOr("project_id", ""));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json CreateSessionToJson(const v1::CreateSessionResponse& response) {
  return {{"type", "create_session"},
          {"session_id", response.session_id()},
          {"info_message", nullptr},
          {"warning_message", nullptr},
          {"error_message", nullptr}};
}

absl::StatusOr<v1::HeartbeatRequest> HeartbeatFromJson(const Json& body) {
  FieldReader in(body);
  v1::HeartbeatRequest request;
  request.set_session_id(in.String("session_id"));
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::FinishSessionRequest> FinishSessionFromJson(const Json& body,
                                                               const std::string& session_id) {
  FieldReader in(body);
  FieldReader reason(in.Object("reason"), in.PointerTo("reason"));
  v1::FinishSessionRequest request;
  request.set_session_id(session_id);
  request.set_reason(reason.StringOr("type", "success"));
  request.set_detail(in.StringOr("detail", ""));
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(reason.status());
  return request;
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
                      {"max_lora_rank", model.max_lora_rank()}});
  }
  return {{"supported_models", std::move(models)}};
}

}  // namespace lathe::gateway

#include "services/api-gateway/json/accounts_json.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "libs/common/status_macros.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

// Reads the strings of the list `name`. An empty list is an error: it would find nothing, but some
// clients mean everything by it.
template <typename Strings>
void ReadStrings(FieldReader& in, const Json& object, const std::string& name, Strings* strings) {
  if (!in.Has(name)) return;
  const Json& list = object[name];
  if (!list.is_array() || list.empty()) return in.Fail(name, "a list of at least one string");
  for (const Json& one : list) {
    if (!one.is_string()) return in.Fail(name, "a list of at least one string");
    strings->Add(one.get<std::string>());
  }
}

absl::Status ReadOwner(const Json& owner, const std::string& pointer,
                       v1::SearchSessionsRequest* request) {
  FieldReader in(owner, pointer);
  request->set_owner(in.String("type"));
  ReadStrings(in, owner, "owner_urns", request->mutable_owner_urns());
  return in.status();
}

absl::Status ReadStatuses(FieldReader& in, const Json& body, v1::SearchSessionsRequest* request) {
  if (!in.Has("statuses")) return absl::OkStatus();
  const Json& statuses = body["statuses"];
  if (!statuses.is_array() || statuses.empty()) {
    in.Fail("statuses", "a list of at least one status");
    return in.status();
  }
  for (size_t i = 0; i < statuses.size(); ++i) {
    FieldReader status(statuses[i], in.PointerTo("statuses") + "/" + std::to_string(i));
    v1::SessionStatusQuery* const query = request->add_statuses();
    query->set_type(status.String("type"));
    ReadStrings(status, statuses[i], "reasons", query->mutable_reasons());
    RETURN_IF_ERROR(status.status());
  }
  return absl::OkStatus();
}

absl::Status ReadCursor(const Json& cursor, const std::string& pointer,
                        v1::SearchSessionsRequest* request) {
  FieldReader in(cursor, pointer);
  const std::string text = in.String("last_created_at");
  request->mutable_cursor()->set_last_session_id(in.String("last_session_id"));
  RETURN_IF_ERROR(in.status());
  ASSIGN_OR_RETURN(*request->mutable_cursor()->mutable_last_created_at(),
                   TimestampFromText(text, in.PointerTo("last_created_at")));
  return absl::OkStatus();
}

Json NullIfEmpty(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json StatusToJson(const v1::SessionStatus& status) {
  Json json = {{"type", status.type()}};
  if (!status.reason().empty()) json["reason"] = {{"type", status.reason()}};
  if (!status.detail().empty()) json["detail"] = status.detail();
  return json;
}

Json SummaryToJson(const v1::SessionSummary& session) {
  return {{"session_id", session.session_id()},
          {"owner", session.owner()},
          {"project_id", session.project_id()},
          {"created_at", TimestampText(session.created_at())},
          {"status", session.has_status() ? StatusToJson(session.status()) : Json(nullptr)},
          {"checkpoints_count", session.num_checkpoints()},
          {"checkpoint_storage_bytes", session.stored_bytes()},
          {"display_name", NullIfEmpty(session.display_name())},
          {"user_metadata", MetadataToJson(session.user_metadata())}};
}

double Gigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// Events of one hour, each with its number of tokens as the sort key.
class HourOfEvents {
 public:
  explicit HourOfEvents(const std::string& owner) : owner_(owner) {}

  void Add(const v1::Usage& usage) {
    AddTokens(usage, {{"type", "training"}},
              usage.forward_tokens() + usage.forward_backward_tokens());
    AddTokens(usage, {{"type", "sampling_prefill"}, {"cached", false}}, usage.prefill_tokens());
    AddTokens(usage, {{"type", "sampling_prefill"}, {"cached", true}},
              usage.cached_prefill_tokens());
    AddTokens(usage, {{"type", "sampling_sample"}}, usage.sampled_tokens());
    if (usage.num_checkpoints() > 0) {
      Add(usage, {{"type", "checkpoint"}, {"count", usage.num_checkpoints()}}, 0);
    }
    if (usage.stored_bytes() > 0) {
      Add(usage, {{"type", "storage"}, {"gigabyte_hours", Gigabytes(usage.stored_bytes())}}, 0);
    }
  }

  // Appends the events to `data`, most tokens first, and clears them.
  void MoveTo(Json& data) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [tokens, event] : events_) data.push_back(std::move(event));
    events_.clear();
  }

 private:
  void AddTokens(const v1::Usage& usage, Json info, int64_t tokens) {
    if (tokens == 0) return;
    info["token_count"] = tokens;
    Add(usage, std::move(info), tokens);
  }

  void Add(const v1::Usage& usage, Json info, int64_t tokens) {
    constexpr int64_t kHourSeconds = 3600;
    google::protobuf::Timestamp end = usage.bucket_start();
    end.set_seconds(end.seconds() + kHourSeconds);
    events_.emplace_back(tokens, Json{{"bucket_start", TimestampText(usage.bucket_start())},
                                      {"bucket_end", TimestampText(end)},
                                      {"base_model", NullIfEmpty(usage.base_model())},
                                      {"user_id", owner_},
                                      {"user_name", owner_},
                                      {"session_id", NullIfEmpty(usage.session_id())},
                                      {"project_id", NullIfEmpty(usage.project_id())},
                                      {"event_info", std::move(info)}});
  }

  const std::string owner_;
  std::vector<std::pair<int64_t, Json>> events_;
};

}  // namespace

absl::StatusOr<v1::AssignSessionProjectRequest> AssignProjectFromJson(
    const Json& body, const std::string& session_id) {
  FieldReader in(body);
  v1::AssignSessionProjectRequest request;
  request.set_session_id(session_id);
  request.set_project_id(in.String("project_id"));
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::SearchSessionsRequest> SearchFromJson(const Json& body) {
  FieldReader in(body);
  v1::SearchSessionsRequest request;
  request.set_session_id(in.StringOr("session_id", ""));
  ReadStrings(in, body, "project_ids", request.mutable_project_ids());
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  if (auto name = in.OptionalString("display_name")) {
    request.set_display_name(*std::move(name));
  }
  if (const auto limit = in.OptionalInt("limit")) request.set_limit(*limit);
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(ReadStatuses(in, body, &request));
  if (in.Has("owner")) {
    RETURN_IF_ERROR(ReadOwner(body["owner"], in.PointerTo("owner"), &request));
  }
  if (in.Has("cursor")) {
    RETURN_IF_ERROR(ReadCursor(body["cursor"], in.PointerTo("cursor"), &request));
  }
  return request;
}

Json SearchToJson(const v1::SearchSessionsResponse& response) {
  Json sessions = Json::array();
  for (const v1::SessionSummary& session : response.sessions()) {
    sessions.push_back(SummaryToJson(session));
  }
  Json json = {{"sessions", std::move(sessions)}, {"next_cursor", nullptr}};
  if (response.has_next_cursor()) {
    json["next_cursor"] = {
        {"last_created_at", TimestampText(response.next_cursor().last_created_at())},
        {"last_session_id", response.next_cursor().last_session_id()}};
  }
  return json;
}

Json UsageToJson(const v1::ListUsageResponse& response) {
  Json data = Json::array();
  HourOfEvents hour(response.owner());
  int64_t hour_begin = 0;
  for (const v1::Usage& usage : response.usage()) {
    if (usage.bucket_start().seconds() != hour_begin) hour.MoveTo(data);
    hour_begin = usage.bucket_start().seconds();
    hour.Add(usage);
  }
  hour.MoveTo(data);
  Json sessions = Json::object();
  for (const v1::UsageSession& session : response.sessions()) {
    sessions[session.session_id()] = {{"user_metadata", MetadataToJson(session.user_metadata())}};
  }
  return {{"data", std::move(data)}, {"sessions", std::move(sessions)}};
}

Json CheckpointStorageToJson(const v1::GetCheckpointStorageResponse& response) {
  Json data = Json::array();
  for (const v1::ProjectStorage& project : response.projects()) {
    data.push_back({{"project_id", NullIfEmpty(project.project_id())},
                    {"user_name", response.owner()},
                    {"checkpoint_count", project.num_checkpoints()},
                    {"size_bytes", project.stored_bytes()},
                    {"size_gigabytes", Gigabytes(project.stored_bytes())}});
  }
  return {{"data", std::move(data)}};
}

}  // namespace lathe::gateway

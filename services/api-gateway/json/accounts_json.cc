#include "services/api-gateway/json/accounts_json.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

constexpr Field kAssignFields[] = {{.name = "project_id", .is_required = true, .ref = "ProjectId"}};

constexpr char kReasons[] = R"("enum": ["success", "errored", "interrupted"])";
constexpr Field kStatusFields[] = {
    {.name = "type",
     .is_required = true,
     .schema = R"("enum": ["active", "client_finished", "cancelled", "failed"])"},
    {.name = "reasons", .min_count = 1, .items = kReasons},
};
constexpr ObjectFields kStatus = {"", kStatusFields};

constexpr Field kOwnerFields[] = {
    {.name = "type",
     .to = "owner",
     .is_required = true,
     .schema = R"("enum": ["own", "accessible", "user"])"},
    {.name = "owner_urns", .min_count = 1, .schema = R"("maxItems": 10)"},
};
constexpr ObjectFields kOwner = {"", kOwnerFields};

constexpr Field kCursorFields[] = {
    {.name = "last_created_at", .is_required = true},
    {.name = "last_session_id", .is_required = true},
};
constexpr ObjectFields kCursor = {"SessionCursor", kCursorFields};

// An empty list is an error: it would find nothing, but some clients mean everything by it.
constexpr Field kSearchFields[] = {
    {.name = "session_id", .about = "With display_name: either one suffices."},
    {.name = "project_ids", .min_count = 1, .schema = R"("maxItems": 100)", .ref = "ProjectId"},
    {.name = "user_metadata", .about = "Exact; every pair must hold."},
    {.name = "display_name",
     .about = "Words, in any case, all of which are in the name.",
     .schema = R"("minLength": 1)"},
    {.name = "owner", .to = kSame, .object = &kOwner},
    {.name = "statuses", .min_count = 1, .object = &kStatus, .schema = R"("maxItems": 16)"},
    {.name = "limit", .schema = R"("minimum": 1, "maximum": 200, "default": 50)"},
    {.name = "cursor", .object = &kCursor},
};

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

constexpr BodyFields<v1::AssignSessionProjectRequest> kAssignProject = {
    {"AssignProjectRequest", kAssignFields}};
constexpr BodyFields<v1::SearchSessionsRequest> kSearchSessions = {
    {"SearchSessionsRequest", kSearchFields}};

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

#include "services/api-gateway/json/accounts_json.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

absl::StatusOr<v1::SearchSessionsRequest> Search(const char* text) {
  return ReadBody(text, kSearchSessions);
}

TEST_CASE("AccountsJson: a search as the SDK sends it", "[json]") {
  const auto plain = Search(R"({"user_metadata":{},"owner":{"type":"own"},"limit":50})");
  REQUIRE(plain.ok());
  CHECK(plain->owner() == "own");
  CHECK(plain->limit() == 50);
  CHECK_FALSE(plain->has_display_name());
  CHECK_FALSE(plain->has_cursor());
  const auto full = Search(R"({"session_id":"s","project_ids":["p","q"],"user_metadata":{"a":"b"},
    "display_name":"x","owner":{"type":"user","owner_urns":["me"]},"limit":2,
    "statuses":[{"type":"active"},{"type":"client_finished","reasons":["errored"]}],
    "cursor":{"last_created_at":"2026-01-02T03:04:05.25+01:00","last_session_id":"t"}})");
  REQUIRE(full.ok());
  CHECK(full->project_ids_size() == 2);
  CHECK(full->user_metadata(0).value() == "b");
  CHECK(full->owner_urns(0) == "me");
  CHECK(full->statuses(1).reasons(0) == "errored");
  CHECK(TimestampText(full->cursor().last_created_at()) == "2026-01-02T02:04:05.25Z");
}

TEST_CASE("AccountsJson: a wrong search is refused by name", "[json]") {
  const auto [text, field] = GENERATE(table<const char*, const char*>(
      {{R"({"limit":"2"})", "/limit"},
       {R"({"project_ids":[]})", "/project_ids"},
       {R"({"project_ids":[1]})", "/project_ids"},
       {R"({"statuses":[]})", "/statuses"},
       {R"({"statuses":[{"type":"active"},{}]})", "/statuses/1/type"},
       {R"({"statuses":[{"type":"client_finished","reasons":"x"}]})", "/statuses/0/reasons"},
       {R"({"owner":"own"})", "/owner"},
       {R"({"owner":{}})", "/owner/type"},
       {R"({"cursor":{"last_session_id":"s"}})", "/cursor/last_created_at"},
       {R"({"cursor":{"last_created_at":"now","last_session_id":"s"}})", "/cursor/last_created_at"},
       {R"([])", ""}}));
  INFO(text);
  const auto request = Search(text);
  REQUIRE_FALSE(request.ok());
  CHECK(ErrorField(request.status()) == field);
}

TEST_CASE("AccountsJson: times have a zone and are not before 1970", "[json]") {
  CHECK(TimestampFromText("2026-01-02T03:00:00Z", "t")->seconds() == 1767322800);
  const auto text = GENERATE(as<std::string>(), "", "2026-01-02", "2026-01-02T03:00:00",
                             "1969-12-31T23:59:59Z", "infinite-future", "2026-13-02T03:00:00Z");
  const auto time = TimestampFromText(text, "starting_on");
  REQUIRE_FALSE(time.ok());
  CHECK(ErrorField(time.status()) == "starting_on");
}

TEST_CASE("AccountsJson: usage is an event per kind, by hour and then by tokens", "[json]") {
  v1::ListUsageResponse response;
  response.set_owner("default");
  v1::Usage* first = response.add_usage();
  first->mutable_bucket_start()->set_seconds(3600);
  first->set_base_model("tiny");
  first->set_session_id("s");
  first->set_project_id("p");
  first->set_forward_tokens(1);
  first->set_forward_backward_tokens(2);
  first->set_prefill_tokens(10);
  first->set_cached_prefill_tokens(4);
  first->set_sampled_tokens(5);
  first->set_num_checkpoints(7);
  v1::Usage* storage = response.add_usage();
  storage->mutable_bucket_start()->set_seconds(3600);
  storage->set_stored_bytes(2'500'000'000);
  v1::Usage* later = response.add_usage();
  later->mutable_bucket_start()->set_seconds(7200);
  later->set_sampled_tokens(100);
  response.add_sessions()->set_session_id("s");
  const Json json = UsageToJson(response);
  std::string infos;
  for (const Json& event : json["data"]) infos += event["event_info"].dump() + "\n";
  CHECK(infos ==
        "{\"cached\":false,\"token_count\":10,\"type\":\"sampling_prefill\"}\n"
        "{\"token_count\":5,\"type\":\"sampling_sample\"}\n"
        "{\"cached\":true,\"token_count\":4,\"type\":\"sampling_prefill\"}\n"
        "{\"token_count\":3,\"type\":\"training\"}\n"
        "{\"count\":7,\"type\":\"checkpoint\"}\n"
        "{\"gigabyte_hours\":2.5,\"type\":\"storage\"}\n"
        "{\"token_count\":100,\"type\":\"sampling_sample\"}\n");
  const Json& event = json["data"][0];
  CHECK(event["bucket_start"] == "1970-01-01T01:00:00Z");
  CHECK(event["bucket_end"] == "1970-01-01T02:00:00Z");
  CHECK(event["user_name"] == "default");
  CHECK(event["project_id"] == "p");
  CHECK(json["data"][5]["session_id"].is_null());
  CHECK(json["sessions"]["s"]["user_metadata"].is_null());
}

TEST_CASE("AccountsJson: a session has its status, or none", "[json]") {
  v1::SearchSessionsResponse response;
  v1::SessionSummary* session = response.add_sessions();
  session->set_session_id("s");
  Json json = SearchToJson(response);
  CHECK(json["sessions"][0]["status"].is_null());
  CHECK(json["sessions"][0]["project_id"] == "");
  CHECK(json["next_cursor"].is_null());
  session->mutable_status()->set_type("client_finished");
  session->mutable_status()->set_reason("errored");
  session->mutable_status()->set_detail("oops");
  response.mutable_next_cursor()->set_last_session_id("s");
  json = SearchToJson(response);
  CHECK(json["sessions"][0]["status"]["reason"]["type"] == "errored");
  CHECK(json["sessions"][0]["status"]["detail"] == "oops");
  CHECK(json["next_cursor"]["last_session_id"] == "s");
}

}  // namespace
}  // namespace lathe::gateway

#include "services/api-gateway/json/completions_json.h"

#include <algorithm>
#include <string>

#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

using google::protobuf::Message;

constexpr char kTargetType[] = "sampling_session";

void CheckTargetType(LargeObject& in, std::string_view name, Message&) {
  if (in.String(name) != kTargetType) in.errors().Fail(in.PointerTo(name), kTargetType);
}

void ReadTimeout(LargeObject& in, std::string_view name, Message& message) {
  const double seconds = in.NumberOf(name, *in.Find(name));
  if (seconds < 0) in.errors().Fail(in.PointerTo(name), "0 or more seconds");
  auto& request = static_cast<v1::AwaitSamplesRequest&>(message);
  request.set_wait_ms(absl::ToInt64Milliseconds(absl::Seconds(seconds)));
}

constexpr Field kTargetFields[] = {
    {.name = "type",
     .read = CheckTargetType,
     .schema = R"("type": "string", "enum": ["sampling_session"])"},
    {.name = "sampling_session_id", .is_required = true},
    {.name = "cloned_sampler_id",
     .to = "clone_number",
     .about = "seq_id // 1,000,000,000 of the samples."},
};
constexpr ObjectFields kTarget = {"", kTargetFields};
constexpr Field kAwaitSamplesFields[] = {
    {.name = "target", .to = kSame, .is_required = true, .object = &kTarget},
    {.name = "prev_cursor",
     .to = "cursor",
     .about = "Of the last answer, 0 at first. Acknowledges what was listed up to it."},
    {.name = "timeout",
     .read = ReadTimeout,
     .about = "Seconds to wait, at most the server's; 0: answer at once.",
     .schema = R"("type": "number")"},
    {.name = "retrieved_request_ids",
     .about = "Results that have arrived: they need no memory any more."},
};

}  // namespace

constexpr BodyFields<v1::AwaitSamplesRequest> kAwaitSamples = {
    {"RetrieveFuturesRequest", kAwaitSamplesFields}};

absl::StatusOr<v1::AwaitSamplesRequest> AwaitSamplesFromJson(const std::string& body,
                                                             absl::Duration hold) {
  const int64_t hold_ms = absl::ToInt64Milliseconds(hold);
  v1::AwaitSamplesRequest request;
  request.set_wait_ms(hold_ms);
  RETURN_IF_ERROR(ReadMessage(body, kAwaitSamples, request));
  request.set_wait_ms(std::min(request.wait_ms(), hold_ms));
  return request;
}

Json AwaitSamplesToJson(const v1::AwaitSamplesResponse& response) {
  Json completions = Json::array();
  for (const v1::EndedSample& sample : response.samples()) {
    Json completion = {{"state", sample.failed() ? "failed" : "finished"},
                       {"request_id", sample.request_id()}};
    if (!sample.failed() && sample.result_bytes() > 0) {
      completion["response_payload_uncompressed_size"] = sample.result_bytes();
    }
    completions.push_back(std::move(completion));
  }
  return {{"completions", std::move(completions)}, {"cursor", response.cursor()}};
}

}  // namespace lathe::gateway

#include "services/api-gateway/json/completions_json.h"

#include <algorithm>
#include <string>

#include "libs/common/status_macros.h"
#include "services/api-gateway/json/field_reader.h"

namespace lathe::gateway {
namespace {

constexpr char kTargetType[] = "sampling_session";

void ReadTarget(FieldReader& in, v1::AwaitSamplesRequest* request) {
  if (in.StringOr("type", kTargetType) != kTargetType) in.Fail("type", "sampling_session");
  request->set_sampling_session_id(in.String("sampling_session_id"));
  request->set_clone_number(in.IntOr("cloned_sampler_id", 0));
}

absl::Duration ReadWait(FieldReader& in, absl::Duration hold) {
  if (!in.Has("timeout")) return hold;
  const double seconds = in.Number("timeout");
  if (seconds < 0) in.Fail("timeout", "0 or more seconds");
  return std::min(absl::Seconds(seconds), hold);
}

void ReadRetrieved(FieldReader& in, const Json& body, v1::AwaitSamplesRequest* request) {
  constexpr char kName[] = "retrieved_request_ids";
  if (!in.Has(kName)) return;
  const Json& ids = body[kName];
  if (!ids.is_array()) return in.Fail(kName, "a list of strings");
  for (const Json& id : ids) {
    if (!id.is_string()) return in.Fail(kName, "a list of strings");
    request->add_retrieved_request_ids(id.get<std::string>());
  }
}

}  // namespace

absl::StatusOr<v1::AwaitSamplesRequest> AwaitSamplesFromJson(const Json& body,
                                                             absl::Duration hold) {
  FieldReader in(body);
  v1::AwaitSamplesRequest request;
  FieldReader target(in.Object("target"), in.PointerTo("target"));
  RETURN_IF_ERROR(in.status());
  ReadTarget(target, &request);
  RETURN_IF_ERROR(target.status());
  request.set_cursor(in.IntOr("prev_cursor", 0));
  request.set_wait_ms(absl::ToInt64Milliseconds(ReadWait(in, hold)));
  ReadRetrieved(in, body, &request);
  RETURN_IF_ERROR(in.status());
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

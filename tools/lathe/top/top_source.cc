#include "tools/lathe/top/top_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/runs/run_list.h"
#include "tools/lathe/runs/run_reader.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kStatusTimeout = absl::Seconds(2);
// Maximum time of all calls of a read together.
constexpr absl::Duration kReadTimeout = absl::Seconds(15);
constexpr int kMaxRunsShown = 50;
constexpr int kMaxRunsAsked = 10;
constexpr int kRequestsAsked = 100;

}  // namespace

absl::StatusOr<v1::GetStatusResponse> AdminTopSource::Read(const std::function<bool()>&) {
  // A call so short need not be stopped.
  return client_.GetStatus(kStatusTimeout);
}

absl::Status ApiTopSource::ReadGroups(v1::GetStatusResponse& status) {
  ASSIGN_OR_RETURN(const Json answer,
                   api_.Get("get_server_capabilities", SteadyNow() + kApiCallTimeout));
  const Json& models = Member(answer, "supported_models");
  if (!models.is_array()) return absl::OkStatus();
  for (const Json& model : models) {
    v1::GroupStatus& group = *status.add_groups();
    group.set_group(TextMember(model, "model_name"));
    group.set_state(JsonBool(model, "ready").value_or(false) ? "ready" : "waiting");
    group.set_reason(TextMember(model, "reason"));
  }
  return absl::OkStatus();
}

absl::Status ApiTopSource::ReadRunsInto(v1::GetStatusResponse& status) {
  ASSIGN_OR_RETURN(const RunPage page, ReadRuns(api_, "", kMaxRunsShown));
  int num_asked = 0;
  for (const ListedRun& listed : page.runs) {
    v1::ModelStatus& run = *status.add_models();
    run.set_model_id(listed.id());
    run.set_tenant(TextMember(listed.run, "model_owner"));
    run.set_state(listed.state());
    if (run.state() != "active" || SteadyNow() < may_ask_at_) continue;
    if (++num_asked > kMaxRunsAsked) continue;
    const absl::StatusOr<Json> requests = ReadRequests(api_, run.model_id(), kRequestsAsked);
    if (absl::IsResourceExhausted(requests.status())) {
      // The runs are worth showing without their requests. An answer that names no time still ends
      // the questions of this read.
      may_ask_at_ = SteadyNow() + std::max(RetryAfter(requests.status()), absl::Seconds(1));
      continue;
    }
    // The run was deleted meanwhile.
    if (absl::IsNotFound(requests.status())) continue;
    RETURN_IF_ERROR(requests.status());
    SetRequests(*requests, run);
    status.set_pending_requests(status.pending_requests() + run.pending_requests());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::GetStatusResponse> ApiTopSource::Read(const std::function<bool()>& is_stopped) {
  api_.SetLimits(SteadyNow() + kReadTimeout, is_stopped);
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(ReadGroups(status));
  RETURN_IF_ERROR(ReadRunsInto(status));
  return status;
}

void SetRequests(const Json& requests, v1::ModelStatus& run) {
  const Json& list = Member(requests, "requests");
  if (!list.is_array()) return;
  for (const Json& request : list) {
    const int64_t seq_id = JsonInt(request, "seq_id").value_or(0);
    const std::string outcome = TextMember(request, "outcome");
    if (outcome == "ok") run.set_applied_seq(std::max(run.applied_seq(), seq_id));
    if (outcome != "unfinished") continue;
    run.set_pending_requests(run.pending_requests() + 1);
    const Json& stages = Member(request, "stages");
    const std::string stage =
        stages.is_array() && !stages.empty() ? TextMember(stages.back(), "name") : "accepted";
    // The list begins with the newest, so the oldest is the last to set the text.
    run.set_reason(absl::StrFormat("%s seq %d: %s, %.0f s", TextMember(request, "operation"),
                                   seq_id, stage, JsonNumber(request, "seconds").value_or(0)));
  }
}

}  // namespace lathe::cli

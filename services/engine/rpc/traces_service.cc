#include "services/engine/rpc/traces_service.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

v1::RequestSpan ToProto(const RequestSpan& span) {
  v1::RequestSpan proto;
  proto.set_request_id(span.request_id);
  proto.set_owner_id(span.owner_id);
  proto.set_operation(std::string(TraitsOf(span.kind).name));
  proto.set_seq_id(span.seq_id);
  proto.set_tokens(span.tokens);
  proto.set_group(span.group);
  proto.set_num_dispatches(span.num_dispatches);
  proto.set_num_batch_requests(span.num_batch_requests);
  proto.set_accepted_unix_nanos(span.accepted_at);
  proto.set_durable_unix_nanos(span.durable_at);
  proto.set_dispatched_unix_nanos(span.dispatched_at);
  proto.set_executed_unix_nanos(span.executed_at);
  proto.set_completed_unix_nanos(span.completed_at);
  proto.set_delivered_unix_nanos(span.delivered_at);
  if (span.completed_at > 0) proto.set_outcome(std::string(NameOf(span.outcome)));
  return proto;
}

}  // namespace

TracesService::TracesService(Runtime& runtime, const KeyRing& keys, ReadThreads& reads,
                             const std::string& secret)
    : runtime_(runtime), keys_(keys), reads_(reads), signer_(secret, "trace") {}

TracesService::~TracesService() = default;

// Signs "{expiry in unix seconds}\n{key}\n{session}".
std::string TracesService::Sign(const Link& link, absl::Time expires_at) const {
  return signer_.Sign(
      absl::StrCat(absl::ToUnixSeconds(expires_at), "\n", link.key_id, "\n", link.session_id));
}

absl::StatusOr<TracesService::Link> TracesService::Verify(const std::string& token) const {
  const std::optional<std::string> text = signer_.Verify(token);
  std::vector<std::string> lines;
  if (text) lines = absl::StrSplit(*text, '\n');
  int64_t expires_at = 0;
  if (lines.size() != 3 || !absl::SimpleAtoi(lines[0], &expires_at)) {
    return Invalid("bad_token", "token", "the trace token was not made by this server");
  }
  if (absl::ToUnixSeconds(runtime_.clock().Now()) >= expires_at) {
    return WithDetail(absl::OutOfRangeError("the trace link has expired; ask for a new one"),
                      "link_expired", "token");
  }
  return Link{.key_id = lines[1], .session_id = lines[2]};
}

absl::StatusOr<SessionRow> TracesService::FindSession(const Caller& caller,
                                                      const std::string& session_id) const {
  ASSIGN_OR_RETURN(std::optional<SessionRow> row,
                   runtime_.store().FindSession(caller.tenant_id, session_id));
  if (row) return *std::move(row);
  return WithDetail(absl::NotFoundError(absl::StrFormat("session '%s' does not exist", session_id)),
                    "not_found", "session_id");
}

TracesService::Reactor* TracesService::DescribeTrace(Context* context,
                                                     const v1::DescribeTraceRequest* request,
                                                     v1::DescribeTraceResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Traces.DescribeTrace",
      [this, request, response](const Caller& caller) -> absl::Status {
        RETURN_IF_ERROR(FindSession(caller, request->session_id()).status());
        const absl::Time expires_at = runtime_.clock().Now() + kLifetime;
        response->set_token(
            Sign({.key_id = caller.key_id, .session_id = request->session_id()}, expires_at));
        *response->mutable_expires_at() = ToTimestamp(absl::ToUnixNanos(expires_at));
        return absl::OkStatus();
      });
}

TracesService::Reactor* TracesService::OpenTrace(Context* context,
                                                 const v1::OpenTraceRequest* request,
                                                 v1::OpenTraceResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::Status peer = CheckPeer(keys_, *context);
  const absl::StatusOr<Link> link = peer.ok() ? Verify(request->token()) : peer;
  const absl::StatusOr<Caller> caller =
      link.ok() ? AuthenticateLink(keys_, link->key_id, "Traces.DescribeTrace") : link.status();
  if (caller.ok()) {
    RunRead(reads_, caller->tenant_id, reactor, [this, caller = *caller, link = *link, response] {
      return Open(caller, link, response);
    });
  } else {
    reactor->Finish(ToGrpcStatus(caller.status()));
  }
  return reactor;
}

TracesService::Reactor* TracesService::ListRunRequests(Context* context,
                                                       const v1::ListRunRequestsRequest* request,
                                                       v1::ListRunRequestsResponse* response) {
  return ReadCall(reads_, keys_, context, "Traces.ListRunRequests",
                  [this, request, response](const Caller& caller) -> absl::Status {
                    const std::string& id = request->training_run_id();
                    ASSIGN_OR_RETURN(const PageBounds page,
                                     ValidatePage(request->limit(), /*offset=*/0));
                    ASSIGN_OR_RETURN(const std::optional<ModelRow> row,
                                     runtime_.store().FindModel(caller.tenant_id, id));
                    if (!row) return NoSuch("training run", id, "training_run_id");
                    const SessionTraces::Trace trace = runtime_.traces().ReadNewest(id, page.limit);
                    *response->mutable_read_at() = ToTimestamp(runtime_.NowNanos());
                    if (row->created_at < trace.complete_since) {
                      *response->mutable_complete_since() = ToTimestamp(trace.complete_since);
                    }
                    for (const RequestSpan& span : trace.spans)
                      *response->add_requests() = ToProto(span);
                    return absl::OkStatus();
                  });
}

absl::Status TracesService::Open(const Caller& caller, const Link& link,
                                 v1::OpenTraceResponse* response) const {
  ASSIGN_OR_RETURN(const SessionRow session, FindSession(caller, link.session_id));
  const SessionTraces::Trace trace = runtime_.traces().Read(link.session_id);
  response->set_session_id(link.session_id);
  *response->mutable_created_at() = ToTimestamp(session.created_at);
  *response->mutable_read_at() = ToTimestamp(runtime_.NowNanos());
  if (session.created_at < trace.complete_since) {
    *response->mutable_complete_since() = ToTimestamp(trace.complete_since);
  }
  for (const RequestSpan& span : trace.spans) *response->add_spans() = ToProto(span);
  return absl::OkStatus();
}

}  // namespace lathe::engine

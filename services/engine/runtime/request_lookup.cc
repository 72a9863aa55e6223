#include "services/engine/runtime/request_lookup.h"

#include <optional>
#include <utility>

#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

// Maximum number of queued look-ups. Each is for a duplicate of a request from long ago.
constexpr size_t kMaxWaiting = 1024;

Answer Refused(ErrorInfo error) {
  Answer answer;
  answer.error = std::move(error);
  return answer;
}

}  // namespace

RequestLookup::RequestLookup(Store& store)
    : store_(store), queue_(kMaxWaiting), thread_("engine-lookups", [this] {
        while (const std::optional<std::function<void()>> work = queue_.Pop()) (*work)();
      }) {}

void RequestLookup::Stop() {
  queue_.Close();
  thread_.Join();
}

CallTable::Callback RequestLookup::Resolve(const Submit& submit, CallTable::Callback done) {
  if (!MayBeStored(submit)) return done;
  return [this, submit, done = std::move(done)](const Answer& answer) {
    if (!IsClosedSeq(answer)) return done(answer);
    if (queue_.TryPush([this, submit, answer, done] { LookUp(submit, answer, done); })) return;
    done(Refused({.status = absl::StatusCode::kResourceExhausted,
                  .code = "too_many_calls",
                  .field = "",
                  .message = "too many repeated requests are being looked up"}));
  };
}

void RequestLookup::LookUp(const Submit& submit, const Answer& from_core,
                           const CallTable::Callback& done) {
  const absl::StatusOr<std::optional<RequestRow>> row =
      store_.FindRequestByKey(submit.tenant_id, submit.owner_id, submit.op_class, submit.seq_id);
  if (!row.ok()) return done(Refused(ToErrorInfo(row.status())));
  done(row->has_value() ? AnswerFromStore(submit, **row) : from_core);
}

}  // namespace lathe::engine

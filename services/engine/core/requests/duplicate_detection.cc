#include "services/engine/core/requests/duplicate_detection.h"

#include "absl/strings/str_format.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/plan.h"

namespace lathe::engine {
namespace {

constexpr char kClosed[] = "seq_id_abandoned";

}  // namespace

ErrorInfo ClosedSeq(const std::string& model_id, int64_t seq_id) {
  return InvalidArgument(
      kClosed, "seq_id",
      absl::StrFormat("seq_id %d of model %s is closed: a later request showed it abandoned",
                      seq_id, model_id));
}

std::optional<ErrorInfo> WhyNotDuplicate(const Submit& submit, const RequestRow& row,
                                         bool refused) {
  if (refused) {
    return submit.invalid.value_or(
        InvalidArgument("seq_id_refused", "seq_id",
                        absl::StrFormat("seq_id %d of %s was refused before and is consumed",
                                        row.seq_id, row.owner_id)));
  }
  if (row.kind == submit.kind && row.content_hash == submit.content_hash) return std::nullopt;
  if (!HasKey(submit)) {
    return InvalidArgument(
        "idempotency_key_reused", "idempotency_key",
        absl::StrFormat("the idempotency key of seq_id %d of %s was already used "
                        "by a different request",
                        row.seq_id, row.owner_id));
  }
  return InvalidArgument("seq_id_reused", "seq_id",
                         absl::StrFormat("seq_id %d of %s was already used by a different request; "
                                         "create one TrainingClient per process",
                                         row.seq_id, row.owner_id));
}

bool MayBeStored(const Submit& submit) {
  return submit.op_class == OpClass::kTrain && submit.seq_id > 0;
}

bool IsClosedSeq(const Answer& answer) { return answer.error && answer.error->code == kClosed; }

Answer AnswerFromStore(const Submit& submit, const RequestRow& row) {
  const std::optional<Plan> plan = DecodePlan(row.plan);
  Answer answer;
  answer.call = submit.call;
  answer.error = WhyNotDuplicate(submit, row, plan && plan->refused);
  if (!answer.error) answer.id = row.request_id;
  return answer;
}

}  // namespace lathe::engine

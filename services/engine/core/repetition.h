// Submissions under a key that was used before: the same request once more, or another one.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// What is said of a training seq that is closed and of which the core knows no request.
ErrorInfo ClosedSeq(const std::string& model_id, int64_t seq_id);

// Why `submit` is not a repetition of the request `row` that has its key; nullopt: it is one.
// `refused`: that request was refused as it came.
std::optional<ErrorInfo> WhyNotRepeated(const Submit& submit, const RequestRow& row, bool refused);

// Whether `submit` names a seq of training: the core may answer ClosedSeq although it came, because
// it forgets, and never reads, requests whose results were delivered. The store knows those.
bool MayBeForgotten(const Submit& submit);
bool SaysClosedSeq(const Answer& answer);
// What the caller is told instead; `row` is what the store has under the key of `submit`.
Answer AnswerForgotten(const Submit& submit, const RequestRow& row);

}  // namespace lathe::engine

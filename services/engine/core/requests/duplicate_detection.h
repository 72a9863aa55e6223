// Duplicate detection: submissions under a key that was used before, with the same or another
// request.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// The error for a training seq that is closed and has no request in the core.
ErrorInfo ClosedSeq(const std::string& model_id, int64_t seq_id);

// Returns why `submit` is not a duplicate of the request `row` with the same key; nullopt if it is.
// `refused`: that request was refused at submission.
std::optional<ErrorInfo> WhyNotDuplicate(const Submit& submit, const RequestRow& row, bool refused);

// Returns true if `submit` names a training seq. The core may answer ClosedSeq although that seq
// arrived: it forgets requests whose results were delivered. The store still has them.
bool MayBeStored(const Submit& submit);
bool IsClosedSeq(const Answer& answer);
// The answer that replaces ClosedSeq if the store still has the request. `row`: the stored request
// under the key of `submit`.
Answer AnswerFromStore(const Submit& submit, const RequestRow& row);

}  // namespace lathe::engine

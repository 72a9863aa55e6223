// Describes the state of a request in words, for a caller that polls.
#pragma once

#include <optional>
#include <string>

#include "services/engine/runtime/queue_view.h"
#include "services/engine/runtime/result_hub.h"

namespace lathe::engine {

// "waiting for its turn; 3 requests with 5120 tokens are before it; about 4 s". `group`: of the
// group that serves it; its reason comes first while it is paused.
QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place);

}  // namespace lathe::engine

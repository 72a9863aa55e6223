// Events for viewers, as JSON.
#pragma once

#include <string>
#include <string_view>

#include "protos/lathe/v1/events.pb.h"

namespace lathe::gateway {

// Kinds of events. A viewer chooses some.
enum class EventTopic : unsigned {
  kMetrics = 1U << 0U,
  kRuns = 1U << 1U,
  kCheckpoints = 1U << 2U,
  kQueue = 1U << 3U,
  kWorkers = 1U << 4U,
};

// Returns "metrics", "runs", "checkpoints", "queue" or "workers".
std::string_view NameOf(EventTopic topic);

// `event` must have a change.
EventTopic TopicOf(const v1::FeedEvent& event);

// Writes the data of an event on one line:
//   metrics      {"run_id": "…", "is_incomplete": false, "series": [
//                    {"name": "loss:sum", "unit": "", "count": 5, "steps": [4],
//                     "times_ms": [1767323045000], "values": [0.5]}]}
//   runs         {"run_ids": ["…"], "has_more": false}
//   checkpoints  the same
//   queue        {"all": [{"operation": "sample", "waiting": 2, "running": 1}], "own": []}
//   workers      {"groups": [{"group": "default", "state": "ready", …}]}, as in the status
std::string EventData(const v1::FeedEvent& event);

}  // namespace lathe::gateway

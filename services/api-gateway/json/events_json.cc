#include "services/api-gateway/json/events_json.h"

#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/status_json.h"

namespace lathe::gateway {
namespace {

Json RunsToJson(const v1::ChangedRuns& runs) {
  Json ids = Json::array();
  for (const std::string& id : runs.training_run_ids()) ids.push_back(id);
  return {{"run_ids", std::move(ids)}, {"has_more", runs.has_more()}};
}

Json PointsToJson(const v1::RunPoints& points) {
  Json list = Json::array();
  for (const v1::NewPoints& series : points.series()) {
    list.push_back({{"name", series.name()},
                    {"unit", series.unit()},
                    {"count", series.count()},
                    {"steps", series.steps()},
                    {"times_ms", series.times_ms()},
                    {"values", series.values()}});
  }
  return {{"run_id", points.training_run_id()},
          {"is_incomplete", points.is_incomplete()},
          {"series", std::move(list)}};
}

Json GroupsToJson(const v1::GroupStates& groups) {
  Json list = Json::array();
  for (const v1::GroupState& group : groups.groups()) list.push_back(GroupToJson(group));
  return {{"groups", std::move(list)}};
}

}  // namespace

std::string_view NameOf(EventTopic topic) {
  switch (topic) {
    case EventTopic::kMetrics:
      return "metrics";
    case EventTopic::kRuns:
      return "runs";
    case EventTopic::kCheckpoints:
      return "checkpoints";
    case EventTopic::kQueue:
      return "queue";
    case EventTopic::kWorkers:
      return "workers";
  }
  return "";
}

EventTopic TopicOf(const v1::FeedEvent& event) {
  switch (event.change_case()) {
    case v1::FeedEvent::kRuns:
      return EventTopic::kRuns;
    case v1::FeedEvent::kCheckpoints:
      return EventTopic::kCheckpoints;
    case v1::FeedEvent::kQueues:
      return EventTopic::kQueue;
    case v1::FeedEvent::kGroups:
      return EventTopic::kWorkers;
    case v1::FeedEvent::kPoints:
    case v1::FeedEvent::CHANGE_NOT_SET:
      break;
  }
  return EventTopic::kMetrics;
}

std::string EventData(const v1::FeedEvent& event) {
  switch (TopicOf(event)) {
    case EventTopic::kMetrics:
      return JsonText(PointsToJson(event.points()));
    case EventTopic::kRuns:
      return JsonText(RunsToJson(event.runs()));
    case EventTopic::kCheckpoints:
      return JsonText(RunsToJson(event.checkpoints()));
    case EventTopic::kQueue:
      return JsonText({{"all", QueuesToJson(event.queues().all())},
                       {"own", QueuesToJson(event.queues().own())}});
    case EventTopic::kWorkers:
      return JsonText(GroupsToJson(event.groups()));
  }
  return "{}";
}

}  // namespace lathe::gateway

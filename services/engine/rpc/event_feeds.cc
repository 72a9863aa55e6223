#include "services/engine/rpc/event_feeds.h"

#include <tuple>

#include "libs/common/status_macros.h"
#include "services/engine/rpc/find_rows.h"
#include "services/engine/rpc/run_reader.h"
#include "services/engine/rpc/service_status.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {
namespace {

// Changes are collected for this time, so that a busy run costs its viewers four events a second.
constexpr absl::Duration kPeriod = absl::Milliseconds(250);
// Rounds between two looks at the queues and groups, and at the credentials.
constexpr int64_t kStatusRounds = 4;
constexpr int64_t kKeyRounds = 16;

v1::FeedEvent& EventIn(v1::EventsResponse& response, int64_t feed_id) {
  v1::FeedEvent& event = *response.mutable_event_of_feed();
  event.set_feed_id(feed_id);
  return event;
}

void AddRuns(const ChangeLog::Runs& runs, v1::ChangedRuns& proto) {
  for (const std::string& run_id : runs.run_ids) proto.add_training_run_ids(run_id);
  proto.set_has_more(runs.has_more);
}

void AddPoints(const RunSeries::NewPoints& series, v1::NewPoints& proto) {
  proto.set_name(series.row->name);
  proto.set_unit(series.row->unit);
  proto.set_count(series.row->num_points);
  for (const Point& point : series.points) {
    proto.add_steps(point.step);
    proto.add_times_ms(point.unix_ms);
    proto.add_values(point.value);
  }
}

}  // namespace

EventFeeds::EventFeeds(Runtime& runtime, ReadThreads& reads,
                       AdminService::AttachedGroups attached_groups)
    : runtime_(runtime),
      reads_(reads),
      attached_groups_(std::move(attached_groups)),
      publisher_("engine-events", kPeriod, [this] { Publish(); }) {}

EventFeeds::~EventFeeds() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int64_t* num_loading) { return *num_loading == 0; }, &num_loading_));
}

std::pair<int64_t, bool> EventFeeds::FindOrMakeLocked(const Key& key) {
  const auto [id, is_new] = ids_.try_emplace(key, last_feed_id_ + 1);
  if (!is_new) return {id->second, false};
  feeds_[++last_feed_id_].key = key;
  const auto& [tenant_id, run_id] = key;
  // Before the heads are read, so that no batch is between the two.
  if (run_id.empty()) {
    runtime_.changes().FollowTenant(tenant_id);
  } else {
    runtime_.changes().FollowRun(run_id);
  }
  return {last_feed_id_, true};
}

void EventFeeds::Join(const std::string& tenant_id, const std::string& run_id,
                      const std::shared_ptr<EventSink>& sink, OnJoined on_joined) {
  const Key key(tenant_id, run_id);
  int64_t feed_id = 0;
  {
    absl::MutexLock lock(&mu_);
    bool is_new = false;
    std::tie(feed_id, is_new) = FindOrMakeLocked(key);
    Feed& feed = feeds_.at(feed_id);
    const Joining joining = {.sink = sink, .on_joined = std::move(on_joined)};
    if (run_id.empty() || feed.run) {
      AddMember(feed_id, feed, joining);
      RemoveIfUnusedLocked(feed_id);
      return;
    }
    feed.joining.push_back(joining);
    if (!is_new) return;
    ++num_loading_;
  }
  const auto run = std::make_shared<absl::StatusOr<RunSeries>>(absl::UnknownError(""));
  // A name of its own: the tenant's own reads keep their turns and their room.
  const absl::Status status = reads_.TryRun(
      "events of " + tenant_id, [this, key, run] { *run = Load(key); },
      [this, feed_id, run] { OnLoaded(feed_id, std::move(*run)); });
  if (!status.ok()) OnLoaded(feed_id, status);
}

absl::StatusOr<RunSeries> EventFeeds::Load(const Key& key) {
  const auto& [tenant_id, run_id] = key;
  RETURN_IF_ERROR(FindModel(runtime_, tenant_id, run_id).status());
  ASSIGN_OR_RETURN(RunSeries run, RunReader(runtime_, run_id).Heads());
  // Viewers query the points that were there before.
  run.TakePoints();
  return run;
}

void EventFeeds::OnLoaded(int64_t feed_id, absl::StatusOr<RunSeries> run) {
  absl::MutexLock lock(&mu_);
  --num_loading_;
  Feed& feed = feeds_.at(feed_id);
  const std::vector<Joining> joining = std::exchange(feed.joining, {});
  if (run.ok()) {
    feed.run = *std::move(run);
    for (const Joining& one : joining) AddMember(feed_id, feed, one);
    PublishRun(feed_id, feed, std::exchange(feed.waiting, {}));
  } else {
    for (const Joining& one : joining) one.on_joined(run.status());
  }
  RemoveIfUnusedLocked(feed_id);
}

void EventFeeds::AddMember(int64_t feed_id, Feed& feed, const Joining& joining) {
  const std::shared_ptr<EventSink> sink = joining.sink.lock();
  if (!sink || !joining.on_joined(feed_id)) return;
  Member& member = feed.members[sink.get()];
  member.sink = sink;
  ++member.num_joins;
}

void EventFeeds::Leave(int64_t feed_id, const EventSink* sink) {
  absl::MutexLock lock(&mu_);
  const auto feed = feeds_.find(feed_id);
  if (feed == feeds_.end()) return;
  const auto member = feed->second.members.find(sink);
  if (member == feed->second.members.end()) return;
  if (--member->second.num_joins == 0) feed->second.members.erase(member);
  RemoveIfUnusedLocked(feed_id);
}

void EventFeeds::RemoveIfUnusedLocked(int64_t feed_id) {
  const auto found = feeds_.find(feed_id);
  if (!found->second.members.empty() || !found->second.joining.empty()) return;
  const auto& [tenant_id, run_id] = found->second.key;
  if (run_id.empty()) {
    runtime_.changes().LeaveTenant(tenant_id);
  } else {
    runtime_.changes().LeaveRun(run_id);
  }
  ids_.erase(found->second.key);
  feeds_.erase(found);
}

void EventFeeds::AddStream(const std::shared_ptr<EventSink>& sink) {
  absl::MutexLock lock(&mu_);
  streams_[sink.get()] = sink;
}

void EventFeeds::RemoveStream(const EventSink* sink) {
  absl::MutexLock lock(&mu_);
  streams_.erase(sink);
}

std::vector<std::shared_ptr<EventSink>> EventFeeds::Streams() {
  std::vector<std::shared_ptr<EventSink>> streams;
  absl::MutexLock lock(&mu_);
  for (const auto& [sink, weak] : streams_) {
    if (std::shared_ptr<EventSink> stream = weak.lock()) streams.push_back(std::move(stream));
  }
  return streams;
}

void EventFeeds::EndStreams() {
  for (const std::shared_ptr<EventSink>& stream : Streams()) stream->EndStream();
}

void EventFeeds::CheckKeys() {
  for (const std::shared_ptr<EventSink>& stream : Streams()) stream->CheckKeys();
}

void EventFeeds::Send(const Feed& feed, const v1::EventsResponse& response) {
  for (const auto& [address, member] : feed.members) {
    if (const std::shared_ptr<EventSink> sink = member.sink.lock()) sink->Push(response);
  }
}

bool EventFeeds::HasFeeds() {
  absl::MutexLock lock(&mu_);
  return !feeds_.empty();
}

void EventFeeds::Publish() {
  ++num_rounds_;
  const bool has_status = num_rounds_ % kStatusRounds == 0 && HasFeeds();
  const ChangeLog::Changes changes = runtime_.changes().Take();
  std::vector<v1::GroupState> groups;
  if (has_status) groups = DescribeGroupStates(runtime_, attached_groups_());
  {
    absl::MutexLock lock(&mu_);
    for (auto& [feed_id, feed] : feeds_) {
      const auto& [tenant_id, run_id] = feed.key;
      if (const auto batches = changes.batches.find(run_id); batches != changes.batches.end()) {
        PublishRun(feed_id, feed, batches->second);
      }
      if (!run_id.empty()) continue;
      const auto tenant = changes.tenants.find(tenant_id);
      if (tenant != changes.tenants.end()) PublishTenant(feed_id, feed, tenant->second);
      if (has_status) PublishQueues(feed_id, feed);
    }
    if (has_status) PublishGroups(groups);
  }
  if (num_rounds_ % kKeyRounds == 0) CheckKeys();
}

void EventFeeds::PublishRun(int64_t feed_id, Feed& feed, const std::vector<RunBatch>& batches) {
  if (!feed.run) {
    feed.waiting.insert(feed.waiting.end(), batches.begin(), batches.end());
    return;
  }
  for (const RunBatch& batch : batches) feed.run->Apply(batch, kMaxSeriesPerRun);
  v1::EventsResponse response;
  v1::RunPoints& points = *EventIn(response, feed_id).mutable_points();
  points.set_training_run_id(feed.key.second);
  size_t num_points = 0;
  for (const RunSeries::NewPoints& series : feed.run->TakePoints()) {
    num_points += series.points.size();
    if (num_points <= kMaxPoints) AddPoints(series, *points.add_series());
  }
  points.set_is_incomplete(num_points > kMaxPoints);
  if (num_points > 0) Send(feed, response);
}

void EventFeeds::PublishTenant(int64_t feed_id, Feed& feed, const ChangeLog::Tenant& changes) {
  if (!changes.runs.empty()) {
    v1::EventsResponse response;
    AddRuns(changes.runs, *EventIn(response, feed_id).mutable_runs());
    Send(feed, response);
  }
  if (!changes.checkpoints.empty()) {
    v1::EventsResponse response;
    AddRuns(changes.checkpoints, *EventIn(response, feed_id).mutable_checkpoints());
    Send(feed, response);
  }
}

void EventFeeds::PublishQueues(int64_t feed_id, Feed& feed) {
  v1::EventsResponse response;
  v1::QueueFigures& queues = *EventIn(response, feed_id).mutable_queues();
  for (const QueueCount& count : runtime_.AllQueues()) AddQueue(count, *queues.add_all());
  for (const QueueCount& count : runtime_.QueuesOf(feed.key.first)) {
    AddQueue(count, *queues.add_own());
  }
  std::string text = queues.SerializeAsString();
  if (text == feed.last_queues) return;
  feed.last_queues = std::move(text);
  Send(feed, response);
}

void EventFeeds::PublishGroups(const std::vector<v1::GroupState>& groups) {
  v1::GroupStates states;
  for (const v1::GroupState& group : groups) *states.add_groups() = group;
  std::string text = states.SerializeAsString();
  if (text == last_groups_) return;
  last_groups_ = std::move(text);
  v1::EventsResponse response;
  *EventIn(response, /*feed_id=*/0).mutable_groups() = std::move(states);
  for (const auto& [address, weak] : streams_) {
    if (const std::shared_ptr<EventSink> sink = weak.lock()) sink->Push(response);
  }
}

}  // namespace lathe::engine

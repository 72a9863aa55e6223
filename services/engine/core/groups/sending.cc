#include "services/engine/core/groups/sending.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/versions.h"

namespace lathe::engine {
namespace {

using Fit = FairQueue::Fit;

SendTrainBatch::Item ItemOf(const Request& request) {
  return {request.row.request_id, request.row.body_id, request.row.seq_id};
}

void FillTrainBatches(State& s, Group& group) {
  SendTrainBatch batch;
  const auto add = [&](const std::string& tenant, const FairQueue::Item& item) {
    Request& request = s.requests.at(item.id);
    RecordDispatched(s, group, request);
    group.window.Add(item.id, tenant, item.tokens);
    batch.items.push_back(ItemOf(request));
    return Fit::kTake;
  };
  group.train.Take([&](const std::string& tenant, const FairQueue::Item& item) {
    return group.window.HasRoomFor(item.tokens) ? add(tenant, item) : Fit::kEnd;
  });
  group.large_train.Take([&](const std::string& tenant, const FairQueue::Item& item) {
    if (!group.window.HasRoomForLarge()) return Fit::kEnd;
    return group.window.HasRoomForLargeOf(tenant) ? add(tenant, item) : Fit::kPassTenant;
  });
  if (!batch.items.empty()) s.fx.Send(group.row.group, group.row.epoch, std::move(batch));
}

void SendOneSample(State& s, Group& group, Request& request) {
  Sampler& sampler = s.samplers.at(request.row.owner_id);
  group.sample_window.Add(request.row.request_id, request.row.tenant_id, request.num_samples);
  LoadVersionOnce(s, group, sampler);
  RecordDispatched(s, group, request);
  RecordSampled(s, sampler);
  s.fx.Send(group.row.group, group.row.epoch,
            SendSample{.request_id = request.row.request_id,
                       .tenant_id = request.row.tenant_id,
                       .version_id = sampler.row.version_id,
                       .body_id = request.row.body_id,
                       .seed = request.plan->seed,
                       .max_tokens = request.plan->max_tokens});
}

void FillSamples(State& s, Group& group) {
  if (group.samples.empty()) return;
  SampleWindow& window = group.sample_window;
  const auto fit = [&](const std::string& tenant, const FairQueue::Item& item) {
    if (!window.HasRoomFor(tenant)) return window.IsFull() ? Fit::kEnd : Fit::kPassTenant;
    window.Add(item.id, tenant, s.requests.at(item.id).num_samples);
    return Fit::kTake;
  };
  for (const FairQueue::Item& item : group.samples.Take(fit)) {
    SendOneSample(s, group, s.requests.at(item.id));
  }
}

void SendQuarantined(State& s, Group& group, Request& request) {
  if (request.row.op_class == OpClass::kSample) return SendOneSample(s, group, request);
  if (!TraitsOf(request.row.kind).is_batched) return SendBarrier(s, group, request);
  RecordDispatched(s, group, request);
  s.fx.Send(group.row.group, group.row.epoch, SendTrainBatch{{ItemOf(request)}});
}

// The oldest quarantined request. Among the requests of one model, the smallest seq comes first: an
// exact gradient is a sum in that order.
std::string NextQuarantined(const State& s, const Group& group) {
  const Request* next = &s.requests.at(group.quarantined.begin()->second);
  for (const auto& [order, id] : group.quarantined) {
    const Request& other = s.requests.at(id);
    const bool is_of_same =
        other.row.op_class == next->row.op_class && other.row.owner_id == next->row.owner_id;
    if (is_of_same && other.row.seq_id < next->row.seq_id) next = &other;
  }
  return next->row.request_id;
}

// Sends a quarantined request once the worker has nothing else to do.
void SendNextQuarantined(State& s, Group& group) {
  if (!group.at_worker.empty()) return;
  if (group.alone.empty()) StartRecoveries(s, group);  // recoveries come first
  if (IsRecovering(s, group) || group.quarantined.empty()) return;
  if (group.alone.empty()) group.alone = NextQuarantined(s, group);
  SendQuarantined(s, group, s.requests.at(group.alone));
}

}  // namespace

void SendNext(State& s, Group& group) {
  if (!group.usable()) return;
  if (!group.quarantined.empty()) return SendNextQuarantined(s, group);
  std::map<int64_t, std::string> held;
  held.swap(group.held);
  for (const auto& [order, id] : held) SendBarrier(s, group, s.requests.at(id));
  FillTrainBatches(s, group);
  FillSamples(s, group);
}

void OnSampleProgress(State& s, const WorkerSampleProgress& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr || !group->attached || group->row.epoch != event.epoch) return;
  for (const EndedSequences& ended : event.ended) {
    group->sample_window.SetEnded(ended.request_id, ended.num_ended);
  }
  s.follow_ups.groups.insert(event.group);
}

void OnBodyUnavailable(State& s, const BodyUnavailable& event) {
  Group* const group = Find(s.groups, event.group);
  const bool current = group != nullptr && group->attached && group->row.epoch == event.epoch;
  if (!current || OnReplayNotSent(s, event.request_id)) return;
  Request* const request = Find(s.requests, event.request_id);
  if (request == nullptr || !request->live()) return;
  TakeBack(s, *request);  // makes room for other requests
  SetGroup(s, *request, event.group);
  s.unsent_request_ids.insert(event.request_id);
}

void SendUnsent(State& s) {
  std::set<std::string> ids;
  ids.swap(s.unsent_request_ids);
  for (const std::string& id : ids) {
    Request* const request = Find(s.requests, id);
    if (request == nullptr || !request->live()) continue;
    if (request->row.state != RequestState::kAccepted) continue;  // sent to another worker
    const Model* const model = Find(s.models, request->plan->model_id);
    if (model != nullptr && model->recovery != nullptr) continue;  // sent after the recovery
    TakeBack(s, *request);  // a worker that attached meanwhile may have queued it
    if (request->row.op_class == OpClass::kSample) {
      QueueSample(s, *request);
    } else {
      SendToGroup(s, *request);
    }
  }
}

}  // namespace lathe::engine

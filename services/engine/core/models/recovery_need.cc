#include "services/engine/core/models/recovery_need.h"

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {
namespace {

constexpr absl::string_view kReplay = "replay-";

}  // namespace

void NeedRecovery(State& s, Model& model) {
  if (model.recovery) {
    ForgetRunning(s, *model.recovery);
  } else {
    for (Request* const request : BegunRequests(s, model)) {
      if (!IsAtWorker(s, *request)) TakeBack(s, *request);
    }
    model.recovery = std::make_unique<Recovery>();
    model.recovery->began_at = s.now;
  }
  model.recovery->started = false;
  model.recovery->last_error.clear();
}

void ForgetRunning(State& s, Recovery& recovery) {
  for (const auto& [id, seq] : recovery.running) s.replays.erase(id);
  recovery.running.clear();
}

bool IsRecovering(State& s, const Group& group) {
  int64_t num_started = 0;
  IndexOf(s).VisitGroup(group.row.group,
                        [&](const ModelsAt& models) { num_started += models.num_started; });
  return num_started > 0;
}

bool MayKillWorkers(State& s, const Model& model) {
  constexpr int64_t kMaxCut = 2;  // one cut may be due to another request
  if (model.num_recoveries_cut >= kMaxCut) return true;
  const std::vector<Request*> live = LiveRequestsOf(s, model);
  return std::any_of(live.begin(), live.end(),
                     [](const Request* request) { return request->num_crashes_alone > 0; });
}

std::vector<Request*> BegunRequests(State& s, const Model& model) {
  std::vector<Request*> begun;
  const auto add = [&](Request* request) {
    if (request != nullptr && request->live()) begun.push_back(request);
  };
  for (const int64_t seq : model.order.Issued()) {
    add(FindByKey(s, model.row.model_id, OpClass::kTrain, seq));
  }
  add(Find(s.requests, model.unload_request_id));
  return begun;
}

bool HasWorkAtWorker(State& s, const Model& model) {
  const std::vector<Request*> begun = BegunRequests(s, model);
  return std::any_of(begun.begin(), begun.end(),
                     [&](const Request* request) { return IsAtWorker(s, *request); });
}

std::string ReplayId(State& s, const std::string& model_id, const std::string& request_id) {
  return absl::StrFormat("%s%d-%d:%s:%s", kReplay, s.term, ++s.num_replays, model_id, request_id);
}

std::string ModelOfReplay(const std::string& request_id) {
  if (!absl::StartsWith(request_id, kReplay)) return "";
  const size_t begin = request_id.find(':') + 1;
  return request_id.substr(begin, request_id.rfind(':') - begin);
}

void DropFromWorker(State& s, const Group& group, const std::string& model_id) {
  s.fx.Send(group.row.group, group.row.epoch,
            SendDropAdapter{ReplayId(s, model_id, "drop"), model_id});
}

}  // namespace lathe::engine

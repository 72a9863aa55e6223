#include "services/worker/sampling/start_order.h"

#include <tuple>

namespace lathe::worker {

void StartOrder::Add(ActiveRequest* request) {
  const auto [tenant, is_new_tenant] = tenants_.try_emplace(request->request.tenant_id);
  const auto [version, is_new_version] =
      tenant->second.versions.try_emplace(request->request.version_id);
  ++clock_;
  if (is_new_tenant) tenant->second.turn.last = clock_;
  if (is_new_version) version->second.turn.last = clock_;
  version->second.waiting.push_back(request);
  ++num_waiting_;
}

void StartOrder::Start(ActiveRequest* request) {
  Tenant& tenant = tenants_.at(request->request.tenant_id);
  Version& version = tenant.versions.at(request->request.version_id);
  ++clock_;
  for (Turn* const turn : {&tenant.turn, &version.turn}) {
    ++turn->num_running;
    turn->last = clock_;
  }
  if (++request->num_started < request->request.num_samples) return;
  num_waiting_ -= static_cast<int64_t>(std::erase(version.waiting, request));
}

void StartOrder::End(const ActiveRequest* request) { Release(request, 1, /*still_waits=*/true); }

void StartOrder::Remove(const ActiveRequest* request) {
  Release(request, request->num_started - request->num_finished, /*still_waits=*/false);
}

void StartOrder::Release(const ActiveRequest* request, int64_t num_ended, bool still_waits) {
  const auto tenant = tenants_.find(request->request.tenant_id);
  if (tenant == tenants_.end()) return;
  auto& versions = tenant->second.versions;
  const auto version = versions.find(request->request.version_id);
  if (version == versions.end()) return;
  std::deque<ActiveRequest*>& waiting = version->second.waiting;
  tenant->second.turn.num_running -= num_ended;
  version->second.turn.num_running -= num_ended;
  if (!still_waits) num_waiting_ -= static_cast<int64_t>(std::erase(waiting, request));
  if (waiting.empty() && version->second.turn.num_running == 0) versions.erase(version);
  if (versions.empty()) tenants_.erase(tenant);
}

StartOrder::Walk::Walk(const StartOrder& order) : clock_(order.clock_) {
  for (const auto& [tenant_id, tenant] : order.tenants_) {
    for (const auto& [version_id, version] : tenant.versions) {
      if (version.waiting.empty()) continue;
      Lane& lane = lanes_.emplace_back(
          Lane{tenants_.size(), version.turn, {version.waiting.begin(), version.waiting.end()}});
      lane.num_left = NumLeft(lane);
    }
    tenants_.push_back(tenant.turn);
  }
}

int64_t StartOrder::Walk::NumLeft(const Lane& lane) {
  if (lane.first == lane.requests.size()) return 0;
  const ActiveRequest* const request = lane.requests[lane.first];
  return request->request.num_samples - request->num_started;
}

ActiveRequest* StartOrder::Walk::Next() {
  const auto rank = [this](const Lane& lane) {
    const Turn& tenant = tenants_[lane.tenant];
    return std::tuple(tenant.num_running, tenant.last, lane.turn.num_running, lane.turn.last);
  };
  next_ = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.first == lane.requests.size()) continue;
    if (next_ == nullptr || rank(lane) < rank(*next_)) next_ = &lane;
  }
  return next_ == nullptr ? nullptr : next_->requests[next_->first];
}

void StartOrder::Walk::Take() {
  ++clock_;
  for (Turn* const turn : {&tenants_[next_->tenant], &next_->turn}) {
    ++turn->num_running;
    turn->last = clock_;
  }
  if (--next_->num_left == 0) Skip();
}

void StartOrder::Walk::Skip() {
  ++next_->first;
  next_->num_left = NumLeft(*next_);
}

}  // namespace lathe::worker

#include "services/worker/rpc/request_table.h"

#include <utility>

namespace lathe::worker {

RequestTable::Arrival RequestTable::Begin(const std::string& request_id, RequestInfo info) {
  const auto [it, inserted] = entries_.try_emplace(request_id);
  if (inserted) {
    it->second.info = std::move(info);
    return Arrival::kNew;
  }
  return it->second.done.has_value() ? Arrival::kDone : Arrival::kRunning;
}

const RequestInfo* RequestTable::FindRunning(const std::string& request_id) const {
  const auto it = entries_.find(request_id);
  if (it == entries_.end() || it->second.done.has_value()) return nullptr;
  return &it->second.info;
}

void RequestTable::Finish(lathe::v1::OperationDone done) {
  const auto it = entries_.find(done.request_id());
  if (it == entries_.end() || it->second.done.has_value()) return;
  it->second.done = std::move(done);
}

void RequestTable::SetEnded(const std::string& request_id, int64_t num_ended) {
  const auto it = entries_.find(request_id);
  if (it != entries_.end()) it->second.num_ended = num_ended;
}

int64_t RequestTable::NumEnded(const std::string& request_id) const {
  const auto it = entries_.find(request_id);
  return it == entries_.end() || it->second.done.has_value() ? 0 : it->second.num_ended;
}

const lathe::v1::OperationDone* RequestTable::FindDone(const std::string& request_id) const {
  const auto it = entries_.find(request_id);
  if (it == entries_.end() || !it->second.done.has_value()) return nullptr;
  return &*it->second.done;
}

void RequestTable::Acknowledge(const std::string& request_id) {
  const auto it = entries_.find(request_id);
  if (it != entries_.end() && it->second.done.has_value()) entries_.erase(it);
}

void RequestTable::Withdraw(const std::string& request_id) { entries_.erase(request_id); }

std::vector<std::string> RequestTable::RunningIds() const {
  std::vector<std::string> ids;
  for (const auto& [request_id, entry] : entries_) {
    if (!entry.done.has_value()) ids.push_back(request_id);
  }
  return ids;
}

std::vector<const lathe::v1::OperationDone*> RequestTable::DoneResults() const {
  std::vector<const lathe::v1::OperationDone*> results;
  for (const auto& [request_id, entry] : entries_) {
    if (entry.done.has_value()) results.push_back(&*entry.done);
  }
  return results;
}

}  // namespace lathe::worker

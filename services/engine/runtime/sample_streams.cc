#include "services/engine/runtime/sample_streams.h"

#include <utility>

namespace lathe::engine {

uint64_t SampleStreams::Add(const std::string& request_id, Callback callback) {
  absl::MutexLock lock(&mu_);
  const uint64_t id = next_id_++;
  streams_[request_id].emplace(id, std::move(callback));
  return id;
}

bool SampleStreams::Remove(const std::string& request_id, uint64_t stream_id) {
  absl::MutexLock lock(&mu_);
  const auto found = streams_.find(request_id);
  if (found == streams_.end() || found->second.erase(stream_id) == 0) return false;
  if (!found->second.empty()) return false;
  streams_.erase(found);
  return true;
}

bool SampleStreams::IsWanted(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  return streams_.contains(request_id);
}

std::vector<std::string> SampleStreams::WantedIds() {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> ids;
  for (const auto& [request_id, streams] : streams_) ids.push_back(request_id);
  return ids;
}

void SampleStreams::Push(const std::vector<StreamedToken>& tokens) {
  std::vector<std::pair<const StreamedToken*, Callback>> calls;
  {
    absl::MutexLock lock(&mu_);
    for (const StreamedToken& token : tokens) {
      const auto found = streams_.find(token.request_id);
      if (found == streams_.end()) continue;
      for (const auto& [id, callback] : found->second) calls.emplace_back(&token, callback);
    }
  }
  for (const auto& [token, callback] : calls) callback(*token);
}

}  // namespace lathe::engine

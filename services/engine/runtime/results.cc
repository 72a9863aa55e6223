#include "services/engine/runtime/results.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

int64_t Cost(const std::string& bytes) {
  return Results::kEntryBytes + static_cast<int64_t>(bytes.size());
}

}  // namespace

std::string Results::Hold(std::string bytes) {
  absl::MutexLock lock(&mu_);
  // Ids from the core never begin like this.
  std::string result_id = absl::StrCat("hold-", next_hold_++);
  held_[result_id] = std::make_shared<const std::string>(std::move(bytes));
  return result_id;
}

void Results::HoldAs(const std::string& result_id, std::string bytes) {
  absl::MutexLock lock(&mu_);
  held_[result_id] = std::make_shared<const std::string>(std::move(bytes));
}

SharedBytes Results::Held(const std::string& result_id) {
  absl::MutexLock lock(&mu_);
  const auto found = held_.find(result_id);
  return found == held_.end() ? nullptr : found->second;
}

void Results::Forget(const std::string& result_id) {
  absl::MutexLock lock(&mu_);
  held_.erase(result_id);
}

void Results::Finish(const std::string& result_id, const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = held_.find(result_id);
  if (found == held_.end()) return;
  SharedBytes bytes = std::move(found->second);
  held_.erase(found);
  if (recent_.contains(request_id)) return;
  recent_bytes_ += Cost(*bytes);
  recent_[request_id] = {std::move(bytes), order_.insert(order_.end(), request_id)};
  while (recent_bytes_ > max_recent_bytes_ && !order_.empty()) DropLocked(order_.front());
}

void Results::DropLocked(const std::string& request_id) {
  const auto found = recent_.find(request_id);
  if (found == recent_.end()) return;
  recent_bytes_ -= Cost(*found->second.bytes);
  const auto age = found->second.age;
  recent_.erase(found);
  order_.erase(age);  // last: `request_id` may be this entry
}

void Results::Drop(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  DropLocked(request_id);
}

SharedBytes Results::Recent(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = recent_.find(request_id);
  if (found == recent_.end()) return nullptr;
  order_.splice(order_.end(), order_, found->second.age);
  return found->second.bytes;
}

}  // namespace lathe::engine

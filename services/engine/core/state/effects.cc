#include "services/engine/core/state/effects.h"

#include <iterator>

namespace lathe::engine {
namespace {

void MoveTo(std::vector<Action>& from, std::vector<Action>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

}  // namespace

RequestRow* Effects::InsertedInThisStep(const std::string& request_id) {
  for (auto it = writes_.rbegin(); it != writes_.rend(); ++it) {
    auto* const insert = std::get_if<InsertRequest>(&*it);
    if (insert != nullptr && insert->row.request_id == request_id) return &insert->row;
  }
  return nullptr;
}

void Effects::Finish(bool flush, std::vector<Action>* out) {
  MoveTo(now_, out);
  if (urgent_ || (flush && !writes_.empty())) {
    out->push_back(Commit{++last_commit_id_, std::move(writes_)});
    writes_.clear();
    urgent_ = false;
    waiting_.push_back({last_commit_id_, std::move(after_)});
    after_.clear();
  } else if (!waiting_.empty()) {
    MoveTo(after_, &waiting_.back().actions);
  } else {
    MoveTo(after_, out);
  }
}

void Effects::Committed(uint64_t commit_id, std::vector<Action>* out) {
  while (!waiting_.empty() && waiting_.front().commit_id <= commit_id) {
    MoveTo(waiting_.front().actions, out);
    waiting_.pop_front();
  }
}

}  // namespace lathe::engine

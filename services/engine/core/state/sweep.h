// Bounded sweeps. A sweep finds its subjects by an index, handles at most CoreOptions::max_swept of
// them in one Step and takes up the others at the next Tick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lathe::engine {

// The number of subjects that a sweep may still handle in this Step.
class Budget {
 public:
  explicit Budget(int64_t most) : left_(most) {}

  // Takes one. Returns false if none is left.
  bool Take() { return left_ > 0 && left_-- > 0; }
  int64_t left() const { return left_; }
  bool is_used_up() const { return left_ == 0; }

 private:
  int64_t left_;
};

// Subjects that are due at a time, by id.
class DueTimes {
 public:
  // Replaces the earlier time of the subject, if it has one.
  void Set(const std::string& id, int64_t due_at) {
    Remove(id);
    due_at_[id] = due_at;
    by_time_.emplace(due_at, id);
  }

  void Remove(const std::string& id) {
    const auto it = due_at_.find(id);
    if (it == due_at_.end()) return;
    by_time_.erase({it->second, id});
    due_at_.erase(it);
  }

  // Removes the subject that is due for the longest time; nullopt: none is due.
  std::optional<std::string> Take(int64_t now) {
    if (by_time_.empty() || by_time_.begin()->first > now) return std::nullopt;
    auto due = by_time_.extract(by_time_.begin());
    due_at_.erase(due.value().second);
    return std::move(due.value().second);
  }

  bool empty() const { return by_time_.empty(); }

 private:
  std::map<std::string, int64_t> due_at_;
  std::set<std::pair<int64_t, std::string>> by_time_;
};

// Subjects that each sweep looks at. If they are more than its budget, they take turns.
class Turns {
 public:
  void Set(const std::string& id, bool is_in) {
    if (is_in) {
      ids_.insert(id);
    } else {
      ids_.erase(id);
    }
  }

  // The next subjects in turn, at most `most` and each one once. All of them come in the order of
  // ids.
  std::vector<std::string> Next(int64_t most) {
    std::vector<std::string> next;
    if (static_cast<int64_t>(ids_.size()) <= most) return {ids_.begin(), ids_.end()};
    auto it = ids_.upper_bound(last_);
    for (; most > 0; --most, ++it) {
      if (it == ids_.end()) it = ids_.begin();
      next.push_back(*it);
    }
    if (!next.empty()) last_ = next.back();
    return next;
  }

  const std::set<std::string>& ids() const { return ids_; }

 private:
  std::set<std::string> ids_;
  std::string last_;  // the last one of the turn before
};

}  // namespace lathe::engine

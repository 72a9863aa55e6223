// A map whose values are also found by a key that several of them share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace lathe::engine {

// Iterates in the order of ids. `SharedKeyOf` returns the shared key of a value; only Change may
// change it. A value with an empty shared key is found by its id only.
template <typename Value, const std::string& (*SharedKeyOf)(const Value&)>
class IndexedMap {
 public:
  using key_type = std::string;

  // Adds a value under an id that is not in use.
  Value& Add(const std::string& id, Value value) {
    Index(id, value);
    return values_.emplace(id, std::move(value)).first->second;
  }

  // Removes and returns the value of an id that is in use.
  Value Take(const std::string& id) {
    auto node = values_.extract(id);
    Unindex(node.key(), node.mapped());
    return std::move(node.mapped());
  }

  // Calls `change` with the value of an id that is in use. It may change the shared key.
  template <typename ChangeValue>
  void Change(const std::string& id, ChangeValue change) {
    const auto it = values_.find(id);
    Unindex(it->first, it->second);
    change(it->second);
    Index(it->first, it->second);
  }

  // The ids of the values with this shared key, in order. The reference is valid until the next
  // Add, Take or Change.
  const std::set<std::string>& IdsWith(const std::string& shared) const {
    static const std::set<std::string> kNone;
    const auto it = ids_.find(shared);
    if (it == ids_.end()) return kNone;
    num_visited_ += static_cast<int64_t>(it->second.size());
    return it->second;
  }
  bool HasAny(const std::string& shared) const { return ids_.count(shared) > 0; }

  // Number of values that walks have visited, if each of them went to its end. Tests of scale bound
  // it for each Step.
  int64_t num_visited() const { return num_visited_; }

  auto begin() { return CountWalk(), values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return CountWalk(), values_.begin(); }
  auto end() const { return values_.end(); }
  auto find(const std::string& id) { return values_.find(id); }
  auto find(const std::string& id) const { return values_.find(id); }
  Value& at(const std::string& id) { return values_.at(id); }
  const Value& at(const std::string& id) const { return values_.at(id); }
  size_t count(const std::string& id) const { return values_.count(id); }

 private:
  void CountWalk() const { num_visited_ += static_cast<int64_t>(values_.size()); }

  void Index(const std::string& id, const Value& value) {
    const std::string& shared = SharedKeyOf(value);
    if (!shared.empty()) ids_[shared].insert(id);
  }

  void Unindex(const std::string& id, const Value& value) {
    const auto with_shared = ids_.find(SharedKeyOf(value));
    if (with_shared == ids_.end()) return;
    with_shared->second.erase(id);
    if (with_shared->second.empty()) ids_.erase(with_shared);
  }

  mutable int64_t num_visited_ = 0;
  std::map<std::string, Value> values_;
  std::map<std::string, std::set<std::string>> ids_;  // by shared key; absent: none
};

}  // namespace lathe::engine

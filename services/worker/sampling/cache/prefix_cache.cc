#include "services/worker/sampling/cache/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace lathe::worker {

PrefixCache::PrefixCache(int64_t num_blocks)
    : entries_(num_blocks), next_(num_blocks + 1), previous_(num_blocks + 1) {
  next_.back() = previous_.back() = static_cast<int32_t>(num_blocks);
}

PrefixCache::Key PrefixCache::KeyOf(int64_t parent_serial, std::span<const int32_t> tokens) {
  Key key{.parent_serial = parent_serial};
  std::copy_n(tokens.begin(), kKvBlockTokens, key.tokens.begin());
  return key;
}

std::vector<int32_t> PrefixCache::Find(const PrefixScope& scope,
                                       std::span<const int32_t> tokens) const {
  std::vector<int32_t> found;
  const auto root = roots_.find(scope);
  if (root == roots_.end()) return found;
  int64_t serial = root->second.serial;
  for (; tokens.size() >= kKvBlockTokens; tokens = tokens.subspan(kKvBlockTokens)) {
    const auto it = blocks_.find(KeyOf(serial, tokens));
    if (it == blocks_.end()) break;
    found.push_back(it->second);
    serial = entries_[it->second].serial;
  }
  return found;
}

int32_t PrefixCache::Add(const PrefixScope& scope, int32_t parent, std::span<const int32_t> tokens,
                         int32_t block) {
  const auto [root, is_new_root] = roots_.try_emplace(scope);
  if (is_new_root) root->second.serial = ++last_serial_;
  const Key key = KeyOf(parent == kNone ? root->second.serial : entries_[parent].serial, tokens);
  const auto [known, is_new] = blocks_.try_emplace(key, block);
  if (!is_new) return known->second;
  entries_[block] = {.serial = ++last_serial_, .key = key, .root = root};
  ++root->second.num_blocks;
  return block;
}

void PrefixCache::Use(int32_t block) { Unlink(block); }

void PrefixCache::Idle(int32_t block) {
  const auto sentinel = static_cast<int32_t>(entries_.size());
  previous_[block] = previous_[sentinel];
  next_[block] = sentinel;
  next_[previous_[block]] = block;
  previous_[sentinel] = block;
  ++num_idle_;
}

void PrefixCache::Unlink(int32_t block) {
  next_[previous_[block]] = next_[block];
  previous_[next_[block]] = previous_[block];
  --num_idle_;
}

int32_t PrefixCache::EvictOldest() {
  if (num_idle_ == 0) return kNone;
  const int32_t block = next_.back();
  Unlink(block);
  Forget(block);
  return block;
}

void PrefixCache::Forget(int32_t block) {
  Entry& entry = entries_[block];
  blocks_.erase(entry.key);
  if (--entry.root->second.num_blocks == 0) roots_.erase(entry.root);
  entry = Entry();
}

std::vector<int32_t> PrefixCache::Drop(const std::string& version_id) {
  const auto is_dropped = [&](int32_t block) {
    return IsKnown(block) && entries_[block].root->first.version_id == version_id;
  };
  std::vector<int32_t> idle;
  const auto sentinel = static_cast<int32_t>(entries_.size());
  for (int32_t block = next_[sentinel]; block != sentinel; block = next_[block]) {
    if (is_dropped(block)) idle.push_back(block);
  }
  for (const int32_t block : idle) Unlink(block);
  for (int32_t block = 0; block < sentinel; ++block) {
    if (is_dropped(block)) Forget(block);
  }
  return idle;
}

}  // namespace lathe::worker

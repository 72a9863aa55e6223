#include "services/engine/scheduler/fair_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace lathe::engine {
namespace {

// The first key at or after `key`, with wrap-around. `map` must not be empty.
template <typename Map>
typename Map::iterator AtOrAfter(Map& map, const std::string& key) {
  const auto it = map.lower_bound(key);
  return it == map.end() ? map.begin() : it;
}

template <typename Map>
typename Map::iterator After(Map& map, const std::string& key) {
  const auto it = map.upper_bound(key);
  return it == map.end() ? map.begin() : it;
}

}  // namespace

void FairQueue::Push(const std::string& tenant, const std::string& owner, Item item) {
  tokens_ += item.tokens;
  Owner& to = tenants_[tenant].owners[owner];
  to.items.push_back(std::move(item));
  to.by_id[to.items.back().id] = std::prev(to.items.end());
}

bool FairQueue::Remove(const std::string& tenant, const std::string& owner, const std::string& id) {
  const auto at_tenant = tenants_.find(tenant);
  if (at_tenant == tenants_.end()) return false;
  auto& owners = at_tenant->second.owners;
  const auto at_owner = owners.find(owner);
  if (at_owner == owners.end()) return false;
  Owner& from = at_owner->second;
  const auto it = from.by_id.find(id);
  if (it == from.by_id.end()) return false;
  tokens_ -= it->second->tokens;
  from.items.erase(it->second);
  from.by_id.erase(it);
  if (from.items.empty()) owners.erase(at_owner);
  if (owners.empty()) tenants_.erase(at_tenant);
  return true;
}

void FairQueue::Clear() {
  if (tenants_.empty()) return;
  cleared_.push_back(std::move(tenants_));
  tenants_.clear();
  tokens_ = 0;
}

bool FairQueue::FreeSome(int64_t most) {
  while (most > 0 && !cleared_.empty()) {
    auto& tenants = cleared_.back();
    auto& owners = tenants.begin()->second.owners;
    Owner& owner = owners.begin()->second;
    owner.by_id.erase(owner.items.front().id);
    owner.items.pop_front();
    --most;
    if (owner.items.empty()) owners.erase(owners.begin());
    if (owners.empty()) tenants.erase(tenants.begin());
    if (tenants.empty()) cleared_.pop_back();
  }
  return !cleared_.empty();
}

FairQueue::Owner& FairQueue::NextOwner(Tenant& tenant, std::string* name) {
  const auto it = After(tenant.owners, tenant.last_owner);
  *name = it->first;
  return it->second;
}

void FairQueue::Advance() {
  current_ = After(tenants_, current_)->first;
  turn_started_ = false;
}

void FairQueue::SkipPoorRounds(const std::set<std::string>& passed, Deficits& former) {
  int64_t num_rounds = std::numeric_limits<int64_t>::max();
  for (auto& [name, tenant] : tenants_) {
    if (passed.count(name) > 0) continue;
    std::string owner;
    const int64_t missing = NextOwner(tenant, &owner).items.front().tokens - tenant.deficit;
    num_rounds = std::min(num_rounds, (missing - 1) / quantum_tokens_);  // the next one pays
  }
  for (auto& [name, tenant] : tenants_) {
    if (passed.count(name) > 0) continue;
    former.emplace_back(&tenant, tenant.deficit);
    tenant.deficit += num_rounds * quantum_tokens_;
  }
}

std::vector<FairQueue::Item> FairQueue::Take(
    const std::function<Fit(const std::string& tenant, const Item&)>& fit) {
  std::vector<Item> taken;
  std::set<std::string> passed;
  const std::string former_current = current_;
  const bool former_turn_started = turn_started_;
  Deficits former;
  size_t num_poor = 0;  // tenants in a row that could not pay
  while (passed.size() < tenants_.size()) {
    const auto at_tenant = AtOrAfter(tenants_, current_);
    if (at_tenant->first != current_) {
      current_ = at_tenant->first;
      turn_started_ = false;
    }
    if (passed.count(current_) > 0) {
      Advance();
      continue;
    }
    Tenant& tenant = at_tenant->second;
    std::string owner;
    Owner& next = NextOwner(tenant, &owner);
    std::list<Item>& items = next.items;
    if (!turn_started_) {
      former.emplace_back(&tenant, tenant.deficit);
      tenant.deficit += quantum_tokens_;
      turn_started_ = true;
    }
    if (items.front().tokens > tenant.deficit) {
      Advance();
      if (++num_poor < tenants_.size() - passed.size()) continue;
      SkipPoorRounds(passed, former);
      num_poor = 0;
      continue;
    }
    num_poor = 0;
    const Fit answer = fit(current_, items.front());
    if (answer == Fit::kEnd) break;
    if (answer == Fit::kPassTenant) {
      // The deficit is enough for the item. Further waiting adds nothing to it.
      former.emplace_back(&tenant, tenant.deficit);
      tenant.deficit = items.front().tokens;
      passed.insert(current_);
      continue;
    }
    tenant.deficit -= items.front().tokens;
    tokens_ -= items.front().tokens;
    next.by_id.erase(items.front().id);
    taken.push_back(std::move(items.front()));
    items.pop_front();
    tenant.last_owner = owner;
    if (items.empty()) tenant.owners.erase(owner);
    if (tenant.owners.empty()) {
      tenants_.erase(at_tenant);
      turn_started_ = false;
    }
  }
  if (taken.empty() && !passed.empty()) {
    for (auto it = former.rbegin(); it != former.rend(); ++it) it->first->deficit = it->second;
    current_ = former_current;
    turn_started_ = former_turn_started;
  }
  return taken;
}

}  // namespace lathe::engine

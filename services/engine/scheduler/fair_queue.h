// What waits for a worker group, served in fair-share order.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace lathe::engine {

// Deficit round robin over tenants by tokens (Shreedhar and Varghese, 1995), then round robin over
// a tenant's owners (models or samplers), first come first served within one. Work-conserving:
// while anything waits, something is served. Two tenants that both wait are never further apart
// than one quantum and one item, however many requests either has queued.
class FairQueue {
 public:
  struct Item {
    std::string id;  // no other one of its owner's that waits has it
    int64_t tokens = 0;
  };

  // `quantum_tokens`: what one turn of a tenant is worth, at least 1.
  explicit FairQueue(int64_t quantum_tokens) : quantum_tokens_(quantum_tokens) {}

  void Push(const std::string& tenant, const std::string& owner, Item item);
  // False: it was not queued. Takes no longer when more waits.
  bool Remove(const std::string& tenant, const std::string& owner, const std::string& id);
  void Clear();

  enum class Fit {
    kTake,
    kPassTenant,  // nothing more of this tenant now
    kEnd,
  };

  // Takes items in fair order. `fit` is asked of each item whose turn comes, and one for which it
  // says kTake is taken; at kEnd the item is first the next time, and a tenant that was passed
  // keeps its turn.
  std::vector<Item> Take(const std::function<Fit(const std::string& tenant, const Item&)>& fit);

  bool empty() const { return tenants_.empty(); }

 private:
  struct Owner {
    std::list<Item> items;
    std::unordered_map<std::string, std::list<Item>::iterator> by_id;  // lookup only
  };
  struct Tenant {
    int64_t deficit = 0;
    std::string last_owner;  // served last; its successor is next
    std::map<std::string, Owner> owners;
  };

  Owner& NextOwner(Tenant& tenant, std::string* name);
  void Advance();

  const int64_t quantum_tokens_;
  std::map<std::string, Tenant> tenants_;  // those with items
  std::string current_;                    // tenant whose turn it is
  bool turn_started_ = false;              // it has had its quantum
};

}  // namespace lathe::engine

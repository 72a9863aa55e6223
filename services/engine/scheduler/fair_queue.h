// Queue of a worker group in fair-share order.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace lathe::engine {

// Deficit round robin over tenants by tokens (Shreedhar and Varghese, 1995). A tenant's owners
// (models or samplers) are served round robin, and each owner's items first come first served. The
// queue is work-conserving: while anything waits, something is served. Two waiting tenants never
// differ by more than one quantum and one item, however many requests they have queued.
class FairQueue {
 public:
  struct Item {
    std::string id;  // unique among the owner's waiting items
    int64_t tokens = 0;
  };

  // `quantum_tokens`: tokens of one turn of a tenant, at least 1.
  explicit FairQueue(int64_t quantum_tokens) : quantum_tokens_(quantum_tokens) {}

  void Push(const std::string& tenant, const std::string& owner, Item item);
  // Returns false if the item was not queued. Constant time in the number of waiting items.
  bool Remove(const std::string& tenant, const std::string& owner, const std::string& id);
  // Removes all items. FreeSome frees their memory, which takes 50 ms for 262,144 items.
  void Clear();
  // Frees at most `most` items that were cleared. Returns true if some are left.
  bool FreeSome(int64_t most);

  enum class Fit {
    kTake,
    kPassTenant,  // skips the tenant for this call
    kEnd,
  };

  // Takes items in fair order. Costs about one look at each tenant per item, however many tokens
  // items have. `fit` decides for each item in turn; kTake takes it. After kEnd the
  // same item is first the next time. A tenant that was passed keeps its turn. A call that passes
  // tenants and takes nothing changes nothing: tenants would save up for nothing in it.
  std::vector<Item> Take(const std::function<Fit(const std::string& tenant, const Item&)>& fit);

  bool empty() const { return tenants_.empty(); }
  int64_t tokens() const { return tokens_; }  // sum over the waiting items

 private:
  struct Owner {
    std::list<Item> items;
    std::unordered_map<std::string, std::list<Item>::iterator> by_id;  // lookup only
  };
  struct Tenant {
    int64_t deficit = 0;
    std::string last_owner;  // owner served last; the next one follows
    std::map<std::string, Owner> owners;
  };

  Owner& NextOwner(Tenant& tenant, std::string* name);
  void Advance();
  using Deficits = std::vector<std::pair<Tenant*, int64_t>>;
  // Lets the tenants that are not in `passed` save up for the rounds in which none of them could
  // pay for its next item. Adds their former deficits to `former`.
  void SkipPoorRounds(const std::set<std::string>& passed, Deficits& former);

  const int64_t quantum_tokens_;
  std::map<std::string, Tenant> tenants_;  // tenants with items
  int64_t tokens_ = 0;
  std::string current_;        // tenant in turn
  bool turn_started_ = false;  // the current tenant has received its quantum
  std::vector<std::map<std::string, Tenant>> cleared_;
};

}  // namespace lathe::engine

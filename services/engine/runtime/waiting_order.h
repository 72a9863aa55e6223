// Requests that wait, with the sums over those before each.
#pragma once

#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <functional>

namespace lathe::engine {

// A set of requests in order of acceptance. Each node of its tree knows the sum of its subtree, so
// every function takes O(log n) steps. Not thread-safe.
class WaitingOrder {
 public:
  struct Sum {
    int64_t requests = 0;
    int64_t tokens = 0;
    void Add(const Sum& other) {
      requests += other.requests;
      tokens += other.tokens;
    }
  };

  // `order`: sequence number of acceptance.
  void Add(int64_t order, int64_t tokens) { tree_.insert({order, tokens}); }
  // Does nothing if the request is not in the set.
  void Remove(int64_t order) { tree_.erase(order); }
  // Returns the sum over the requests before `order`. Adds the number of visited ones to
  // `num_visited`.
  Sum Before(int64_t order, int64_t& num_visited) const {
    return tree_.SumBefore(order, num_visited);
  }

 private:
  // The tree calls operator() for each node whose children have changed.
  template <typename ConstNode, typename Node, typename Less, typename Allocator>
  class SubtreeSums {
   public:
    using metadata_type = Sum;

    virtual ~SubtreeSums() = default;

    Sum SumBefore(int64_t order, int64_t& num_visited) const {
      Sum sum;
      ConstNode node = node_begin();
      const ConstNode end = node_end();
      while (node != end) {
        ++num_visited;
        if ((*node)->first >= order) {
          node = node.get_l_child();
          continue;
        }
        sum.Add({1, (*node)->second});
        if (node.get_l_child() != end) sum.Add(node.get_l_child().get_metadata());
        node = node.get_r_child();
      }
      return sum;
    }

   protected:
    void operator()(Node node, ConstNode end) const {
      Sum sum{1, (*node)->second};
      if (node.get_l_child() != end) sum.Add(node.get_l_child().get_metadata());
      if (node.get_r_child() != end) sum.Add(node.get_r_child().get_metadata());
      // The library's own policies write the metadata like this.
      const_cast<Sum&>(node.get_metadata()) = sum;
    }

   private:
    virtual ConstNode node_begin() const = 0;
    virtual ConstNode node_end() const = 0;
  };
  using Tree =
      __gnu_pbds::tree<int64_t, int64_t, std::less<>, __gnu_pbds::rb_tree_tag, SubtreeSums>;

  Tree tree_;
};

}  // namespace lathe::engine

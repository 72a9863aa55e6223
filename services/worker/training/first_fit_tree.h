// First-fit tree over the free room of micro-batches. Free of torch.
#pragma once

#include <cstdint>
#include <vector>

namespace lathe::worker {

// Room that a row needs or that a micro-batch has left. The latter may be negative: a row above the
// limits has a micro-batch alone.
struct PassRoom {
  int64_t tokens = 0;
  int64_t bytes = 0;

  bool Holds(const PassRoom& need) const { return need.tokens <= tokens && need.bytes <= bytes; }
};

// A segment tree whose nodes hold the largest room below them. Finding the first of n micro-batches
// with enough room takes about log n steps, so planning ten thousand short rows is fast.
class FirstFitTree {
 public:
  static constexpr int64_t kNone = -1;

  int64_t size() const { return size_; }
  const PassRoom& room(int64_t index) const { return nodes_[num_leaves_ + index]; }

  void Append(const PassRoom& room);
  void Take(int64_t index, const PassRoom& need);

  // Returns the first index >= `begin` whose room holds `need`, or kNone.
  int64_t FindFirst(int64_t begin, const PassRoom& need) const;

 private:
  void Set(int64_t index, const PassRoom& room);
  int64_t Search(int64_t node, int64_t node_begin, int64_t node_size, int64_t begin,
                 const PassRoom& need) const;

  int64_t size_ = 0;
  int64_t num_leaves_ = 1;
  // Node n has children 2n and 2n + 1. Leaves start at num_leaves_.
  std::vector<PassRoom> nodes_ = std::vector<PassRoom>(2);
};

}  // namespace lathe::worker

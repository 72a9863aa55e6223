// First-fit search over micro-batches by the room each has left. Free of torch.
#pragma once

#include <cstdint>
#include <vector>

namespace lathe::worker {

// What a row needs or a micro-batch has left. What is left may be negative: a row that is larger
// than a micro-batch may be has one for itself.
struct PassRoom {
  int64_t tokens = 0;
  int64_t bytes = 0;

  bool Holds(const PassRoom& need) const { return need.tokens <= tokens && need.bytes <= bytes; }
};

// A segment tree of the largest room below each node: finding the first of n micro-batches with
// enough room takes about log n steps, so ten thousand short rows are planned in no time.
class RoomTree {
 public:
  static constexpr int64_t kNone = -1;

  int64_t size() const { return size_; }
  const PassRoom& room(int64_t index) const { return nodes_[num_leaves_ + index]; }

  void Append(const PassRoom& room);
  void Take(int64_t index, const PassRoom& need);

  // The first index from `begin` on whose room holds `need`; kNone: there is none.
  int64_t FindFirst(int64_t begin, const PassRoom& need) const;

 private:
  void Set(int64_t index, const PassRoom& room);
  int64_t Search(int64_t node, int64_t node_begin, int64_t node_size, int64_t begin,
                 const PassRoom& need) const;

  int64_t size_ = 0;
  int64_t num_leaves_ = 1;
  // Node n has the children 2n and 2n + 1; leaves start at num_leaves_.
  std::vector<PassRoom> nodes_ = std::vector<PassRoom>(2);
};

}  // namespace lathe::worker

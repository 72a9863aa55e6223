#include "services/worker/training/first_fit_tree.h"

#include <algorithm>

namespace lathe::worker {

void FirstFitTree::Append(const PassRoom& room) {
  if (size_ == num_leaves_) {
    const std::vector<PassRoom> leaves(nodes_.begin() + num_leaves_, nodes_.end());
    num_leaves_ *= 2;
    // Leaves that do not exist yet have room for no row.
    nodes_.assign(2 * num_leaves_, PassRoom{.tokens = -1, .bytes = -1});
    for (int64_t i = 0; i < size_; ++i) Set(i, leaves[i]);
  }
  Set(size_++, room);
}

void FirstFitTree::Take(int64_t index, const PassRoom& need) {
  const PassRoom& left = room(index);
  Set(index, {.tokens = left.tokens - need.tokens, .bytes = left.bytes - need.bytes});
}

void FirstFitTree::Set(int64_t index, const PassRoom& room) {
  int64_t node = num_leaves_ + index;
  nodes_[node] = room;
  for (node /= 2; node >= 1; node /= 2) {
    const PassRoom& left = nodes_[2 * node];
    const PassRoom& right = nodes_[2 * node + 1];
    nodes_[node] = {.tokens = std::max(left.tokens, right.tokens),
                    .bytes = std::max(left.bytes, right.bytes)};
  }
}

int64_t FirstFitTree::FindFirst(int64_t begin, const PassRoom& need) const {
  return begin < size_ ? Search(1, 0, num_leaves_, begin, need) : kNone;
}

int64_t FirstFitTree::Search(int64_t node, int64_t node_begin, int64_t node_size, int64_t begin,
                             const PassRoom& need) const {
  if (node_begin + node_size <= begin || node_begin >= size_ || !nodes_[node].Holds(need)) {
    return kNone;
  }
  if (node_size == 1) return node_begin;
  const int64_t half = node_size / 2;
  const int64_t left = Search(2 * node, node_begin, half, begin, need);
  return left != kNone ? left : Search(2 * node + 1, node_begin + half, half, begin, need);
}

}  // namespace lathe::worker

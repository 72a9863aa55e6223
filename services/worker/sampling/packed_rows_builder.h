// Concatenates the rows of a sampling pass.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/spec/packed_rows.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Collects sequences. Consecutive ones with the same adapter share a segment.
class PackedRowsBuilder {
 public:
  void BeginSequence(const AdapterWeights* adapter);
  void AddRow(int32_t token, int64_t position);
  PackedRows Build(at::Device device) const;
  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::vector<int64_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> starts_;
  std::vector<const AdapterWeights*> adapters_;  // by sequence
};

// Returns segments over single rows that use `adapters` in this order.
std::vector<Segment> SegmentsOf(const std::vector<const AdapterWeights*>& adapters);

// Groups items by adapter. Adapters keep the order of their first item.
template <typename T, typename F>
void GroupByAdapter(std::vector<T>& items, F adapter_of) {
  std::vector<const AdapterWeights*> order;
  std::vector<std::vector<T>> groups;
  for (T& item : items) {
    const AdapterWeights* adapter = adapter_of(item);
    size_t group = 0;
    while (group < order.size() && order[group] != adapter) ++group;
    if (group == order.size()) {
      order.push_back(adapter);
      groups.emplace_back();
    }
    groups[group].push_back(item);
  }
  items.clear();
  for (std::vector<T>& group : groups) items.insert(items.end(), group.begin(), group.end());
}

}  // namespace lathe::worker

#include "services/worker/sampling/packed_rows_builder.h"

namespace lathe::worker {
namespace {

void Append(std::vector<Segment>& segments, int64_t begin, int64_t end,
            const AdapterWeights* adapter) {
  if (!segments.empty() && segments.back().adapter == adapter) {
    segments.back().end = end;
  } else {
    segments.push_back({.begin = begin, .end = end, .adapter = adapter});
  }
}

}  // namespace

void PackedRowsBuilder::BeginSequence(const AdapterWeights* adapter) {
  starts_.push_back(num_rows());
  adapters_.push_back(adapter);
}

void PackedRowsBuilder::AddRow(int32_t token, int64_t position) {
  tokens_.push_back(token);
  positions_.push_back(position);
}

PackedRows PackedRowsBuilder::Build(at::Device device) const {
  PackedRows rows;
  rows.tokens = at::tensor(tokens_, at::kLong).to(device);
  rows.positions = at::tensor(positions_, at::kLong).to(device);
  rows.cu_seqlens = starts_;
  rows.cu_seqlens.push_back(num_rows());
  for (size_t s = 0; s < adapters_.size(); ++s) {
    Append(rows.segments, rows.cu_seqlens[s], rows.cu_seqlens[s + 1], adapters_[s]);
  }
  return rows;
}

std::vector<Segment> SegmentsOf(const std::vector<const AdapterWeights*>& adapters) {
  std::vector<Segment> segments;
  for (size_t row = 0; row < adapters.size(); ++row) {
    const auto begin = static_cast<int64_t>(row);
    Append(segments, begin, begin + 1, adapters[row]);
  }
  return segments;
}

}  // namespace lathe::worker

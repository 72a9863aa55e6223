#include "services/worker/sampling/attention/cached_attention.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/norms.h"
#include "services/worker/sampling/attention/cached_attention_by_kernel.h"

namespace lathe::worker {
namespace {

at::Tensor ToDevice(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

// [T, H, D] -> [1, H, T, D]
at::Tensor HeadsFirst(const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

// Gathers the first `num_tokens` keys of a block table [B] as [num_tokens, Hk, D].
at::Tensor GatherKeys(const at::Tensor& keys, const at::Tensor& blocks, int64_t num_tokens) {
  const at::Tensor gathered = keys.index_select(0, blocks).permute({0, 3, 1, 2});
  return gathered.reshape({-1, keys.size(1), keys.size(2)}).narrow(0, 0, num_tokens);
}

at::Tensor GatherValues(const at::Tensor& values, const at::Tensor& blocks, int64_t num_tokens) {
  const at::Tensor gathered = values.index_select(0, blocks).permute({0, 2, 1, 3});
  return gathered.reshape({-1, values.size(1), values.size(3)}).narrow(0, 0, num_tokens);
}

// Attends with q [n, Hq, D] over k, v [length, Hk, D], the keys up to the last query's own.
at::Tensor AttendCausally(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v) {
  const int64_t num_rows = q.size(0);
  const int64_t length = k.size(0);
  const int64_t group = q.size(1) / k.size(1);
  std::optional<at::Tensor> mask;
  if (num_rows < length || spec.window != 0) {
    const auto options = q.options().dtype(at::kBool);
    mask = at::ones({num_rows, length}, options).tril_(length - num_rows);
    if (spec.window != 0) mask->triu_(length - num_rows + 1 - spec.window);
  }
  const at::Tensor out = at::scaled_dot_product_attention(
      HeadsFirst(q), HeadsFirst(k.repeat_interleave(group, 1)),
      HeadsFirst(v.repeat_interleave(group, 1)), mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value(), spec.scale);
  return out.squeeze(0).transpose(0, 1);
}

}  // namespace

CachedAttention::CachedAttention(KvCache& cache, std::vector<CachedRows> rows, at::Device device)
    : cache_(cache), rows_(std::move(rows)), device_(device), blocks_(rows_.size()) {
  std::vector<int64_t> blocks;
  std::vector<int64_t> places;
  for (const CachedRows& row : rows_) {
    is_decode_ = is_decode_ && row.num_rows == 1;
    for (int64_t position = row.first_position(); position < row.kv->length; ++position) {
      blocks.push_back(row.kv->blocks[position / KvCache::kBlockTokens]);
      places.push_back(position % KvCache::kBlockTokens);
    }
  }
  new_blocks_ = ToDevice(blocks, device_);
  new_places_ = ToDevice(places, device_);
}

const AttentionPlan& CachedAttention::PlanFor(const at::Tensor& q, const at::Tensor& k) {
  if (!plan_.has_value()) {
    plan_ = PlanForKernel(rows_, q.size(1), k.size(1), cache_.attention_arithmetic());
  }
  return *plan_;
}

const PagedPass& CachedAttention::PagedPassFor(const AttentionSpec& spec) {
  const auto found = paged_passes_.find(spec.window);
  if (found != paged_passes_.end()) return found->second;
  PagedBatch batch;
  for (const CachedRows& sequence : rows_) batch.Add(sequence);
  PagedPass pass = PlanPagedPass(PagedShapeOf(spec), batch, device_);
  return paged_passes_.emplace(spec.window, std::move(pass)).first->second;
}

at::Tensor CachedAttention::Attend(int64_t layer, const AttentionSpec& spec, const QkvHeads& raw,
                                   const QkPreparation& preparation) {
  const auto& [q, k] = raw.qk;
  if (HasCpuHeads(q) && HasCpuHeads(k) && HasCpuRows(raw.v) && !PlanFor(q, k).is_cut) {
    cache_.Allocate(raw.v);
    return PrepareAndAttendByKernel(spec, raw, preparation, cache_.keys(layer),
                                    cache_.values(layer), *plan_);
  }
  if (is_paged()) {
    const auto pass_for = [this](const AttentionSpec& of) -> const PagedPass& {
      return PagedPassFor(of);
    };
    return PagedDeviceAttention(cache_, pass_for).Attend(layer, spec, raw, preparation);
  }
  return AttendPrepared(layer, spec, PrepareQk(raw.qk, preparation), raw.v);
}

at::Tensor CachedAttention::AttendPrepared(int64_t layer, const AttentionSpec& spec,
                                           const QkHeads& qk, const at::Tensor& v) {
  cache_.Write(layer, new_blocks_, new_places_, qk.k, v);
  if (HasCpuRows(qk.q)) {
    return AttendByKernel(spec, qk.q, cache_.keys(layer), cache_.values(layer),
                          PlanFor(qk.q, qk.k));
  }
  return is_decode_ ? DecodeByGather(spec, qk.q, cache_.keys(layer), cache_.values(layer), rows_)
                    : AttendChunks(layer, spec, qk, v);
}

const at::Tensor& CachedAttention::Blocks(size_t sequence) {
  at::Tensor& blocks = blocks_[sequence];
  if (!blocks.defined()) {
    const std::vector<int32_t>& host = rows_[sequence].kv->blocks;
    blocks = ToDevice({host.begin(), host.end()}, device_);
  }
  return blocks;
}

at::Tensor CachedAttention::AttendChunks(int64_t layer, const AttentionSpec& spec,
                                         const QkHeads& qk, const at::Tensor& v) {
  std::vector<at::Tensor> outputs;
  int64_t begin = 0;
  for (size_t s = 0; s < rows_.size(); ++s) {
    const int64_t n = rows_[s].num_rows;
    const int64_t length = rows_[s].kv->length;
    const bool has_past = n < length;
    outputs.push_back(AttendCausally(
        spec, qk.q.narrow(0, begin, n),
        has_past ? GatherKeys(cache_.keys(layer), Blocks(s), length) : qk.k.narrow(0, begin, n),
        has_past ? GatherValues(cache_.values(layer), Blocks(s), length) : v.narrow(0, begin, n)));
    begin += n;
  }
  return at::cat(outputs, 0);
}

at::Tensor DecodeByGather(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& keys,
                          const at::Tensor& values, const std::vector<CachedRows>& rows) {
  const int64_t num_sequences = q.size(0);
  const int64_t num_kv_heads = keys.size(1);
  const int64_t head_dim = keys.size(2);
  size_t most_blocks = 0;
  for (const CachedRows& row : rows) most_blocks = std::max(most_blocks, row.kv->blocks.size());
  std::vector<int64_t> tables(num_sequences * most_blocks,
                              0);  // padding reads block 0; it is masked below
  std::vector<int64_t> lengths;
  for (size_t s = 0; s < rows.size(); ++s) {
    std::copy(rows[s].kv->blocks.begin(), rows[s].kv->blocks.end(),
              tables.begin() + static_cast<int64_t>(s * most_blocks));
    lengths.push_back(rows[s].kv->length);
  }
  const at::Tensor blocks = ToDevice(tables, q.device());
  const int64_t num_places = static_cast<int64_t>(most_blocks) * KvCache::kBlockTokens;
  const at::Tensor places = at::arange(num_places, blocks.options()).unsqueeze(0);
  const at::Tensor ends = ToDevice(lengths, q.device()).unsqueeze(1);
  const at::Tensor is_padding = places >= ends;
  const at::Tensor is_unseen =
      spec.window == 0 ? is_padding : is_padding.logical_or(places < ends - spec.window);
  const auto by_head = [&](const at::Tensor& gathered) {  // [S, Hk, places, D]
    return gathered.view({num_sequences, num_places, num_kv_heads, head_dim}).transpose(1, 2);
  };
  const int64_t all_places = num_sequences * num_places;
  const at::Tensor k = by_head(GatherKeys(keys, blocks, all_places));
  // Unwritten values are set to 0: they get attention weight 0, but 0 times NaN is NaN.
  const at::Tensor v = by_head(GatherValues(values, blocks, all_places))
                           .masked_fill(is_padding.unsqueeze(1).unsqueeze(3), 0);
  const at::Tensor grouped = q.reshape({num_sequences, num_kv_heads, -1, head_dim});
  const at::Tensor scores = at::matmul(grouped, k.transpose(2, 3))
                                .mul(spec.scale)
                                .masked_fill(is_unseen.unsqueeze(1).unsqueeze(1),
                                             -std::numeric_limits<float>::infinity());
  return at::matmul(at::softmax(scores, -1), v).reshape(q.sizes());
}

}  // namespace lathe::worker

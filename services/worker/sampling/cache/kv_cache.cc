#include "services/worker/sampling/cache/kv_cache.h"

#include <utility>

#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {

int64_t KvCache::ElementBytes(MatmulArithmetic attention) {
  return attention == MatmulArithmetic::kBf16 ? sizeof(uint16_t) : sizeof(float);
}

int64_t KvCache::BytesPerToken(const DecoderSpec& model, MatmulArithmetic attention) {
  int64_t numbers = 0;
  for (const LayerSpec& layer : model.layers) {
    numbers += 2 * layer.attention.num_kv_heads * layer.attention.head_dim;
  }
  return numbers * ElementBytes(attention);
}

int64_t KvCache::CapacityTokens(const DecoderSpec& model, int64_t capacity_bytes,
                                MatmulArithmetic attention) {
  return capacity_bytes / (kBlockTokens * BytesPerToken(model, attention)) * kBlockTokens;
}

KvCache::KvCache(const DecoderSpec& model, int64_t capacity_bytes, MatmulArithmetic attention)
    : num_layers_(model.num_layers()),
      attention_(attention),
      references_(CapacityTokens(model, capacity_bytes, attention) / kBlockTokens, 0),
      is_dropped_(num_blocks()),
      prefixes_(num_blocks()) {
  const int64_t blocks = num_blocks();
  free_.reserve(blocks);
  for (int64_t block = blocks; block > 0; --block) free_.push_back(static_cast<int32_t>(block - 1));
}

int64_t KvCache::BlocksFor(int64_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

int64_t KvCache::BlocksToExtend(const KvSequence& sequence, int64_t num_tokens) {
  return BlocksFor(sequence.length + num_tokens) - static_cast<int64_t>(sequence.blocks.size());
}

bool KvCache::Extend(KvSequence& sequence, int64_t num_tokens) {
  const int64_t wanted = BlocksToExtend(sequence, num_tokens);
  if (wanted > num_free_blocks()) return false;
  std::vector<int32_t> blocks;
  std::vector<int32_t> dropped;
  for (int64_t i = 0; i < wanted; ++i) blocks.push_back(Take(dropped));
  try {
    Clear(dropped);
  } catch (...) {
    // The blocks that are not clear are still marked.
    for (const int32_t block : blocks) {
      references_[block] = 0;
      free_.push_back(block);
    }
    throw;
  }
  sequence.blocks.insert(sequence.blocks.end(), blocks.begin(), blocks.end());
  sequence.length += num_tokens;
  return true;
}

// Takes a free block, or else the least recently used idle block. Adds it to `dropped` if it must
// be cleared; otherwise it is all zeros.
int32_t KvCache::Take(std::vector<int32_t>& dropped) {
  int32_t block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = prefixes_.EvictOldest();
    is_dropped_[block] = true;
    ++num_evictions_;
  }
  if (is_dropped_[block]) dropped.push_back(block);
  references_[block] = 1;
  return block;
}

bool KvCache::Fork(const KvSequence& sequence, KvSequence& copy) {
  const int64_t whole_blocks = sequence.length / kBlockTokens;
  KvSequence forked;
  forked.length = whole_blocks * kBlockTokens;
  forked.num_shareable = sequence.num_shareable;
  forked.blocks.assign(sequence.blocks.begin(), sequence.blocks.begin() + whole_blocks);
  const int64_t rest = sequence.length - forked.length;
  if (!Extend(forked, rest)) return false;
  for (int64_t i = 0; i < whole_blocks; ++i) ++references_[forked.blocks[i]];
  if (rest > 0) {
    const int64_t from = sequence.blocks[whole_blocks];
    const int64_t to = forked.blocks[whole_blocks];
    keys_.select(1, to).copy_(keys_.select(1, from));
    values_.select(1, to).copy_(values_.select(1, from));
  }
  copy = std::move(forked);
  return true;
}

void KvCache::Release(KvSequence& sequence) {
  // Starts from the end, as PrefixCache requires.
  const std::vector<int32_t> blocks = std::exchange(sequence, {}).blocks;
  std::vector<int32_t> freed;
  for (size_t i = blocks.size(); i > 0; --i) Release(blocks[i - 1], freed);
  Clear(freed);
}

// Adds the block to `freed` if nothing uses it any more. The caller clears those. If it cannot, the
// next Take does.
void KvCache::Release(int32_t block, std::vector<int32_t>& freed) {
  if (--references_[block] > 0) return;
  if (prefixes_.IsKnown(block)) return prefixes_.Idle(block);
  is_dropped_[block] = true;
  freed.push_back(block);
  free_.push_back(block);
}

void KvCache::BeginWith(const std::vector<int32_t>& blocks, KvSequence& sequence) {
  for (const int32_t block : blocks) {
    if (references_[block]++ == 0) prefixes_.Use(block);
  }
  const auto num_blocks = static_cast<int64_t>(blocks.size());
  sequence = {.blocks = blocks, .length = num_blocks * kBlockTokens, .num_shareable = num_blocks};
}

void KvCache::Share(const PrefixScope& scope, std::span<const int32_t> tokens,
                    KvSequence& sequence) {
  std::vector<int32_t> freed;
  int64_t& i = sequence.num_shareable;
  for (; i < sequence.length / kBlockTokens; ++i, tokens = tokens.subspan(kBlockTokens)) {
    const int32_t parent = i == 0 ? PrefixCache::kNone : sequence.blocks[i - 1];
    const int32_t own = sequence.blocks[i];
    const int32_t known = prefixes_.Add(scope, parent, tokens.first(kBlockTokens), own);
    if (known == own) continue;
    if (references_[known]++ == 0) prefixes_.Use(known);
    sequence.blocks[i] = known;
    Release(own, freed);
  }
  Clear(freed);
}

void KvCache::DropPrefixes(const std::string& version_id) {
  for (const int32_t block : prefixes_.Drop(version_id)) {
    is_dropped_[block] = true;  // zeroed later, because there may be gigabytes
    free_.push_back(block);
  }
}

// Costs about as much as writing the blocks did, and much less than attention's reads of them. A
// GPU clears all blocks in a few launches.
void KvCache::Clear(const std::vector<int32_t>& blocks) {
  if (blocks.empty()) return;
  if (keys_.defined() && !keys_.is_cpu()) {
    const at::Tensor index =
        at::tensor(blocks, at::kLong).to(keys_.device(), at::kLong, /*non_blocking=*/true);
    keys_.index_fill_(1, index, 0);
    values_.index_fill_(1, index, 0);
  } else if (keys_.defined()) {
    for (const int32_t block : blocks) {
      keys_.select(1, block).zero_();
      values_.select(1, block).zero_();
    }
  }
  for (const int32_t block : blocks) is_dropped_[block] = false;
}

void KvCache::Write(int64_t layer, const at::Tensor& blocks, const at::Tensor& places,
                    const at::Tensor& k, const at::Tensor& v) {
  Allocate(v);
  if (HasCpuRows(k) && HasCpuRows(v)) {
    return is_bf16() ? WriteByKernel<int32_t>(layer, blocks, places, k, v)
                     : WriteByKernel<float>(layer, blocks, places, k, v);
  }
  TORCH_CHECK(!is_bf16(), "a bf16 cache is written by kernels only");
  // The permuted cache is [blocks, kBlockTokens, Hk, D], so the two indices select rows of Hk · D.
  keys(layer).permute({0, 3, 1, 2}).index_put_({blocks, places}, k);
  values(layer).permute({0, 2, 1, 3}).index_put_({blocks, places}, v);
}

void KvCache::Allocate(const at::Tensor& v) {
  if (keys_.defined()) return;
  const int64_t heads = v.size(1);
  const int64_t head_dim = v.size(2);
  if (is_bf16() && !v.is_cpu()) {
    const std::vector<int64_t> sizes = {num_layers_, num_blocks() + 1, heads, kBlockTokens,
                                        head_dim};
    // Filled with zeros: unwritten places get attention weight 0, but 0 times NaN is NaN.
    keys_ = at::zeros(sizes, v.options().dtype(at::kBFloat16));
    values_ = at::zeros_like(keys_);
    return;
  }
  const int64_t in_word = is_bf16() ? kKvWordNumbers : 1;
  const auto options = is_bf16() ? v.options().dtype(at::kInt) : v.options();
  keys_ = at::empty({num_layers_, num_blocks(), heads, head_dim / in_word, kBlockTokens}, options);
  values_ =
      at::empty({num_layers_, num_blocks(), heads, kBlockTokens / in_word, head_dim}, options);
}

template <typename Element>
void KvCache::WriteByKernel(int64_t layer, const at::Tensor& blocks, const at::Tensor& places,
                            const at::Tensor& k, const at::Tensor& v) {
  const int64_t num_heads = k.size(1);
  const int64_t head_dim = k.size(2);
  const int64_t head_size = keys_.size(3) * keys_.size(4);
  const int64_t layer_size = num_blocks() * num_heads * head_size;
  Element* keys = keys_.mutable_data_ptr<Element>() + layer * layer_size;
  Element* values = values_.mutable_data_ptr<Element>() + layer * layer_size;
  const auto* block_of = blocks.const_data_ptr<int64_t>();
  const auto* place_of = places.const_data_ptr<int64_t>();
  const auto write_heads = [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      const float* key = k.const_data_ptr<float>() + head * k.stride(1);
      const float* value = v.const_data_ptr<float>() + head * v.stride(1);
      for (int64_t row = 0; row < k.size(0); ++row) {
        const int64_t offset = (block_of[row] * num_heads + head) * head_size;
        StoreToken(key + row * k.stride(0), value + row * v.stride(0), head_dim, place_of[row],
                   keys + offset, values + offset);
      }
    }
  };
  ForRows(num_heads, k.size(0) * head_dim, write_heads);
}

}  // namespace lathe::worker

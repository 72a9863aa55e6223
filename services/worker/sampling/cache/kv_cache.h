// Keys and values of running sequences, in fixed-size token blocks that sequences may share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/kernels/cpu/attention/kv_block.h"
#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/sampling/cache/prefix_cache.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// The cache blocks of one sequence. Empty before Extend and after Release.
struct KvSequence {
  std::vector<int32_t> blocks;
  int64_t length = 0;         // tokens whose keys and values are, or are about to be, in the cache
  int64_t num_shareable = 0;  // leading blocks that other sequences can find
};

// The paged KV cache of one model, with reference-counted blocks. Executor thread only.
class KvCache {
 public:
  static constexpr int64_t kBlockTokens = kKvBlockTokens;

  // Bytes per number: 2 if attention multiplies in bf16, else 4.
  static int64_t ElementBytes(MatmulArithmetic attention);
  // Bytes per token: keys and values over all layers.
  static int64_t BytesPerToken(const DecoderSpec& model, MatmulArithmetic attention);

  // Number of tokens that fit in `capacity_bytes`, a multiple of kBlockTokens.
  static int64_t CapacityTokens(const DecoderSpec& model, int64_t capacity_bytes,
                                MatmulArithmetic attention);

  // Uses at most `capacity_bytes`. Allocates when the first token is written. On a CPU the memory
  // becomes resident only as blocks are used. `attention` is the model's attention_arithmetic.
  KvCache(const DecoderSpec& model, int64_t capacity_bytes, MatmulArithmetic attention);

  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  // Number of blocks that no sequence uses, idle ones included.
  int64_t num_free_blocks() const {
    return static_cast<int64_t>(free_.size()) + prefixes_.num_idle();
  }
  // Number of unused blocks kept for sequences that begin with the same tokens.
  int64_t num_idle_blocks() const { return prefixes_.num_idle(); }
  // Number of idle blocks reused for other content, since the start.
  int64_t num_evictions() const { return num_evictions_; }
  static int64_t BlocksFor(int64_t num_tokens);
  // Number of blocks that Extend would take for `num_tokens` more tokens.
  static int64_t BlocksToExtend(const KvSequence& sequence, int64_t num_tokens);

  // Reserves space for `num_tokens` more tokens. Returns false, without any change, if too few
  // blocks are free.
  bool Extend(KvSequence& sequence, int64_t num_tokens);

  // Makes `copy` a sequence with the same content: whole blocks are shared, a partly filled last
  // block is copied. Returns false and leaves `copy` alone if the copy needs a block and none is
  // free.
  bool Fork(const KvSequence& sequence, KvSequence& copy);

  // Returns the blocks to the cache and empties `sequence`. A block that is neither shared nor
  // findable is zeroed now; the others are zeroed before reuse. So the next owner of a block, of
  // any tenant, finds no old content in it.
  void Release(KvSequence& sequence);

  // Allocates memory for keys and values shaped like v [T, Hk, D]. No effect if already allocated.
  void Allocate(const at::Tensor& v);

  // Returns known blocks that hold the beginning of `tokens`. Covers whole blocks only.
  std::vector<int32_t> FindPrefix(const PrefixScope& scope, std::span<const int32_t> tokens) const {
    return prefixes_.Find(scope, tokens);
  }
  // Makes an empty sequence start with blocks that FindPrefix has just returned.
  void BeginWith(const std::vector<int32_t>& blocks, KvSequence& sequence);
  // Makes the whole blocks of `sequence` findable. `tokens` are those of the blocks not findable
  // before. If an equal block is already known, it replaces the sequence's own.
  void Share(const PrefixScope& scope, std::span<const int32_t> tokens, KvSequence& sequence);
  // Makes the blocks of this version unfindable. Running sequences keep their blocks and must not
  // be shared again.
  void DropPrefixes(const std::string& version_id);

  // Writes k and v [T, Hk, D] to blocks [T] and places within them [T], both int64.
  void Write(int64_t layer, const at::Tensor& blocks, const at::Tensor& places, const at::Tensor& k,
             const at::Tensor& v);

  MatmulArithmetic attention_arithmetic() const { return attention_; }

  // Block that no sequence uses, for padding rows. Paged caches only.
  int32_t spare_page() const { return static_cast<int32_t>(num_blocks()); }

  // Defined after the first write. A bf16 cache on a GPU has pages [blocks + 1, Hk, kBlockTokens,
  // D] for keys and for values. An fp32 cache has keys [blocks, Hk, D, kBlockTokens] and values
  // [blocks, Hk, kBlockTokens, D]. A bf16 cache on a CPU has int32 words of two bf16 numbers
  // (kv_block.h): keys [blocks, Hk, D / 2, kBlockTokens] and values [blocks, Hk, kBlockTokens / 2,
  // D].
  at::Tensor keys(int64_t layer) const { return keys_[layer]; }
  at::Tensor values(int64_t layer) const { return values_[layer]; }

 private:
  int32_t Take(std::vector<int32_t>& dropped);
  void Release(int32_t block, std::vector<int32_t>& freed);
  void Clear(const std::vector<int32_t>& blocks);
  bool is_bf16() const { return attention_ == MatmulArithmetic::kBf16; }
  template <typename Element>
  void WriteByKernel(int64_t layer, const at::Tensor& blocks, const at::Tensor& places,
                     const at::Tensor& k, const at::Tensor& v);

  int64_t num_layers_;
  MatmulArithmetic attention_;
  std::vector<int32_t> references_;  // by block
  std::vector<int32_t> free_;
  std::vector<bool> is_dropped_;  // by block: no longer idle, zeroed before reuse
  PrefixCache prefixes_;
  int64_t num_evictions_ = 0;
  at::Tensor keys_;  // all layers
  at::Tensor values_;
};

}  // namespace lathe::worker

// Keys and values of running sequences, in fixed-size blocks of tokens that sequences may share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/kernels/cpu/kv_block.h"
#include "services/worker/kernels/cpu/weight_matmul.h"
#include "services/worker/models/model_spec.h"
#include "services/worker/sampling/prefix_cache.h"

namespace lathe::worker {

// One sequence's place in the cache. Empty until Extend; goes back with Release.
struct KvSequence {
  std::vector<int32_t> blocks;
  int64_t length = 0;         // tokens whose keys and values are, or are about to be, in the cache
  int64_t num_shareable = 0;  // leading blocks that other sequences may find
};

// Executor thread only.
class KvCache {
 public:
  static constexpr int64_t kBlockTokens = kKvBlockTokens;

  // Bytes of one number: bf16 where attention multiplies it as such, else fp32.
  static int64_t ElementBytes(MatmulArithmetic attention);
  // Bytes of keys and values of one token over all layers.
  static int64_t BytesPerToken(const ModelSpec& model, MatmulArithmetic attention);

  // That fit into `capacity_bytes`; a multiple of kBlockTokens.
  static int64_t CapacityTokens(const ModelSpec& model, int64_t capacity_bytes,
                                MatmulArithmetic attention);

  // At most `capacity_bytes`; memory is taken when the first token is written, and on a CPU becomes
  // resident only as blocks are used. `attention`: the model's attention_arithmetic.
  KvCache(const ModelSpec& model, int64_t capacity_bytes, MatmulArithmetic attention);

  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  // That no sequence uses, idle ones among them.
  int64_t num_free_blocks() const {
    return static_cast<int64_t>(free_.size()) + prefixes_.num_idle();
  }
  // That no sequence uses, kept for one that begins with the same tokens.
  int64_t num_idle_blocks() const { return prefixes_.num_idle(); }
  // Idle blocks taken for other content, since the start.
  int64_t num_evictions() const { return num_evictions_; }
  static int64_t BlocksFor(int64_t num_tokens);
  // Blocks that Extend would take for `num_tokens` more.
  static int64_t BlocksToExtend(const KvSequence& sequence, int64_t num_tokens);

  // Makes place for `num_tokens` more; false, and nothing changed, when too few blocks are free.
  bool Extend(KvSequence& sequence, int64_t num_tokens);

  // A sequence with the same content: whole blocks are shared, a partly filled last one is copied.
  // False, and `copy` untouched, when that takes a block and none is free.
  bool Fork(const KvSequence& sequence, KvSequence& copy);

  // Gives the blocks back; the sequence is empty afterwards. A block that nobody shares or could
  // find is zeroed now, the others before they are taken for other content: whoever gets one next,
  // of whatever tenant, finds nothing in it.
  void Release(KvSequence& sequence);

  // Memory for keys and values like v [T, Hk, D], unless it is there.
  void Allocate(const at::Tensor& v);

  // Known blocks that hold the beginning of `tokens`, whole blocks only.
  std::vector<int32_t> FindPrefix(const PrefixScope& scope, std::span<const int32_t> tokens) const {
    return prefixes_.Find(scope, tokens);
  }
  // An empty sequence begins with blocks that FindPrefix has just returned.
  void BeginWith(const std::vector<int32_t>& blocks, KvSequence& sequence);
  // Lets others find the whole blocks of `sequence`. `tokens`: of those blocks that they could not
  // find before. A block that is there already takes the place of the sequence's own.
  void Share(const PrefixScope& scope, std::span<const int32_t> tokens, KvSequence& sequence);
  // Nothing of this version is found again. Sequences that run keep their blocks and must not be
  // shared any more.
  void DropPrefixes(const std::string& version_id);

  // k and v [T, Hk, D] to blocks [T] and places within them [T], both int64.
  void Write(int64_t layer, const at::Tensor& blocks, const at::Tensor& places, const at::Tensor& k,
             const at::Tensor& v);

  MatmulArithmetic attention_arithmetic() const { return attention_; }

  // A block of no sequence, for rows that nobody reads. Of caches that lie in pages.
  int32_t spare_page() const { return static_cast<int32_t>(num_blocks()); }

  // Defined once something was written. bf16 on a GPU: pages [blocks + 1, Hk, kBlockTokens, D] of
  // keys and values alike. Else: fp32 [blocks, Hk, D, kBlockTokens] and [blocks, Hk,
  // kBlockTokens, D]; or int32, words of two bf16 numbers (kv_block.h), [blocks, Hk, D / 2,
  // kBlockTokens] and [blocks, Hk, kBlockTokens / 2, D].
  at::Tensor keys(int64_t layer) const { return keys_[layer]; }
  at::Tensor values(int64_t layer) const { return values_[layer]; }

 private:
  int32_t Take();
  void Release(int32_t block);
  void Clear(int32_t block);
  bool is_bf16() const { return attention_ == MatmulArithmetic::kBf16; }
  template <typename Element>
  void WriteByKernel(int64_t layer, const at::Tensor& blocks, const at::Tensor& places,
                     const at::Tensor& k, const at::Tensor& v);

  int64_t num_layers_;
  MatmulArithmetic attention_;
  std::vector<int32_t> references_;  // by block
  std::vector<int32_t> free_;
  std::vector<bool> is_dropped_;  // by block: not idle any more, to be zeroed before use
  PrefixCache prefixes_;
  int64_t num_evictions_ = 0;
  at::Tensor keys_;  // of all layers
  at::Tensor values_;
};

}  // namespace lathe::worker

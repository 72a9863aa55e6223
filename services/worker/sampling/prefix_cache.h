// Which blocks of the KV cache hold the beginning of which token sequences. Free of torch.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/worker/kernels/cpu/kv_block.h"

namespace lathe::worker {

// Keys and values are found again within one scope only: what they depend on besides the tokens,
// and whose they are.
struct PrefixScope {
  std::string tenant_id;
  std::string version_id;    // empty: the base model
  int64_t inflight_seq = 0;  // publication of an inflight version

  friend auto operator<=>(const PrefixScope&, const PrefixScope&) = default;
};

// A block is known by the block before it and its own tokens, all compared: a hash alone proves
// nothing. Blocks that no sequence uses are idle and go in the order of their last use. Whoever
// uses a block uses those before it, and Idle is called from a sequence's end, so a block is never
// evicted before those that follow it.
class PrefixCache {
 public:
  static constexpr int32_t kNone = -1;

  explicit PrefixCache(int64_t num_blocks);

  // The known blocks that hold the first whole blocks of `tokens`.
  std::vector<int32_t> Find(const PrefixScope& scope, std::span<const int32_t> tokens) const;

  // The block that holds `tokens` [kKvBlockTokens] behind `parent` (kNone: at the beginning): from
  // now on `block`, unless another one is known. `parent` is known and of the scope.
  int32_t Add(const PrefixScope& scope, int32_t parent, std::span<const int32_t> tokens,
              int32_t block);

  bool IsKnown(int32_t block) const { return entries_[block].serial != 0; }

  // A sequence begins to use a known block that was idle; the last one stops using it.
  void Use(int32_t block);
  void Idle(int32_t block);

  // Forgets the idle block of the longest ago; kNone: none is idle.
  int32_t EvictOldest();

  // Forgets what every tenant's sequences under this version left. Returns the idle blocks; those
  // in use are no longer known.
  std::vector<int32_t> Drop(const std::string& version_id);

  int64_t num_idle() const { return num_idle_; }

 private:
  // Serials are given once, so one stands for all the tokens up to its block's end.
  struct Key {
    int64_t parent_serial = 0;
    std::array<int32_t, kKvBlockTokens> tokens = {};

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.parent_serial, key.tokens);
    }
  };
  struct Root {
    int64_t serial = 0;
    int64_t num_blocks = 0;
  };
  using Roots = std::map<PrefixScope, Root>;
  struct Entry {
    int64_t serial = 0;  // 0: not known
    Key key;
    Roots::iterator root;
  };

  static Key KeyOf(int64_t parent_serial, std::span<const int32_t> tokens);
  void Forget(int32_t block);
  void Unlink(int32_t block);

  int64_t last_serial_ = 0;
  Roots roots_;
  std::vector<Entry> entries_;  // by block
  absl::flat_hash_map<Key, int32_t> blocks_;
  // A ring of the idle blocks, the oldest behind the sentinel, which is the last element.
  std::vector<int32_t> next_;
  std::vector<int32_t> previous_;
  int64_t num_idle_ = 0;
};

}  // namespace lathe::worker

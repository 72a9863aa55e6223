// Index from token prefixes to the KV cache blocks that hold them. Uses no torch.
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
#include "services/worker/kernels/cpu/attention/kv_block.h"

namespace lathe::worker {

// Scope of reuse: the tenant that owns keys and values, and everything besides the tokens that
// determines them.
struct PrefixScope {
  std::string tenant_id;
  std::string version_id;    // empty: the base model
  int64_t inflight_seq = 0;  // publication of an in-flight version

  friend auto operator<=>(const PrefixScope&, const PrefixScope&) = default;
};

// A block is identified by its parent block and its own tokens. All tokens are compared, because
// equal hashes prove nothing. Unused blocks are idle and are evicted in least-recently-used order.
// A sequence that uses a block also uses the blocks before it, and calls Idle from its end. So a
// block is never evicted before its successors.
class PrefixCache {
 public:
  static constexpr int32_t kNone = -1;

  explicit PrefixCache(int64_t num_blocks);

  // Returns the known blocks that hold the first whole blocks of `tokens`.
  std::vector<int32_t> Find(const PrefixScope& scope, std::span<const int32_t> tokens) const;

  // Registers `block` as the holder of `tokens` [kKvBlockTokens] behind `parent` (kNone: at the
  // beginning). Returns `block`, or the block that is already known for them. `parent` must be
  // known and in `scope`.
  int32_t Add(const PrefixScope& scope, int32_t parent, std::span<const int32_t> tokens,
              int32_t block);

  bool IsKnown(int32_t block) const { return entries_[block].serial != 0; }

  // Use: a sequence starts to use a known block that was idle. Idle: the last such sequence
  // stopped.
  void Use(int32_t block);
  void Idle(int32_t block);

  // Evicts the least recently used idle block. Returns kNone if none is idle.
  int32_t EvictOldest();

  // Forgets the blocks of this version, of every tenant. Returns those that were idle. Blocks still
  // in use become unknown.
  std::vector<int32_t> Drop(const std::string& version_id);

  int64_t num_idle() const { return num_idle_; }

 private:
  // Identifies a block. Serials are unique, so `parent_serial` identifies all earlier tokens.
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
  // Ring of the idle blocks. The last element is the sentinel; the oldest block follows it.
  std::vector<int32_t> next_;
  std::vector<int32_t> previous_;
  int64_t num_idle_ = 0;
};

}  // namespace lathe::worker

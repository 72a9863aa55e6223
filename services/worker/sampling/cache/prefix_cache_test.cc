#include "services/worker/sampling/cache/prefix_cache.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <catch2/catch.hpp>

#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/testing/test_model.h"

namespace lathe::worker {
namespace {

constexpr int64_t kBlock = KvCache::kBlockTokens;

using Tokens = std::vector<int32_t>;
using Prefix = std::pair<PrefixScope, Tokens>;  // tokens up to the end of a block

KvCache CacheOf(int64_t num_blocks) {
  const int64_t token_bytes = KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32);
  return KvCache(SmallSpec(), num_blocks * kBlock * token_bytes, MatmulArithmetic::kFp32);
}

Tokens Repeat(int32_t token, int64_t count) { return Tokens(count, token); }

Tokens Join(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Puts a sequence of `tokens` into the cache and shares its whole blocks.
KvSequence Put(KvCache& cache, const PrefixScope& scope, const Tokens& tokens) {
  KvSequence sequence;
  cache.BeginWith(cache.FindPrefix(scope, tokens), sequence);
  REQUIRE(cache.Extend(sequence, static_cast<int64_t>(tokens.size()) - sequence.length));
  cache.Share(scope, std::span(tokens).subspan(sequence.num_shareable * kBlock), sequence);
  return sequence;
}

TEST_CASE("Prefix cache: only the same tenant, version and publication find a block again",
          "[sampling]") {
  KvCache cache = CacheOf(8);
  const PrefixScope scope{"tenant", "v", 1};
  const Tokens tokens = Join(Repeat(1, kBlock), Repeat(2, kBlock + 3));
  const KvSequence sequence = Put(cache, scope, tokens);
  CHECK(cache.FindPrefix(scope, tokens).size() == 2);
  CHECK(cache.FindPrefix(scope, Repeat(1, 3 * kBlock)) == std::vector{sequence.blocks[0]});
  CHECK(cache.FindPrefix(scope, Repeat(2, kBlock)).empty());
  CHECK(cache.FindPrefix(scope, Repeat(1, kBlock - 1)).empty());
  CHECK(cache.FindPrefix({"other", "v", 1}, tokens).empty());
  CHECK(cache.FindPrefix({"tenant", "", 1}, tokens).empty());
  CHECK(cache.FindPrefix({"tenant", "v", 2}, tokens).empty());
}

TEST_CASE("Prefix cache: two that computed the same tokens end with the same blocks",
          "[sampling]") {
  KvCache cache = CacheOf(8);
  const PrefixScope scope{"t", "", 0};
  const Tokens tokens = Repeat(1, 2 * kBlock);
  KvSequence a, b;
  REQUIRE(cache.Extend(a, 2 * kBlock));
  REQUIRE(cache.Extend(b, 2 * kBlock));
  CHECK(cache.num_free_blocks() == 4);
  cache.Share(scope, tokens, a);
  cache.Share(scope, tokens, b);
  CHECK(a.blocks == b.blocks);
  CHECK(cache.num_free_blocks() == 6);
  cache.Release(a);
  cache.Release(b);
  CHECK(cache.num_idle_blocks() == 2);
  CHECK(cache.num_free_blocks() == 8);
}

TEST_CASE("Prefix cache: an idle block is zeroed before other tokens take it", "[sampling]") {
  KvCache cache = CacheOf(1);
  const PrefixScope scope{"t", "v", 0};
  KvSequence sequence = Put(cache, scope, Repeat(1, kBlock));
  const at::Tensor blocks = at::zeros({kBlock}, at::kLong);
  const at::Tensor ones = at::ones({kBlock, 2, 16});
  cache.Write(0, blocks, at::arange(kBlock), ones, ones);
  cache.Release(sequence);
  CHECK(cache.keys(0).eq(1).all().item<bool>());
  const bool is_dropped = GENERATE(false, true);
  if (is_dropped) cache.DropPrefixes("v");
  REQUIRE(cache.Extend(sequence, 1));
  CHECK(cache.keys(0).count_nonzero().item<int64_t>() == 0);
  CHECK(cache.values(0).count_nonzero().item<int64_t>() == 0);
  CHECK(cache.num_evictions() == (is_dropped ? 0 : 1));
}

// Reference for KvCache with its prefix cache. Identifies each block by all tokens up to its end.
class Reference {
 public:
  explicit Reference(int64_t num_blocks) : num_blocks_(num_blocks) {}

  struct Sequence {
    PrefixScope scope;
    Tokens tokens;
    KvSequence kv;
    bool is_shared = true;  // false once its version was dropped
  };

  // Returns the number of leading whole blocks of `tokens` that are known.
  int64_t NumKnown(const PrefixScope& scope, const Tokens& tokens) const {
    int64_t n = 0;
    while ((n + 1) * kBlock <= std::ssize(tokens) && known_.contains(PrefixOf(scope, tokens, n))) {
      ++n;
    }
    return n;
  }

  void Use(const PrefixScope& scope, const Tokens& tokens, int64_t num_blocks) {
    for (int64_t i = 0; i < num_blocks; ++i) std::erase(idle_, PrefixOf(scope, tokens, i));
  }

  // Returns true if `count` blocks are available. If so, evicts the idle blocks that this takes.
  bool Take(int64_t count) {
    int64_t num_free = num_blocks_ - NumUsed() - std::ssize(idle_);
    if (count > num_free + std::ssize(idle_)) return false;
    for (; num_free < count; ++num_free) {
      known_.erase(idle_.front());
      idle_.pop_front();
      ++num_evictions;
    }
    return true;
  }

  void Share(const Sequence& sequence) {
    const int64_t whole = std::ssize(sequence.tokens) / kBlock;
    for (int64_t i = 0; i < whole; ++i) {
      const Prefix prefix = PrefixOf(sequence.scope, sequence.tokens, i);
      known_.insert(prefix);
      std::erase(idle_, prefix);
    }
  }

  // `gone` must no longer be in `sequences`.
  void Release(const Sequence& gone) {
    for (int64_t i = gone.kv.num_shareable; i > 0; --i) {
      const Prefix prefix = PrefixOf(gone.scope, gone.tokens, i - 1);
      if (known_.contains(prefix) && !IsUsed(prefix)) idle_.push_back(prefix);
    }
  }

  void Drop(const std::string& version_id) {
    const auto is_dropped = [&](const Prefix& p) { return p.first.version_id == version_id; };
    std::erase_if(known_, is_dropped);
    std::erase_if(idle_, is_dropped);
    for (Sequence& sequence : sequences) {
      if (sequence.scope.version_id == version_id) sequence.is_shared = false;
    }
  }

  int64_t NumUsed() const {
    std::set<int32_t> blocks;
    for (const Sequence& sequence : sequences) {
      blocks.insert(sequence.kv.blocks.begin(), sequence.kv.blocks.end());
    }
    return std::ssize(blocks);
  }
  int64_t num_idle() const { return std::ssize(idle_); }

  // Checks block tables: sequences may have a whole block in common only if all tokens up to its
  // end are equal. They never share a partly filled block.
  void CheckTables() const {
    std::map<int32_t, Prefix> content;
    for (const Sequence& sequence : sequences) {
      REQUIRE(sequence.kv.length == std::ssize(sequence.tokens));
      REQUIRE(std::ssize(sequence.kv.blocks) == KvCache::BlocksFor(sequence.kv.length));
      for (size_t i = 0; i < sequence.kv.blocks.size(); ++i) {
        const Prefix prefix = PrefixOf(sequence.scope, sequence.tokens, static_cast<int64_t>(i));
        const auto [it, is_new] = content.emplace(sequence.kv.blocks[i], prefix);
        REQUIRE((it->second == prefix));
        REQUIRE((is_new || std::ssize(prefix.second) % kBlock == 0));
      }
    }
  }

  std::vector<Sequence> sequences;
  int64_t num_evictions = 0;

 private:
  static Prefix PrefixOf(const PrefixScope& scope, const Tokens& tokens, int64_t block) {
    const int64_t end = std::min(std::ssize(tokens), (block + 1) * kBlock);
    return {scope, Tokens(tokens.begin(), tokens.begin() + end)};
  }

  bool IsUsed(const Prefix& prefix) const {
    const int64_t block = std::ssize(prefix.second) / kBlock - 1;
    return std::ranges::any_of(sequences, [&](const Sequence& sequence) {
      return sequence.is_shared && sequence.kv.num_shareable > block &&
             PrefixOf(sequence.scope, sequence.tokens, block) == prefix;
    });
  }

  const int64_t num_blocks_;
  std::set<Prefix> known_;
  std::deque<Prefix> idle_;  // oldest first
};

TEST_CASE("Prefix cache: random use agrees with a reference and loses no block", "[sampling]") {
  const uint32_t seed = GENERATE(range(1u, 41u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % limit); };
  const int64_t num_blocks = 4 + below(16);
  KvCache cache = CacheOf(num_blocks);
  const at::Tensor first = at::zeros({1}, at::kLong);
  cache.Write(0, first, first, at::ones({1, 2, 16}), at::ones({1, 2, 16}));  // allocates
  Reference reference(num_blocks);
  std::vector<Reference::Sequence>& sequences = reference.sequences;

  const auto append = [&](Tokens& tokens) {
    const int64_t count = below(3) == 0 ? 1 + below(kBlock) : kBlock;
    const Tokens more = Repeat(static_cast<int32_t>(below(2)), count);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  // Adds the sequence's missing tokens to the cache and shares its blocks. Returns false if they do
  // not fit.
  const auto grow = [&](Reference::Sequence& sequence) {
    KvSequence& kv = sequence.kv;
    const int64_t count = std::ssize(sequence.tokens) - kv.length;
    const bool fits = cache.Extend(kv, count);
    if (fits && sequence.is_shared) {
      cache.Share(sequence.scope, std::span(sequence.tokens).subspan(kv.num_shareable * kBlock),
                  kv);
    }
    return fits;
  };
  for (int step = 0; step < 300; ++step) {
    const int64_t what = below(10);
    if (what < 4) {  // adds a sequence
      Reference::Sequence sequence;
      sequence.scope = {below(2) == 0 ? "a" : "b", below(3) == 0 ? "v" : "", 0};
      for (int64_t n = 1 + below(5); n > 0; --n) append(sequence.tokens);
      const auto found = cache.FindPrefix(sequence.scope, sequence.tokens);
      REQUIRE(std::ssize(found) == reference.NumKnown(sequence.scope, sequence.tokens));
      cache.BeginWith(found, sequence.kv);
      reference.Use(sequence.scope, sequence.tokens, std::ssize(found));
      sequences.push_back(sequence);
      Reference::Sequence& added = sequences.back();
      const bool should_fit = reference.Take(
          KvCache::BlocksToExtend(added.kv, std::ssize(added.tokens) - added.kv.length));
      REQUIRE(grow(added) == should_fit);
      if (should_fit) {
        reference.Share(added);
      } else {
        Reference::Sequence gone = added;
        sequences.pop_back();
        reference.Release(gone);
        cache.Release(gone.kv);
      }
    } else if (what < 6 && !sequences.empty()) {  // extends a sequence
      Reference::Sequence& sequence = sequences[below(std::ssize(sequences))];
      const Tokens before = sequence.tokens;
      append(sequence.tokens);
      const bool should_fit = reference.Take(
          KvCache::BlocksToExtend(sequence.kv, std::ssize(sequence.tokens) - sequence.kv.length));
      REQUIRE(grow(sequence) == should_fit);
      if (!should_fit) sequence.tokens = before;
      if (should_fit && sequence.is_shared) reference.Share(sequence);
    } else if (what < 7 && !sequences.empty()) {  // forks a sequence
      Reference::Sequence copy = sequences[below(std::ssize(sequences))];
      const KvSequence from = std::exchange(copy.kv, KvSequence());
      const bool should_fit = reference.Take(from.length % kBlock > 0 ? 1 : 0);
      REQUIRE(cache.Fork(from, copy.kv) == should_fit);
      if (should_fit) sequences.push_back(copy);
    } else if (what < 9 && !sequences.empty()) {  // releases a sequence
      const int64_t index = below(std::ssize(sequences));
      Reference::Sequence gone = sequences[index];
      sequences.erase(sequences.begin() + index);
      if (gone.is_shared) reference.Release(gone);
      cache.Release(gone.kv);
    } else if (below(5) == 0) {
      cache.DropPrefixes("v");
      reference.Drop("v");
    }
    reference.CheckTables();
    REQUIRE(cache.num_idle_blocks() == reference.num_idle());
    REQUIRE(cache.num_free_blocks() == num_blocks - reference.NumUsed());
    REQUIRE(cache.num_evictions() == reference.num_evictions);
  }
  for (Reference::Sequence& sequence : sequences) cache.Release(sequence.kv);
  CHECK(cache.num_free_blocks() == num_blocks);
}

}  // namespace
}  // namespace lathe::worker

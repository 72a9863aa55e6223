// Stage "model" of tokenizer.json, type BPE: encodes pieces of text as token ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "libs/common/json/json.h"

namespace lathe::worker {

// Vocabulary and merges of a BPE model. Immutable, usable from any thread.
class BpeModel {
 public:
  // Reads the stage. InvalidArgument names the field that is broken or not supported.
  static absl::StatusOr<BpeModel> Read(const Json& root);

  struct Merge {
    int32_t rank;  // lower ranks are merged first
    int32_t id;    // merged token
  };

 private:
  friend class BpeWords;

  absl::Status ReadVocabulary(const Json& vocabulary);
  absl::Status ReadMerges(const Json& merges);
  absl::Status AddMerge(std::string_view left, std::string_view right, int32_t rank);
  void RecordJoint(std::string_view left, std::string_view right);

  int32_t IdOf(std::string_view token) const;  // -1 if not in the vocabulary
  int32_t IdOfCharacter(std::string_view character) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  bool CanCut(int32_t left, int32_t right) const;

  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by both ids
  // Pairs of adjacent characters that some merge joins, by both ids. No merge crosses the border
  // between other characters.
  absl::flat_hash_set<uint64_t> joints_;
  bool merges_bytes_ = false;  // true if a part of a merge is a byte or the unknown token
  std::array<int32_t, 0x800> short_ids_;  // of one or two byte characters; -1: none
  std::array<int32_t, 256> byte_ids_;     // of "<0x00>" to "<0xFF>"; -1: none
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;  // true if a piece that is a token needs no merges
  bool fuse_unknown_ = false;
  std::optional<std::string> unknown_token_;
  int32_t unknown_id_ = -1;
};

// Encodes one piece after another. Used by one thread; `model` must outlive this object.
class BpeWords {
 public:
  explicit BpeWords(const BpeModel& model) : model_(model) {}

  // Appends the ids of UTF-8 `word`, in O(n log n). InvalidArgument if `word` needs the unknown
  // token, but the vocabulary lacks it.
  absl::Status Append(std::string_view word, std::vector<int32_t>& ids);

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the previous symbol
    int32_t previous;
    int32_t next;  // -1: none
  };
  struct Candidate {
    uint64_t order;  // rank in the high half, position of the left symbol in the low half
    int32_t id;
  };

  absl::Status ReadSymbols(std::string_view word);
  absl::Status AddUnknown(bool& is_pending);
  bool AddBytes(std::string_view character);
  void AddSymbol(int32_t id);
  void Consider(int32_t left);
  void MergeAll();
  void MergeRange(int32_t begin, int32_t end);
  void MergeAt(int32_t left, int32_t id);

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace lathe::worker

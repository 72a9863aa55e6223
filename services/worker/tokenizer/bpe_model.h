// The stage "model" of tokenizer.json, type BPE: pieces of text to token ids.
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

// Immutable, usable from any thread.
class BpeModel {
 public:
  // InvalidArgument naming the field that is broken or not supported.
  static absl::StatusOr<BpeModel> Read(const Json& root);

  struct Merge {
    int32_t rank;  // smaller ones come first
    int32_t id;    // of the token that the pair becomes
  };

 private:
  friend class BpeWords;

  absl::Status ReadVocabulary(const Json& vocabulary);
  absl::Status ReadMerges(const Json& merges);
  absl::Status AddMerge(std::string_view left, std::string_view right, int32_t rank);
  void NoteJoint(std::string_view left, std::string_view right);

  int32_t IdOf(std::string_view token) const;  // -1: not in the vocabulary
  int32_t IdOfCharacter(std::string_view character) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  bool CanCut(int32_t left, int32_t right) const;

  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by both ids
  // Characters side by side inside a merged token, by both ids. No merge reaches over any others.
  absl::flat_hash_set<uint64_t> joints_;
  bool merges_bytes_ = false;  // some merge has a part that is a byte or the unknown token
  std::array<int32_t, 0x800> short_ids_;  // of characters of one or two bytes
  std::array<int32_t, 256> byte_ids_;     // of "<0x00>" to "<0xFF>", -1 for none
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;  // a piece that is a token becomes it whatever the merges say
  bool fuse_unknown_ = false;
  std::optional<std::string> unknown_token_;
  int32_t unknown_id_ = -1;
};

// Encodes one piece after another. For one thread; `model` must outlive it.
class BpeWords {
 public:
  explicit BpeWords(const BpeModel& model) : model_(model) {}

  // Appends the ids of UTF-8 `word`, in O(n log n). InvalidArgument when it needs an unknown token
  // that is not in the vocabulary.
  absl::Status Append(std::string_view word, std::vector<int32_t>& ids);

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;  // -1: the last
  };
  struct Candidate {
    uint64_t order;  // rank, then position of the left symbol
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

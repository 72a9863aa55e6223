// Hot file: Append runs once per piece of a text. It does not allocate once the vectors have grown.
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/bpe_model.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {
namespace {

constexpr int32_t kShortWord = 64;  // longer words are cut

constexpr auto kLaterFirst = [](const auto& a, const auto& b) { return a.order > b.order; };

}  // namespace

void BpeWords::AddSymbol(int32_t id) {
  const auto index = static_cast<int32_t>(symbols_.size());
  if (index > 0) symbols_.back().next = index;
  symbols_.push_back({.id = id, .previous = index - 1, .next = -1});
}

// Adds the tokens of a character's bytes. Returns false, and adds none, if a byte has no token.
bool BpeWords::AddBytes(std::string_view character) {
  const auto& byte_ids = model_.byte_ids_;
  const auto id_of = [&](char byte) { return byte_ids[static_cast<unsigned char>(byte)]; };
  for (const char byte : character) {
    if (id_of(byte) < 0) return false;
  }
  for (const char byte : character) AddSymbol(id_of(byte));
  return true;
}

// Delays the unknown token until the next known character, so that consecutive ones can become one
// token. Byte tokens do not end the delay: Hugging Face puts them before the delayed token.
absl::Status BpeWords::AddUnknown(bool& is_pending) {
  if (!model_.unknown_token_) return absl::OkStatus();
  if (model_.unknown_id_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("unk_token %s is not in the vocabulary", *model_.unknown_token_));
  }
  if (is_pending && !model_.fuse_unknown_) AddSymbol(model_.unknown_id_);
  is_pending = true;
  return absl::OkStatus();
}

absl::Status BpeWords::ReadSymbols(std::string_view word) {
  symbols_.clear();
  bool is_unknown_pending = false;
  for (size_t position = 0; position < word.size();) {
    const std::string_view character = word.substr(position, CharacterBytes(word[position]));
    position += character.size();
    const int32_t id = model_.IdOfCharacter(character);
    if (id >= 0) {
      if (is_unknown_pending) AddSymbol(model_.unknown_id_);
      is_unknown_pending = false;
      AddSymbol(id);
    } else if (!model_.byte_fallback_ || !AddBytes(character)) {
      RETURN_IF_ERROR(AddUnknown(is_unknown_pending));
    }
  }
  if (is_unknown_pending) AddSymbol(model_.unknown_id_);
  return absl::OkStatus();
}

void BpeWords::Consider(int32_t left) {
  const int32_t right = symbols_[left].next;
  if (right < 0) return;
  const BpeModel::Merge* const merge = model_.FindMerge(symbols_[left].id, symbols_[right].id);
  if (merge == nullptr) return;
  heap_.push_back(
      {(uint64_t{static_cast<uint32_t>(merge->rank)} << 32) | static_cast<uint32_t>(left),
       merge->id});
}

void BpeWords::MergeAt(int32_t left, int32_t id) {
  Symbol& symbol = symbols_[left];
  Symbol& right = symbols_[symbol.next];
  symbol.id = id;
  symbol.next = right.next;
  right.id = -1;
  if (right.next >= 0) symbols_[right.next].previous = left;
}

// Merges symbols [begin, end): always the pair with the lowest rank, the leftmost if several tie.
void BpeWords::MergeRange(int32_t begin, int32_t end) {
  heap_.clear();
  for (int32_t left = begin; left < end; ++left) Consider(left);
  std::make_heap(heap_.begin(), heap_.end(), kLaterFirst);
  const auto consider_and_sift = [&](int32_t left) {
    const size_t before = heap_.size();
    Consider(left);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), kLaterFirst);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), kLaterFirst);
    const Candidate best = heap_.back();
    heap_.pop_back();
    const auto left = static_cast<int32_t>(best.order & 0xffffffff);
    const Symbol& symbol = symbols_[left];
    if (symbol.id < 0 || symbol.next < 0) continue;
    // One of the two has become another token since.
    const BpeModel::Merge* const merge = model_.FindMerge(symbol.id, symbols_[symbol.next].id);
    if (merge == nullptr || merge->id != best.id) continue;
    MergeAt(left, best.id);
    if (symbol.previous >= 0) consider_and_sift(symbol.previous);
    consider_and_sift(left);
  }
}

// Cuts long words where no merge can cross, and merges each part separately. A model without
// pre-tokenization gets a whole text as one word; the cuts keep its heap in the CPU cache.
void BpeWords::MergeAll() {
  const auto size = static_cast<int32_t>(symbols_.size());
  int32_t begin = 0;
  for (int32_t next = 1; size > kShortWord && next < size; ++next) {
    if (!model_.CanCut(symbols_[next - 1].id, symbols_[next].id)) continue;
    symbols_[next - 1].next = -1;
    symbols_[next].previous = -1;
    MergeRange(begin, next);
    begin = next;
  }
  MergeRange(begin, size);
}

absl::Status BpeWords::Append(std::string_view word, std::vector<int32_t>& ids) {
  if (model_.ignore_merges_) {
    if (const int32_t id = model_.IdOf(word); id >= 0) {
      ids.push_back(id);
      return absl::OkStatus();
    }
  }
  RETURN_IF_ERROR(ReadSymbols(word));
  MergeAll();
  for (const Symbol& symbol : symbols_) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
  return absl::OkStatus();
}

}  // namespace lathe::worker

#include "services/worker/tokenizer/bpe_model.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// Checks that a prefix or suffix of words is not set. Only models that are neither byte-level nor
// use ▁ have one.
absl::Status CheckIsEmpty(const Component& model, const std::string& field) {
  ASSIGN_OR_RETURN(const std::string text, model.StringOr(field, ""));
  if (text.empty()) return absl::OkStatus();
  return model.Wrong(absl::StrFormat("%s is \"%s\", supported is none", field, text));
}

absl::Status CheckNoDropout(const Component& model) {
  if (!JsonHas(*model.json, "dropout") || model.json->at("dropout") == 0) return absl::OkStatus();
  return model.Wrong("dropout is set: it would make encoding random");
}

absl::Status BadMerge(size_t rank) {
  return absl::InvalidArgumentError(
      absl::StrFormat("model.merges[%d] is not a pair of tokens", rank));
}

}  // namespace

int32_t BpeModel::IdOf(std::string_view token) const {
  const auto found = ids_.find(absl::string_view(token.data(), token.size()));
  return found == ids_.end() ? -1 : found->second;
}

int32_t BpeModel::IdOfCharacter(std::string_view character) const {
  size_t position = 0;
  return character.size() > 2 ? IdOf(character) : short_ids_[NextCharacter(character, position)];
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

bool BpeModel::CanCut(int32_t left, int32_t right) const {
  return !merges_bytes_ && !joints_.contains(PairKey(left, right));
}

absl::Status BpeModel::ReadVocabulary(const Json& vocabulary) {
  if (!vocabulary.is_object()) return absl::InvalidArgumentError("model.vocab is not an object");
  absl::flat_hash_set<int32_t> seen;
  seen.reserve(vocabulary.size());
  ids_.reserve(vocabulary.size());
  short_ids_.fill(-1);
  for (const auto& [token, json_id] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(json_id));
    ids_[token] = id;
    if (!seen.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrFormat("model.vocab has two tokens of id %d", id));
    }
    if (token.empty() || token.size() > 2 || CharacterBytes(token[0]) != token.size()) continue;
    size_t position = 0;
    short_ids_[NextCharacter(token, position)] = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = IdOf(absl::StrFormat("<0x%02X>", byte));
  }
  return absl::OkStatus();
}

// Records the pair of characters that the merge of `left` and `right` joins. A word starts as a
// list of characters, except for bytes and unknown tokens. So a merge joins the last character of
// `left` with the first of `right`, unless a part is a byte or the unknown token.
void BpeModel::RecordJoint(std::string_view left, std::string_view right) {
  const auto is_other = [this](std::string_view part) {
    const bool is_character = !part.empty() && CharacterBytes(part[0]) == part.size();
    return !is_character && (part == unknown_token_ || part.starts_with("<0x"));
  };
  merges_bytes_ =
      merges_bytes_ || left.empty() || right.empty() || is_other(left) || is_other(right);
  if (merges_bytes_) return;
  const std::string_view last = left.substr(CharacterBorder(left, left.size() - 1));
  const std::string_view first = right.substr(0, CharacterBytes(right[0]));
  joints_.insert(PairKey(IdOfCharacter(last), IdOfCharacter(first)));
}

absl::Status BpeModel::AddMerge(std::string_view left, std::string_view right, int32_t rank) {
  const std::string merged = std::string(left) + std::string(right);
  const int32_t left_id = IdOf(left), right_id = IdOf(right), id = IdOf(merged);
  if (left_id < 0 || right_id < 0 || id < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.merges[%d]: \"%s\" and \"%s\" do not make a token of tokens", rank,
                        std::string(left), std::string(right)));
  }
  RecordJoint(left, right);
  merges_.insert_or_assign(PairKey(left_id, right_id), Merge{.rank = rank, .id = id});
  return absl::OkStatus();
}

// Reads the merges. Each is ["a", "b"], or "a b" in older files, whose first entry may be a
// version line.
absl::Status BpeModel::ReadMerges(const Json& merges) {
  merges_.reserve(merges.size());
  int32_t rank = 0;
  for (const Json& merge : merges) {
    if (merge.is_array()) {
      if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
        return BadMerge(rank);
      RETURN_IF_ERROR(AddMerge(merge[0].get_ref<const std::string&>(),
                               merge[1].get_ref<const std::string&>(), rank));
    } else {
      if (!merge.is_string()) return BadMerge(rank);
      const std::string& line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
        return BadMerge(rank);
      }
      const std::string_view text = line;
      RETURN_IF_ERROR(AddMerge(text.substr(0, space), text.substr(space + 1), rank));
    }
    ++rank;
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeModel> BpeModel::Read(const Json& root) {
  if (!JsonHas(root, "model") || !root.at("model").is_object()) {
    return absl::InvalidArgumentError("model is missing");
  }
  const Component component = {.json = &root.at("model"), .where = "model", .type = "BPE"};
  RETURN_IF_ERROR(component.CheckFields({"dropout", "unk_token", "continuing_subword_prefix",
                                         "end_of_word_suffix", "fuse_unk", "byte_fallback",
                                         "ignore_merges", "vocab", "merges"}));
  RETURN_IF_ERROR(CheckNoDropout(component));
  RETURN_IF_ERROR(CheckIsEmpty(component, "continuing_subword_prefix"));
  RETURN_IF_ERROR(CheckIsEmpty(component, "end_of_word_suffix"));
  BpeModel model;
  ASSIGN_OR_RETURN(model.fuse_unknown_, component.BoolOr("fuse_unk", false));
  ASSIGN_OR_RETURN(model.byte_fallback_, component.BoolOr("byte_fallback", false));
  ASSIGN_OR_RETURN(model.ignore_merges_, component.BoolOr("ignore_merges", false));
  if (!JsonHas(*component.json, "vocab")) return component.Wrong("vocab is missing");
  RETURN_IF_ERROR(model.ReadVocabulary(component.json->at("vocab")));
  if (JsonHas(*component.json, "unk_token")) {
    ASSIGN_OR_RETURN(model.unknown_token_, component.String("unk_token"));
    model.unknown_id_ = model.IdOf(*model.unknown_token_);
  }
  ASSIGN_OR_RETURN(const Json* merges, component.Array("merges"));
  RETURN_IF_ERROR(model.ReadMerges(*merges));
  return model;
}

}  // namespace lathe::worker

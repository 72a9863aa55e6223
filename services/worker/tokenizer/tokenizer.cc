#include "services/worker/tokenizer/tokenizer.h"

#include <algorithm>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/added_tokens.h"
#include "services/worker/tokenizer/component.h"

namespace lathe::worker {
namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;

absl::StatusOr<Json> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t num_bytes = std::filesystem::file_size(path, error);
  if (!error && num_bytes > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it has %d bytes, limit is %d", num_bytes, kMaxFileBytes));
  }
  ASSIGN_OR_RETURN(Json json, ReadJsonFile(path));
  if (json.is_object()) return json;
  return absl::InvalidArgumentError("it is not a JSON object");
}

}  // namespace

absl::Status Tokenizer::PutToken(int32_t id, const std::string& token) {
  ASSIGN_OR_RETURN(std::string bytes, decoder_.Bytes(token, /*is_first=*/false));
  ASSIGN_OR_RETURN(std::string first, decoder_.Bytes(token, /*is_first=*/true));
  const auto index = static_cast<size_t>(id);
  if (index >= bytes_.size()) bytes_.resize(index + 1);
  first_bytes_.erase(id);
  if (first != bytes) first_bytes_[id] = std::move(first);
  bytes_[index] = std::move(bytes);
  ids_.insert(id);
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadVocabulary(const Json& root) {
  if (!JsonHas(root, "model")) return absl::InvalidArgumentError("model is missing");
  const Json& model = root.at("model");
  const auto type = JsonString(model, "type");
  if (!type.ok() || *type != "BPE") {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.type is %s, supported is BPE", type.ok() ? *type : "not a string"));
  }
  if (!JsonHas(model, "vocab") || !model.at("vocab").is_object()) {
    return absl::InvalidArgumentError("model.vocab is not an object");
  }
  for (const auto& [token, json_id] : model.at("vocab").items()) {
    ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(json_id));
    RETURN_IF_ERROR(PutToken(id, token));
  }
  return absl::OkStatus();
}

// Reads the added tokens. One that matches in normalized text decodes to its normalized content.
absl::Status Tokenizer::ReadAdded(const Json& root) {
  ASSIGN_OR_RETURN(const std::vector<AddedToken> added, ReadAddedTokens(root));
  for (const AddedToken& token : added) {
    std::string content = token.content;
    if (token.normalized && encoder_.ok()) {
      ASSIGN_OR_RETURN(content, encoder_->normalizer().Apply(content));
    }
    RETURN_IF_ERROR(PutToken(token.id, content));
    if (token.special) special_ids_.insert(token.id);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrFormat("%s: %s", path.string(), std::string(status.message())));
  };
  const absl::StatusOr<Json> root = ReadFile(path);
  if (!root.ok()) return named(root.status());
  absl::StatusOr<TokenDecoder> decoder = TokenDecoder::Read(*root);
  if (!decoder.ok()) return named(decoder.status());
  absl::StatusOr<TextEncoder> encoder = TextEncoder::Read(*root);
  if (!encoder.ok()) encoder = named(encoder.status());
  Tokenizer tokenizer(*std::move(decoder), std::move(encoder));
  if (absl::Status status = tokenizer.ReadVocabulary(*root); !status.ok()) return named(status);
  if (absl::Status status = tokenizer.ReadAdded(*root); !status.ok()) return named(status);
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       bool add_special_tokens) const {
  if (!encoder_.ok()) return encoder_.status();
  return encoder_->Encode(text, add_special_tokens);
}

const std::string& Tokenizer::TokenBytes(int64_t token_id) const {
  static const std::string kNone;
  return token_id >= 0 && token_id < num_ids() ? bytes_[token_id] : kNone;
}

int64_t Tokenizer::num_text_ids() const {
  int64_t num_ids = 0;
  for (const int32_t id : ids_) {
    if (!special_ids_.contains(id)) num_ids = std::max<int64_t>(num_ids, id + 1);
  }
  return num_ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> token_ids, bool skip_special_tokens) const {
  std::string text;
  bool is_first = true;
  for (const int32_t token_id : token_ids) {
    if (!ids_.contains(token_id)) continue;
    if (skip_special_tokens && special_ids_.contains(token_id)) continue;
    const auto first = is_first ? first_bytes_.find(token_id) : first_bytes_.end();
    text += first == first_bytes_.end() ? TokenBytes(token_id) : first->second;
    is_first = false;
  }
  decoder_.Trim(text);
  return text;
}

}  // namespace lathe::worker

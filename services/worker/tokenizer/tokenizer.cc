#include "services/worker/tokenizer/tokenizer.h"

#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokenId = int64_t{1} << 24;  // a broken id must not allocate the machine

// GPT-2's table: printable bytes stand for themselves, the others for U+0100 and up in byte order.
std::map<char32_t, char> ByteByCharacter() {
  std::map<char32_t, char> table;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                              (byte >= 0xae && byte <= 0xff);
    table[is_printable ? static_cast<char32_t>(byte) : next++] = static_cast<char>(byte);
  }
  return table;
}

// One UTF-8 character at `position`, which moves behind it. The JSON parser has checked the text.
char32_t NextCharacter(const std::string& text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(position);
  const int num_bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t character = num_bytes == 1 ? lead : lead & (0x7f >> num_bytes);
  for (int i = 1; i < num_bytes; ++i) character = (character << 6) | (byte(position + i) & 0x3f);
  position += num_bytes;
  return character;
}

// Undoes the byte table. A token with a character outside it is its own text, as HF decodes it.
std::string DecodeByteLevel(const std::string& token, const std::map<char32_t, char>& table) {
  std::string bytes;
  for (size_t position = 0; position < token.size();) {
    const auto found = table.find(NextCharacter(token, position));
    if (found == table.end()) return token;
    bytes.push_back(found->second);
  }
  return bytes;
}

// A file may nest sequences deeper than the stack is.
bool IsByteLevel(const json& decoder) {
  const json* step = &decoder;
  while (step->is_object()) {
    const std::string type = step->value("type", "");
    if (type == "ByteLevel") return true;
    if (type != "Sequence" || !step->contains("decoders")) return false;
    const json& decoders = (*step)["decoders"];
    // Other steps would change the text between tokens.
    if (!decoders.is_array() || decoders.size() != 1) return false;
    step = &decoders[0];
  }
  return false;
}

// The error's text, or nothing.
std::optional<std::string> PutToken(const json& id, std::string content,
                                    std::vector<std::string>& bytes) {
  if (!id.is_number_integer() || id < 0 || id >= kMaxTokenId) {
    return absl::StrFormat("token id is %s, limit is %d", id.dump(), kMaxTokenId - 1);
  }
  const size_t index = id.get<size_t>();
  if (index >= bytes.size()) bytes.resize(index + 1);
  bytes[index] = std::move(content);
  return std::nullopt;
}

std::optional<std::string> ReadTokens(const json& root, std::vector<std::string>& bytes) {
  const json& model = root.at("model");
  if (model.value("type", "") != "BPE") {
    return absl::StrFormat("model.type is %s, supported is \"BPE\"",
                           model.value("type", json()).dump());
  }
  if (!IsByteLevel(root.at("decoder"))) return "decoder is not ByteLevel";
  const std::map<char32_t, char> table = ByteByCharacter();
  for (const auto& [token, id] : model.at("vocab").items()) {
    if (auto error = PutToken(id, DecodeByteLevel(token, table), bytes)) return error;
  }
  if (!root.contains("added_tokens")) return std::nullopt;
  for (const json& added : root.at("added_tokens")) {
    if (auto error = PutToken(added.at("id"), added.at("content"), bytes)) return error;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrFormat("%s: cannot open", path.string()));
  std::vector<std::string> bytes;
  try {
    if (const auto error = ReadTokens(json::parse(file), bytes)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path.string(), *error));
    }
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path.string(), error.what()));
  }
  return Tokenizer(std::move(bytes));
}

const std::string& Tokenizer::TokenBytes(int64_t token_id) const {
  static const std::string kNone;
  return token_id >= 0 && token_id < num_ids() ? bytes_[token_id] : kNone;
}

std::string Tokenizer::Decode(const std::vector<int32_t>& token_ids) const {
  std::string text;
  for (const int32_t token_id : token_ids) text += TokenBytes(token_id);
  return text;
}

}  // namespace lathe::worker

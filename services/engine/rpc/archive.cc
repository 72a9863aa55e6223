#include "services/engine/rpc/archive.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/invalid.h"
#include "services/engine/rpc/row_convert.h"

namespace lathe::engine {
namespace {

struct ListedFile {
  const char* name;
  bool is_required;
};

// What an archive may hold, in this order (tinker-api 20.3). Only training checkpoints have
// optimizer state.
constexpr ListedFile kFiles[] = {{"adapter_config.json", true},
                                 {"adapter_model.safetensors", true},
                                 {"checkpoint_complete", true},
                                 {"optimizer.safetensors", false}};

// What a token says: "{unix seconds of its end}\n{dir}\n{file name}".
struct Claim {
  int64_t expires_at = 0;
  std::string dir;
  std::string file_name;
};

std::string Encode(const Claim& claim) {
  return absl::StrCat(claim.expires_at, "\n", claim.dir, "\n", claim.file_name);
}

absl::Status BadToken() {
  return Invalid("bad_token", "token", "the archive token was not made by this server");
}

absl::StatusOr<Claim> Decode(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  Claim claim;
  if (lines.size() != 3 || !absl::SimpleAtoi(lines[0], &claim.expires_at)) return BadToken();
  claim.dir = lines[1];
  claim.file_name = lines[2];
  return claim;
}

// Colons and slashes are awkward in file names.
std::string FileName(const CheckpointRow& row) {
  std::string name = absl::StrCat(row.model_id, "-", row.name, ".tar");
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '/' || c == '\n'; }, '_');
  return name;
}

}  // namespace

ArchiveSigner::ArchiveSigner(std::string secret, std::filesystem::path checkpoints_dir,
                             Clock& clock)
    : secret_(std::move(secret)), checkpoints_dir_(std::move(checkpoints_dir)), clock_(clock) {}

absl::StatusOr<v1::DescribeArchiveResponse> ArchiveSigner::Describe(const CheckpointRow& row) {
  RETURN_IF_ERROR(ListFiles(row.dir).status());
  const absl::Time expires_at = clock_.Now() + kLifetime;
  const std::string claim = Encode(
      {.expires_at = absl::ToUnixSeconds(expires_at), .dir = row.dir, .file_name = FileName(row)});
  v1::DescribeArchiveResponse response;
  response.set_token(absl::StrCat(absl::WebSafeBase64Escape(claim), ".",
                                  absl::WebSafeBase64Escape(HmacSha256(secret_, claim))));
  *response.mutable_expires_at() = ToTimestamp(absl::ToUnixNanos(expires_at));
  response.set_file_name(FileName(row));
  return response;
}

absl::StatusOr<v1::OpenArchiveResponse> ArchiveSigner::Open(const std::string& token) {
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  std::string text;
  std::string signature;
  if (parts.size() != 2 || !absl::WebSafeBase64Unescape(parts[0], &text) ||
      !absl::WebSafeBase64Unescape(parts[1], &signature) ||
      !EqualInConstantTime(signature, HmacSha256(secret_, text))) {
    return BadToken();
  }
  ASSIGN_OR_RETURN(const Claim claim, Decode(text));
  if (absl::ToUnixSeconds(clock_.Now()) >= claim.expires_at) {
    return WithDetail(absl::OutOfRangeError("the archive link has expired; ask for a new one"),
                      "link_expired", "token");
  }
  ASSIGN_OR_RETURN(v1::OpenArchiveResponse response, ListFiles(claim.dir));
  response.set_file_name(claim.file_name);
  return response;
}

absl::StatusOr<v1::OpenArchiveResponse> ArchiveSigner::ListFiles(const std::string& dir) const {
  v1::OpenArchiveResponse response;
  const std::filesystem::path path = checkpoints_dir_ / dir;
  response.set_dir(path.string());
  for (const ListedFile& listed : kFiles) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path / listed.name, error);
    if (error && !listed.is_required) continue;
    if (error) {
      return WithDetail(absl::NotFoundError(absl::StrFormat(
                            "the checkpoint's file %s is missing on the server", listed.name)),
                        "checkpoint_missing", "tinker_path");
    }
    v1::ArchiveFile* file = response.add_files();
    file->set_name(listed.name);
    file->set_size_bytes(static_cast<int64_t>(size));
  }
  return response;
}

}  // namespace lathe::engine

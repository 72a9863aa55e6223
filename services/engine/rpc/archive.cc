#include "services/engine/rpc/archive.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

struct ListedFile {
  const char* name;
  bool is_required;
};

// Files of an archive, in order. Only training checkpoints have optimizer state.
constexpr ListedFile kFiles[] = {{"adapter_config.json", true},
                                 {"adapter_model.safetensors", true},
                                 {"checkpoint_complete", true},
                                 {"optimizer.safetensors", false}};

constexpr const char* kExternalFiles[] = {"adapter_config.json", "adapter_model.safetensors"};
constexpr char kEncryptedSuffix[] = ".age";

absl::Status BadToken() {
  return Invalid("bad_token", "token", "the archive token was not made by this server");
}

absl::Status MissingFile(const std::string& name) {
  return WithDetail(absl::NotFoundError(
                        absl::StrFormat("the checkpoint's file %s is missing on the server", name)),
                    "checkpoint_missing", "tinker_path");
}

// Replaces colons and slashes, which are awkward in file names.
std::string FileName(const CheckpointRow& row) {
  std::string name = absl::StrCat(row.model_id, "-", row.name, ".tar");
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '/' || c == '\n'; }, '_');
  return name;
}

}  // namespace

ArchiveSigner::ArchiveSigner(std::string secret, CheckpointDirs& dirs, Clock& clock)
    : signer_(secret, "archive"), dirs_(dirs), clock_(clock) {}

// Signs one field a line, in the order of Link.
std::string ArchiveSigner::Sign(const Link& link) const {
  return signer_.Sign(absl::StrCat(link.expires_at, "\n", link.key_id, "\n", link.tinker_path, "\n",
                                   link.dir, "\n", link.member));
}

absl::StatusOr<ArchiveSigner::Link> ArchiveSigner::Verify(const std::string& token) const {
  const std::optional<std::string> text = signer_.Verify(token);
  std::vector<std::string> lines;
  if (text) lines = absl::StrSplit(*text, '\n');
  Link link;
  if (lines.size() != 5 || !absl::SimpleAtoi(lines[0], &link.expires_at)) return BadToken();
  if (absl::ToUnixSeconds(clock_.Now()) >= link.expires_at) {
    return WithDetail(absl::OutOfRangeError("the archive link has expired; ask for a new one"),
                      "link_expired", "token");
  }
  link.key_id = lines[1];
  link.tinker_path = lines[2];
  link.dir = lines[3];
  link.member = lines[4];
  return link;
}

absl::StatusOr<v1::DescribeArchiveResponse> ArchiveSigner::Describe(const CheckpointRow& row,
                                                                    const std::string& key_id) {
  if (row.kind == CheckpointKind::kExternal) {
    return Invalid(
        "incompatible_checkpoint", "tinker_path",
        absl::StrFormat("%s has no archive; ask for its external_weights_urls", row.tinker_path));
  }
  RETURN_IF_ERROR(ListFiles(row.dir).status());
  const absl::Time expires_at = clock_.Now() + kLifetime;
  v1::DescribeArchiveResponse response;
  response.set_token(Sign({.expires_at = absl::ToUnixSeconds(expires_at),
                           .key_id = key_id,
                           .tinker_path = row.tinker_path,
                           .dir = row.dir,
                           .member = ""}));
  *response.mutable_expires_at() = ToTimestamp(absl::ToUnixNanos(expires_at));
  response.set_file_name(FileName(row));
  return response;
}

absl::StatusOr<v1::DescribeExternalWeightsResponse> ArchiveSigner::DescribeFiles(
    const CheckpointRow& row, const std::string& key_id) {
  if (row.kind != CheckpointKind::kExternal) {
    return Invalid("incompatible_checkpoint", "tinker_path",
                   absl::StrFormat("%s is no external_weights checkpoint; make one with "
                                   "save_weights_external",
                                   row.tinker_path));
  }
  absl::Time expires_at = clock_.Now() + kLifetime;
  if (row.expires_at != 0) expires_at = std::min(expires_at, absl::FromUnixNanos(row.expires_at));
  v1::DescribeExternalWeightsResponse response;
  *response.mutable_expires_at() = ToTimestamp(absl::ToUnixNanos(expires_at));
  for (const char* plain_name : kExternalFiles) {
    std::string name = plain_name;
    ASSIGN_OR_RETURN(std::optional<int64_t> size, SizeOf(row.dir, name));
    if (!size) {
      name += kEncryptedSuffix;
      ASSIGN_OR_RETURN(size, SizeOf(row.dir, name));
    }
    if (!size) return MissingFile(plain_name);
    v1::ExternalFile* file = response.add_files();
    file->set_token(Sign({.expires_at = absl::ToUnixSeconds(expires_at),
                          .key_id = key_id,
                          .tinker_path = row.tinker_path,
                          .dir = row.dir,
                          .member = name}));
    file->set_size_bytes(*size);
    file->set_name(std::move(name));
  }
  return response;
}

absl::StatusOr<v1::OpenArchiveResponse> ArchiveSigner::Open(const Link& link,
                                                            const CheckpointRow& row) const {
  if (link.dir != row.dir) {
    return WithDetail(absl::NotFoundError("the checkpoint was replaced after the link was made"),
                      "checkpoint_missing", "token");
  }
  if (link.member.empty()) {
    ASSIGN_OR_RETURN(v1::OpenArchiveResponse response, ListFiles(link.dir));
    response.set_file_name(FileName(row));
    return response;
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> size, SizeOf(link.dir, link.member));
  if (!size) return MissingFile(link.member);
  v1::OpenArchiveResponse response;
  response.set_dir(link.dir);
  response.set_is_plain(true);
  response.set_file_name(link.member);
  response.add_files()->set_name(link.member);
  response.mutable_files(0)->set_size_bytes(*size);
  return response;
}

absl::StatusOr<v1::OpenArchiveResponse> ArchiveSigner::ListFiles(const std::string& dir) const {
  v1::OpenArchiveResponse response;
  response.set_dir(dir);
  for (const ListedFile& listed : kFiles) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> size, SizeOf(dir, listed.name));
    if (!size && listed.is_required) return MissingFile(listed.name);
    if (!size) continue;
    v1::ArchiveFile* file = response.add_files();
    file->set_name(listed.name);
    file->set_size_bytes(*size);
  }
  return response;
}

absl::StatusOr<std::optional<int64_t>> ArchiveSigner::SizeOf(const std::string& dir,
                                                             const std::string& name) const {
  const absl::StatusOr<int64_t> size = dirs_.SizeOf(dir, name);
  if (size.ok()) return std::optional<int64_t>(*size);
  if (absl::IsNotFound(size.status())) return std::optional<int64_t>();
  return size.status();
}

}  // namespace lathe::engine

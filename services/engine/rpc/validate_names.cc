#include "services/engine/rpc/validate_names.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/common/age/age.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxProjectIdBytes = 256;
constexpr int64_t kMaxTtlSeconds = int64_t{3653} * 24 * 3600;
constexpr int kMaxMetadataNames = 64;
constexpr size_t kMaxMetadataBytes = 16 * 1024;
constexpr int64_t kDefaultPage = 20;
constexpr int64_t kMaxPage = 1000;

constexpr char kNameCharacters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

constexpr char kProjectCharacters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         name.find_first_not_of(kNameCharacters) == std::string::npos;
}

}  // namespace

absl::Status ValidateName(const std::string& name, const std::string& field) {
  if (IsName(name)) return absl::OkStatus();
  return Invalid(
      "bad_name", field,
      absl::StrFormat("%s is '%s', expected 1 to %d of A-Z a-z 0-9 . _ - without a "
                      "leading dot",
                      field, absl::CHexEscape(name.substr(0, kMaxNameBytes)), kMaxNameBytes));
}

absl::Status ValidateProjectId(const std::string& project_id, const std::string& field) {
  if (!project_id.empty() && project_id.size() <= kMaxProjectIdBytes && project_id[0] != '.' &&
      project_id.find_first_not_of(kProjectCharacters) == std::string::npos) {
    return absl::OkStatus();
  }
  return Invalid(
      "bad_project", field,
      absl::StrFormat("%s is '%s' of %d bytes, expected 1 to %d of A-Z a-z 0-9 . _ : - without a "
                      "leading dot",
                      field, absl::CHexEscape(project_id.substr(0, kMaxProjectIdBytes)),
                      project_id.size(), kMaxProjectIdBytes));
}

absl::Status ValidateTinkerPath(const std::string& path, const std::string& field) {
  absl::string_view rest = path;
  const bool has_scheme = absl::ConsumePrefix(&rest, "tinker://");
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  if (has_scheme && parts.size() == 3 && !parts[0].empty() &&
      (parts[1] == "weights" || parts[1] == "sampler_weights" || parts[1] == "external_weights") &&
      IsName(parts[2])) {
    return absl::OkStatus();
  }
  return Invalid("bad_path", field,
                 absl::StrFormat("%s is '%s', expected tinker://{training_run_id}/{kind}/{name} "
                                 "with kind weights, sampler_weights or external_weights",
                                 field, absl::CHexEscape(path.substr(0, 512))));
}

absl::Status ValidateTtl(int64_t ttl_seconds) {
  if (ttl_seconds >= 1 && ttl_seconds <= kMaxTtlSeconds) return absl::OkStatus();
  return Invalid("bad_ttl", "ttl_seconds",
                 absl::StrFormat("ttl_seconds is %d, expected 1 to %d (ten years)", ttl_seconds,
                                 kMaxTtlSeconds));
}

absl::StatusOr<Metadata> ValidateMetadata(
    const google::protobuf::RepeatedPtrField<v1::NamedString>& metadata) {
  constexpr char kField[] = "user_metadata";
  if (metadata.size() > kMaxMetadataNames) {
    return Invalid("bad_metadata", kField,
                   absl::StrFormat("user_metadata has %d names, limit is %d", metadata.size(),
                                   kMaxMetadataNames));
  }
  Metadata sorted;
  size_t bytes = 0;
  for (const v1::NamedString& entry : metadata) {
    bytes += entry.name().size() + entry.value().size();
    sorted.emplace_back(entry.name(), entry.value());
  }
  if (bytes > kMaxMetadataBytes) {
    return Invalid(
        "bad_metadata", kField,
        absl::StrFormat("user_metadata has %d bytes, limit is %d", bytes, kMaxMetadataBytes));
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != sorted.end()) {
    return Invalid("bad_metadata", kField,
                   absl::StrFormat("user_metadata has '%s' twice", twice->first));
  }
  return sorted;
}

absl::Status ValidateText(const std::string& text, size_t max_bytes, const std::string& field) {
  if (text.size() <= max_bytes) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s has %d bytes, limit is %d", field, text.size(), max_bytes));
}

absl::Status ValidateSeq(int64_t seq, const std::string& field) {
  if (seq >= 0) return absl::OkStatus();
  return Invalid("bad_seq_id", field, absl::StrFormat("%s is %d, expected at least 0", field, seq));
}

absl::Status ValidateTrainSeq(int64_t seq_id) {
  constexpr int64_t kMaxSeqId = std::numeric_limits<int32_t>::max();
  if (seq_id >= 0 && seq_id <= kMaxSeqId) return absl::OkStatus();
  return Invalid("bad_seq_id", "seq_id",
                 absl::StrFormat("seq_id is %d, expected 0 to %d", seq_id, kMaxSeqId));
}

absl::StatusOr<PageBounds> ValidatePage(int64_t limit, int64_t offset) {
  if (limit < 0 || limit > kMaxPage) {
    return Invalid("bad_page", "limit",
                   absl::StrFormat("limit is %d, expected 1 to %d", limit, kMaxPage));
  }
  if (offset < 0) {
    return Invalid("bad_page", "offset",
                   absl::StrFormat("offset is %d, expected at least 0", offset));
  }
  return PageBounds{.limit = limit == 0 ? kDefaultPage : limit, .offset = offset};
}

namespace {

constexpr int kMaxRecipients = 10;
constexpr char kRecipientsField[] = "age_encryption_recipients";

}  // namespace

absl::StatusOr<std::vector<std::string>> ValidateAgeRecipients(
    const google::protobuf::RepeatedPtrField<std::string>& recipients) {
  if (recipients.size() > kMaxRecipients) {
    return Invalid("bad_recipient", kRecipientsField,
                   absl::StrFormat("age_encryption_recipients has %d entries, limit is %d",
                                   recipients.size(), kMaxRecipients));
  }
  for (int i = 0; i < recipients.size(); ++i) {
    const absl::Status status = ParseAgeRecipient(recipients[i]).status();
    if (status.ok()) continue;
    return Invalid("bad_recipient", kRecipientsField,
                   absl::StrFormat("age_encryption_recipients[%d] cannot be used: %s", i,
                                   std::string(status.message())));
  }
  return std::vector<std::string>(recipients.begin(), recipients.end());
}

}  // namespace lathe::engine

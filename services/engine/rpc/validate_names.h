// Validation of names, paths, lifetimes, metadata and pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A checkpoint's name: [A-Za-z0-9._-]{1,128} without a leading dot. Error: bad_name.
absl::Status ValidateName(const std::string& name, const std::string& field);

// A project's id: [A-Za-z0-9._:-]{1,256} without a leading dot. Error: bad_project.
absl::Status ValidateProjectId(const std::string& project_id, const std::string& field);

// tinker://{run}/{weights|sampler_weights|external_weights}/{name}. Error: bad_path with the
// expected form.
absl::Status ValidateTinkerPath(const std::string& path, const std::string& field);

// 1 s to ten years. Error: bad_ttl.
absl::Status ValidateTtl(int64_t ttl_seconds);

// Returns the entries sorted by name. At most 64, 16 KiB in all, no duplicate names. Error:
// bad_metadata.
absl::StatusOr<Metadata> ValidateMetadata(
    const google::protobuf::RepeatedPtrField<v1::NamedString>& metadata);

// Bound of names, reasons and other short texts about a session.
inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxIdempotencyKeyBytes = 256;

// Accepts a text of at most `max_bytes`. Error: invalid_field.
absl::Status ValidateText(const std::string& text, size_t max_bytes, const std::string& field);

// Accepts a sequence number of the caller that is not negative. Error: bad_seq_id.
absl::Status ValidateSeq(int64_t seq, const std::string& field);

// Validates the seq_id of a model's operation, which is an int32 on the wire. Error: bad_seq_id.
absl::Status ValidateTrainSeq(int64_t seq_id);

struct PageBounds {
  int64_t limit = 0;
  int64_t offset = 0;
};
// Accepts a limit of 1 to 1,000 (0: 20) and an offset that is not negative. Error: bad_page.
absl::StatusOr<PageBounds> ValidatePage(int64_t limit, int64_t offset);

// Returns the rows of the page, which borrow from `rows`. The bounds are valid.
template <typename Row>
std::span<const Row> PageOf(const std::vector<Row>& rows, const PageBounds& page) {
  const std::span<const Row> all(rows);
  const size_t begin = std::min(all.size(), static_cast<size_t>(page.offset));
  return all.subspan(begin, std::min(all.size() - begin, static_cast<size_t>(page.limit)));
}

// Accepts at most 10 X25519 keys, "age1…". Error: bad_recipient, naming the invalid key and the
// reason.
absl::StatusOr<std::vector<std::string>> ValidateAgeRecipients(
    const google::protobuf::RepeatedPtrField<std::string>& recipients);

}  // namespace lathe::engine

// Validation of the recipients for whom exported files are encrypted.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace lathe::engine {

// Accepts at most 10 X25519 keys, "age1…". Error: bad_recipient, naming the invalid key and the
// reason.
absl::StatusOr<std::vector<std::string>> ValidateAgeRecipients(
    const google::protobuf::RepeatedPtrField<std::string>& recipients);

}  // namespace lathe::engine

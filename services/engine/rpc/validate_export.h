// Who exported files are encrypted to.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace lathe::engine {

// At most 10 X25519 keys, "age1…". Error: bad_recipient, naming the one that is wrong and why.
absl::StatusOr<std::vector<std::string>> ValidateAgeRecipients(
    const google::protobuf::RepeatedPtrField<std::string>& recipients);

}  // namespace lathe::engine

#include "libs/common/age/age_recipient.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/age/bech32.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe {

absl::StatusOr<AgeRecipient> ParseAgeRecipient(std::string_view text) {
  if (absl::StartsWith(AbslView(text), "ssh-")) {
    return absl::InvalidArgumentError(
        "SSH keys are not supported as recipients; give an X25519 key (age1…)");
  }
  ASSIGN_OR_RETURN(const std::string bytes, DecodeBech32(text, "age"));
  AgeRecipient recipient;
  if (bytes.size() != recipient.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an X25519 key has %d bytes, this has %d", recipient.size(), bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), recipient.begin());
  return recipient;
}

}  // namespace lathe

#include "services/engine/rpc/validate_export.h"

#include "absl/strings/str_format.h"
#include "libs/common/age/age_recipient.h"
#include "services/engine/rpc/invalid.h"

namespace lathe::engine {
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

#include "services/engine/rpc/quota_proto.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/invalid.h"

namespace lathe::engine {
namespace {

absl::Status Set(bool is_given, int64_t value, const char* name, int64_t& field) {
  if (!is_given) return absl::OkStatus();
  if (value < 0) {
    return Invalid("invalid_field", name,
                   absl::StrFormat("%s is %d, expected 0 (no limit) or more", name, value));
  }
  field = value;
  return absl::OkStatus();
}

}  // namespace

v1::Quota ToProto(const QuotaRow& row) {
  v1::Quota quota;
  quota.set_requests_per_minute(row.requests_per_minute);
  quota.set_tokens_per_minute(row.tokens_per_minute);
  quota.set_queued_bytes(row.queued_bytes);
  quota.set_stored_bytes(row.stored_bytes);
  quota.set_adapters(row.adapters);
  return quota;
}

absl::StatusOr<QuotaRow> WithQuota(QuotaRow row, const v1::Quota& quota) {
  RETURN_IF_ERROR(Set(quota.has_requests_per_minute(), quota.requests_per_minute(),
                      "requests_per_minute", row.requests_per_minute));
  RETURN_IF_ERROR(Set(quota.has_tokens_per_minute(), quota.tokens_per_minute(), "tokens_per_minute",
                      row.tokens_per_minute));
  RETURN_IF_ERROR(
      Set(quota.has_queued_bytes(), quota.queued_bytes(), "queued_bytes", row.queued_bytes));
  RETURN_IF_ERROR(
      Set(quota.has_stored_bytes(), quota.stored_bytes(), "stored_bytes", row.stored_bytes));
  RETURN_IF_ERROR(Set(quota.has_adapters(), quota.adapters(), "adapters", row.adapters));
  return row;
}

}  // namespace lathe::engine

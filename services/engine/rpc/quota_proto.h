// Conversion between quotas and messages.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

v1::Quota ToProto(const QuotaRow& row);

// Returns `row` with the fields that `quota` sets. InvalidArgument: a value is negative.
absl::StatusOr<QuotaRow> WithQuota(QuotaRow row, const v1::Quota& quota);

}  // namespace lathe::engine

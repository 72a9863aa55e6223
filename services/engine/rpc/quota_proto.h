// Quotas as messages.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

v1::Quota ToProto(const QuotaRow& row);

// `row` with the fields that `quota` sets. InvalidArgument naming a negative one.
absl::StatusOr<QuotaRow> WithQuota(QuotaRow row, const v1::Quota& quota);

}  // namespace lathe::engine

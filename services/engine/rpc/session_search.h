// A search of sessions: message to query, rows to message.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/accounts.pb.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Checked; its limit is that of the page, the place of its cursor as given. InvalidArgument names
// the field that is wrong.
absl::StatusOr<SessionQuery> ToQuery(const v1::SearchSessionsRequest& request);

// Whether `owner`, who is all that can be found, is whom the request asks for.
bool AsksFor(const v1::SearchSessionsRequest& request, const std::string& owner);

v1::SessionSummary ToSummary(const SessionRow& row, const StoredUse& use, const std::string& owner);

}  // namespace lathe::engine

// Session search: conversion of requests to queries and of rows to messages.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/accounts.pb.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Validates a request and converts it to a query with the page's limit and the cursor's position as
// given. InvalidArgument names the invalid field.
absl::StatusOr<SessionQuery> ToQuery(const v1::SearchSessionsRequest& request);

// Returns true if the request's owner condition matches `owner`, the only owner that can be found.
bool AsksFor(const v1::SearchSessionsRequest& request, const std::string& owner);

v1::SessionSummary ToSummary(const SessionRow& row, const StoredUse& use, const std::string& owner);

}  // namespace lathe::engine

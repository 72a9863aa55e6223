// Checks and options that the gateway's tests share.
#pragma once

#include <string>

#include <catch2/catch.hpp>

#include "libs/common/json/json.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {

// Checks that the server still serves other clients.
inline void CheckAlive(const RunningGateway& gateway) {
  CHECK(HttpClient(gateway.port()).Exchange("GET", "/api/v1/healthz").status == 200);
}

// Returns the error word of a refusal.
inline std::string CodeOf(const HttpAnswer& answer) {
  return Json::parse(answer.body)["error"]["code"].get<std::string>();
}

// Returns options under which polls wait at most `hold` for a result.
inline GatewayOptions HoldFor(absl::Duration hold) {
  GatewayOptions options;
  options.routes.poll_hold = hold;
  return options;
}

}  // namespace lathe::gateway

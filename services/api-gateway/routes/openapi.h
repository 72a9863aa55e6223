// The OpenAPI document, made from the route table.
#pragma once

#include <string>
#include <vector>

#include "services/api-gateway/http/router.h"

namespace lathe::gateway {

// Returns docs_page/openapi.json, which has everything but the paths, with the paths of `routes`.
std::string OpenApiDocument(const std::vector<Route>& routes);

}  // namespace lathe::gateway

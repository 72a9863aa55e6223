// The table of what the gateway serves. What is not in it is refused.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

enum class Access {
  // A key that the engine knows.
  kKey,
  // The same, but while the engine cannot be asked any key passes. For routes that must not fail
  // during an engine restart and that reveal nothing by themselves.
  kKeyUnlessEngineDown,
  kPublic,
};

// Runs on the connection's executor; `request` lives until the response was made.
using Handler = std::function<asio::awaitable<absl::StatusOr<Response>>(Request& request)>;

struct Route {
  std::string method;
  // Segments, of which `{name}` matches any one: "/api/v1/sessions/{id}".
  std::string pattern;
  Access access = Access::kKey;
  // Of the body as sent.
  int64_t max_body_bytes = 1 << 20;
  // Whether answers carry the notices to clients. The SDK logs every one it sees: for routes that
  // a program calls when it starts, or every few minutes.
  bool carries_notices = false;
  Handler handler;
};

class Router {
 public:
  explicit Router(std::vector<Route> routes);

  struct Match {
    const Route* route = nullptr;
    std::vector<std::string> path_parameters;
  };
  // HEAD finds the routes of GET. NotFound `unknown_route` with the nearest pattern, or
  // InvalidArgument `method_not_allowed` whose field is the value of the Allow header.
  absl::StatusOr<Match> Find(std::string_view method, std::string_view path,
                             const std::vector<std::string>& segments) const;

  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  // Of each route, split.
  std::vector<std::vector<std::string>> patterns_;
};

}  // namespace lathe::gateway

// The table of the routes that the gateway serves. Requests for other paths are refused.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

enum class Access {
  // The route needs a key that the engine accepts.
  kKey,
  // The same as kKey, but any well-formed key passes while the engine does not answer. Used by
  // routes that must not fail during an engine restart and that reveal nothing by themselves.
  kKeyUnlessEngineDown,
  // The route needs a browser's session, which its cookie carries, and for changes the proof that
  // the browser's page makes the request (CheckCsrf). No other route looks at cookies.
  kSession,
  kPublic,
};

// Knowledge about the key of a request that may use a route.
enum class KeyState {
  // The route needs no key.
  kNone,
  // The engine did not answer, and the gateway has never seen the key accepted.
  kUnverified,
  kAccepted,
};

// Handles one request on the connection's executor. `request` stays alive until the handler
// returns.
using Handler = std::function<asio::awaitable<absl::StatusOr<Response>>(Request& request)>;

struct Route {
  std::string method;
  // Path pattern, such as "/api/v1/sessions/{id}". `{name}` matches one non-empty segment.
  std::string pattern;

  // The members from here to `access` describe the route in the OpenAPI document. The tag groups
  // routes there.
  std::string tag;
  std::string summary;
  std::string description;
  // Query parameters: names in the document's components.
  std::vector<std::string> query;
  // Schema of the JSON body, by its name in the document's components. Empty: the route takes no
  // body, and the gateway refuses one without reading it.
  std::string request;
  // True if the body may also be protobuf.
  bool takes_protobuf = false;
  // Schema of a JSON response, by its name in the components.
  std::string answer;
  // Type of a response that is not JSON. Without it and without `answer`, the response is a 204.
  std::string answer_type;
  // Status of a response with a body.
  int status = 200;
  // Error statuses that need a description of their own, with that description.
  std::vector<std::pair<int, std::string>> errors;

  Access access = Access::kKey;
  // Most bytes of the body as sent.
  int64_t max_body_bytes = 1 << 20;
  // Most bytes of the body after decompression; 0: max_body_bytes.
  int64_t max_inflated_bytes = 0;
  // Bytes that a body may inflate to whatever its size. Beyond them the ratio is bounded.
  int64_t free_inflated_bytes = kFreeInflatedBytes;
  // True if answers carry the notices to clients. Set only for routes that a program calls at its
  // start or every few minutes, because the SDK logs every notice it receives.
  bool carries_notices = false;
  // True if the handler uses Request::client or a timer of the connection. The other handlers run
  // in the pool if the body is large.
  bool stays_on_connection = false;
  // True for a copy of another route, for browsers.
  bool is_mirror = false;
  Handler handler;

  bool takes_body() const { return !request.empty(); }
};

class Router {
 public:
  explicit Router(std::vector<Route> routes);

  struct Match {
    const Route* route = nullptr;
    std::vector<std::string> path_parameters;
  };
  // Finds the route of a request. HEAD matches the routes of GET. Returns NotFound `unknown_route`,
  // whose message suggests the nearest pattern, or InvalidArgument `method_not_allowed`, whose
  // field is the value of the Allow header.
  absl::StatusOr<Match> Find(std::string_view method, std::string_view path,
                             const std::vector<std::string>& segments) const;

  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  // Segments of each route's pattern, in the order of routes_.
  std::vector<std::vector<std::string>> patterns_;
};

}  // namespace lathe::gateway

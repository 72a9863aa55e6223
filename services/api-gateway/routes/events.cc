// Route events: what changes, as server-sent events.
#include <array>
#include <boost/asio/this_coro.hpp>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/events/event_hub.h"
#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {
namespace {

constexpr std::array kTopics = {EventTopic::kRuns, EventTopic::kCheckpoints, EventTopic::kQueue,
                                EventTopic::kWorkers};
constexpr size_t kMaxRuns = 8;
// Longest id of a run or an event.
constexpr size_t kMaxIdBytes = 256;

absl::Status BadQuery(const char* name, const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(absl::StrCat("query parameter ", name, message)),
                    "invalid_field", name);
}

absl::StatusOr<unsigned> TopicsOf(const Request& request) {
  const auto text = request.QueryValue("topics");
  unsigned topics = static_cast<unsigned>(EventTopic::kMetrics);
  if (!text) {
    for (const EventTopic topic : kTopics) topics |= static_cast<unsigned>(topic);
    return topics;
  }
  for (const absl::string_view name : absl::StrSplit(AbslView(*text), ',', absl::SkipEmpty())) {
    const auto* const found = std::find_if(kTopics.begin(), kTopics.end(), [name](EventTopic one) {
      return AbslView(NameOf(one)) == name;
    });
    if (found == kTopics.end()) {
      return BadQuery("topics",
                      absl::StrFormat(" has '%s', allowed are runs, checkpoints, queue and workers",
                                      name.substr(0, kMaxQuotedBytes)));
    }
    topics |= static_cast<unsigned>(*found);
  }
  return topics;
}

absl::StatusOr<std::vector<std::string>> RunsOf(const Request& request) {
  const auto text = request.QueryValue("runs");
  if (!text) return std::vector<std::string>();
  const std::set<std::string> ids = absl::StrSplit(AbslView(*text), ',', absl::SkipEmpty());
  if (ids.size() > kMaxRuns) {
    return BadQuery("runs", absl::StrFormat(" has %d ids, limit is %d", ids.size(), kMaxRuns));
  }
  for (const std::string& id : ids) {
    if (id.size() <= kMaxIdBytes) continue;
    return BadQuery("runs",
                    absl::StrFormat(" has an id of %d bytes, limit is %d", id.size(), kMaxIdBytes));
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

absl::StatusOr<ViewerWish> WishOf(const Request& request) {
  ViewerWish wish = {.api_key = request.api_key, .run_ids = {}, .topics = 0, .last_event_id = {}};
  ASSIGN_OR_RETURN(wish.topics, TopicsOf(request));
  ASSIGN_OR_RETURN(wish.run_ids, RunsOf(request));
  wish.last_event_id = std::string(request.HeaderValue("last-event-id").substr(0, kMaxIdBytes));
  return wish;
}

// The part of an answer that outlives its handler. It watches the client while nothing is sent.
class Sender {
 public:
  Sender(std::shared_ptr<Viewer> viewer, ClientWatch* client)
      : viewer_(std::move(viewer)), client_(client) {}
  ~Sender() {
    if (client_ != nullptr && is_watching_) client_->Stop();
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  asio::awaitable<absl::StatusOr<std::string>> Next() {
    if (!std::exchange(is_watching_, true) && client_ != nullptr) {
      client_->Start([viewer = viewer_] { viewer->End(); });
    }
    return viewer_->Next();
  }

 private:
  const std::shared_ptr<Viewer> viewer_;
  ClientWatch* const client_;
  bool is_watching_ = false;
};

asio::awaitable<absl::StatusOr<Response>> Events(const RouteContext& context, Request& request) {
  absl::StatusOr<ViewerWish> wish = WishOf(request);
  if (!wish.ok()) co_return wish.status();
  absl::StatusOr<std::shared_ptr<Viewer>> viewer =
      context.events.Add(co_await asio::this_coro::executor, *std::move(wish));
  if (!viewer.ok()) co_return viewer.status();
  if (request.client != nullptr) request.client->Start([one = *viewer] { one->End(); });
  const absl::Status status = co_await (*viewer)->Join();
  if (!status.ok()) co_return status;
  Response response;
  response.content_type = "text/event-stream";
  // Nginx would hold events back.
  response.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  const auto sender = std::make_shared<Sender>(*std::move(viewer), request.client);
  response.stream = BodyStream{.is_endless = true, .next = [sender] { return sender->Next(); }};
  co_return response;
}

}  // namespace

std::vector<Route> EventRoutes(const RouteContext& context) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/events",
       .tag = "metrics",
       .summary = "What changes, as server-sent events",
       .description =
           "Events `metrics` with the new points of the runs in `runs`, and `runs`, "
           "`checkpoints`, `queue` and `workers` of the tenant. After `resync` a client reads "
           "everything again: some events were lost. With the header Last-Event-ID of the last "
           "event the stream goes on behind it if it can.",
       .query = {"topics", "runs"},
       .answer_type = "text/event-stream",
       .errors = {{429, "Too many clients of the tenant receive events."},
                  {503, "Too many clients receive events, or the engine does not answer."}},
       .stays_on_connection = true,
       .handler = [context](Request& request) { return Events(context, request); }},
  };
}

}  // namespace lathe::gateway

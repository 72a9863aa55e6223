#include "services/api-gateway/events/viewer.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>

#include "services/api-gateway/events/event_hub.h"

namespace lathe::gateway {
namespace {

constexpr std::chrono::seconds kMaxJoinTime{5};
// Proxies and browsers end connections on which nothing comes for a minute.
constexpr std::chrono::seconds kCommentPeriod{15};
constexpr char kComment[] = ": still here\n\n";

}  // namespace

Viewer::Viewer(EventHub& hub, const asio::any_io_executor& executor, ViewerWish wish)
    : hub_(hub), timer_(executor), wish_(std::move(wish)) {}

Viewer::~Viewer() { hub_.Remove(*this); }

asio::awaitable<void> Viewer::Sleep(std::chrono::steady_clock::duration time) {
  boost::system::error_code ignored;
  timer_.expires_after(time);
  co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<absl::Status> Viewer::Join() {
  const auto deadline = std::chrono::steady_clock::now() + kMaxJoinTime;
  while (!is_over_) {
    const std::optional<absl::Status> answer = hub_.AnswerTo(*this);
    if (answer) co_return *answer;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::seconds(0)) break;
    co_await Sleep(left);
  }
  co_return absl::UnavailableError("the engine does not answer; ask again, or read the pages");
}

asio::awaitable<absl::StatusOr<std::string>> Viewer::Next() {
  const auto deadline = std::chrono::steady_clock::now() + kCommentPeriod;
  while (!is_over_) {
    absl::StatusOr<std::string> text = hub_.Take(*this);
    if (!text.ok()) co_return std::string();
    if (!text->empty()) co_return text;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::seconds(0)) co_return kComment;
    co_await Sleep(left);
  }
  co_return std::string();
}

void Viewer::End() {
  is_over_ = true;
  timer_.cancel();
}

void Viewer::PostWake(std::shared_ptr<Viewer> viewer) {
  const auto executor = viewer->timer_.get_executor();
  asio::post(executor, [self = std::move(viewer)] { self->timer_.cancel(); });
}

void Viewer::PostEnd(std::shared_ptr<Viewer> viewer) {
  const auto executor = viewer->timer_.get_executor();
  asio::post(executor, [self = std::move(viewer)] { self->End(); });
}

}  // namespace lathe::gateway

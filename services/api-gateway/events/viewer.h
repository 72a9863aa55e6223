// One client that receives events.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::gateway {

namespace asio = boost::asio;

class EventHub;

// The wishes of one client.
struct ViewerWish {
  std::string api_key;
  // Runs whose points are wanted.
  std::vector<std::string> run_ids;
  // Sum of EventTopics.
  unsigned topics = 0;
  // Id of the last event that the client has, as this or another gateway sent it; empty: none.
  std::string last_event_id;
};

// A place in the feeds of EventHub, which wakes it. Holds no events. Its coroutines run on the
// executor of its connection. Leaves the hub when it is destroyed.
class Viewer : public std::enable_shared_from_this<Viewer> {
 public:
  // `hub` must outlive it.
  Viewer(EventHub& hub, const asio::any_io_executor& executor, ViewerWish wish);
  ~Viewer();

  // Waits until the engine has accepted all subscriptions. Errors: those of the engine;
  // Unavailable if it does not answer; ResourceExhausted ("too_many_viewers").
  asio::awaitable<absl::Status> Join();
  // Returns the next events, or a comment when there was none for a while, so that both sides
  // notice a broken connection. Empty: the viewer has to end.
  asio::awaitable<absl::StatusOr<std::string>> Next();

  // Ends the viewer: its client has left. On the executor.
  void End();
  // Wake its coroutine, or end it. Any thread. The reference goes with the message: the caller may
  // hold the hub's mutex, which the destructor of the last one takes.
  static void PostWake(std::shared_ptr<Viewer> viewer);
  static void PostEnd(std::shared_ptr<Viewer> viewer);

 private:
  friend class EventHub;

  asio::awaitable<void> Sleep(std::chrono::steady_clock::duration time);

  EventHub& hub_;
  asio::steady_timer timer_;
  bool is_over_ = false;  // on the executor

  // The hub's mutex guards the members below.
  const ViewerWish wish_;
  bool is_woken_ = false;
  std::vector<int64_t> subscriptions_;
  std::vector<int64_t> feeds_;
  // Subscriptions that the engine has not answered.
  int64_t num_unanswered_ = 0;
  bool has_joined_ = false;
  // Not OK: the viewer has to end.
  absl::Status refusal_;
  // Number of the last event that it was given or does not want.
  int64_t place_ = 0;
  // False: its feeds have nothing that it wants after its place.
  bool has_pending_ = true;
  // Texts that come before further events.
  std::string notices_;
};

}  // namespace lathe::gateway

// lathe.v1.Accounts against a whole engine.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "libs/common/errors.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

constexpr int64_t kHourSeconds = 3600;

struct Accounts : Fixture {
  absl::Status Assign(const std::string& key, const std::string& session,
                      const std::string& project) {
    v1::AssignSessionProjectRequest request;
    request.set_session_id(session);
    request.set_project_id(project);
    v1::AssignSessionProjectResponse response;
    return FromGrpcStatus(
        engine.accounts().AssignSessionProject(CallContext(key), request, &response));
  }

  std::string NewSession(const std::string& display_name, const std::string& project = "") {
    v1::CreateSessionRequest request;
    request.set_display_name(display_name);
    request.set_project_id(project);
    v1::CreateSessionResponse response;
    REQUIRE(engine.engine().CreateSession(CallContext(client.key()), request, &response).ok());
    return response.session_id();
  }

  absl::Status Search(const v1::SearchSessionsRequest& request,
                      v1::SearchSessionsResponse* response) {
    return FromGrpcStatus(
        engine.accounts().SearchSessions(CallContext(client.key()), request, response));
  }

  // Requests usage around the current time.
  absl::Status Usage(const std::string& key, v1::ListUsageResponse* response,
                     int64_t begin_shift = 0, int64_t end_shift = kHourSeconds) {
    const int64_t now = absl::ToUnixSeconds(engine.clock().Now());
    v1::ListUsageRequest request;
    request.mutable_starting_on()->set_seconds(now - now % kHourSeconds + begin_shift);
    request.mutable_ending_before()->set_seconds(now - now % kHourSeconds + end_shift);
    return FromGrpcStatus(engine.accounts().ListUsage(CallContext(key), request, response));
  }
};

TEST_CASE("Accounts: a session moves into a project with its runs", "[engine][accounts]") {
  Accounts f;
  f.client.MakeModel();
  const std::string stranger = f.engine.MakeKey("other");
  CHECK(absl::IsNotFound(f.Assign(stranger, f.client.session_id(), "p")));
  CHECK(absl::IsNotFound(f.Assign(f.client.key(), "absent", "p")));
  for (const std::string& bad : {std::string(), std::string(".p"), std::string("a/b"),
                                 std::string(257, 'x'), std::string("a\nb")}) {
    const absl::Status refused = f.Assign(f.client.key(), f.client.session_id(), bad);
    CHECK(ErrorCode(refused) == "bad_project");
    CHECK(ErrorField(refused) == "project_id");
  }
  REQUIRE(f.Assign(f.client.key(), f.client.session_id(), "p").ok());
  f.engine.Restart();
  const auto runs = [&](const std::string& key, const std::string& project) {
    v1::ListProjectRunsRequest request;
    request.set_project_id(project);
    v1::ListRunsResponse response;
    REQUIRE(f.engine.accounts().ListProjectRuns(CallContext(key), request, &response).ok());
    return response;
  };
  REQUIRE(runs(f.client.key(), "p").runs_size() == 1);
  CHECK(runs(f.client.key(), "p").runs(0).training_run_id() == f.client.model_id());
  CHECK(runs(f.client.key(), "p").total_count() == 1);
  CHECK(runs(f.client.key(), "q").runs_size() == 0);
  CHECK(runs(stranger, "p").runs_size() == 0);
}

TEST_CASE("Accounts: a search goes through the pages, newest first", "[engine][accounts]") {
  Accounts f;
  std::vector<std::string> made;
  for (int i = 0; i < 5; ++i) {
    // Several sessions within one microsecond.
    f.engine.clock().Advance(absl::Nanoseconds(300));
    made.push_back(f.NewSession(i % 2 == 0 ? "Even one" : "odd", "p"));
  }
  v1::SearchSessionsRequest request;
  request.add_project_ids("p");
  request.set_limit(2);
  std::vector<std::string> found;
  for (int page = 0; page < 3; ++page) {
    v1::SearchSessionsResponse response;
    REQUIRE(f.Search(request, &response).ok());
    CHECK(response.has_next_cursor() == (page < 2));
    for (const v1::SessionSummary& session : response.sessions()) {
      CHECK(session.owner() == "default");
      CHECK(session.project_id() == "p");
      CHECK(session.status().type() == "active");
      found.insert(found.begin(), session.session_id());
    }
    *request.mutable_cursor() = response.next_cursor();
    // A cursor rounded to microseconds skips no session.
    request.mutable_cursor()->mutable_last_created_at()->set_nanos(
        response.next_cursor().last_created_at().nanos() / 1000 * 1000);
  }
  CHECK(found == made);

  request.clear_cursor();
  request.set_display_name("ONE even");
  request.set_limit(200);
  v1::SearchSessionsResponse response;
  REQUIRE(f.Search(request, &response).ok());
  CHECK(response.sessions_size() == 3);
  request.set_owner("user");
  request.add_owner_urns("someone");
  REQUIRE(f.Search(request, &response).ok());
  CHECK(response.sessions_size() == 0);
  request.add_owner_urns("default");
  REQUIRE(f.Search(request, &response).ok());
  CHECK(response.sessions_size() == 3);
}

TEST_CASE("Accounts: a wrong search is refused by name", "[engine][accounts]") {
  Accounts f;
  const auto field = [&](const std::function<void(v1::SearchSessionsRequest&)>& change) {
    v1::SearchSessionsRequest request;
    change(request);
    v1::SearchSessionsResponse response;
    const absl::Status status = f.Search(request, &response);
    CHECK(absl::IsInvalidArgument(status));
    return ErrorField(status);
  };
  CHECK(field([](auto& r) { r.set_limit(0); }) == "limit");
  CHECK(field([](auto& r) { r.set_limit(201); }) == "limit");
  CHECK(field([](auto& r) { r.set_owner("team"); }) == "owner.type");
  CHECK(field([](auto& r) { r.set_owner("user"); }) == "owner.owner_urns");
  CHECK(field([](auto& r) { r.add_owner_urns("me"); }) == "owner.owner_urns");
  CHECK(field([](auto& r) { r.set_display_name(" "); }) == "display_name");
  CHECK(field([](auto& r) { r.add_project_ids("a/b"); }) == "project_ids");
  CHECK(field([](auto& r) { r.add_statuses()->set_type("done"); }) == "statuses.type");
  CHECK(field([](auto& r) {
          r.add_statuses()->set_type("client_finished");
          r.mutable_statuses(0)->add_reasons("bored");
        }) == "statuses.reasons");
  CHECK(field([](auto& r) {
          r.add_statuses()->set_type("active");
          r.mutable_statuses(0)->add_reasons("success");
        }) == "statuses.reasons");
  CHECK(field([](auto& r) { r.mutable_cursor()->set_last_session_id("s"); }) ==
        "cursor.last_created_at");
  CHECK(field([](auto& r) { r.set_session_id(std::string(1025, 's')); }) == "session_id");
}

TEST_CASE("Accounts: usage is there with the result, once, with its session's project",
          "[engine][accounts]") {
  Accounts f;
  f.client.MakeModel();
  CHECK(f.client.Result(f.client.Train(1, 5)).has_forward_backward());
  f.client.Train(1, 5);
  CHECK(f.client.Result(f.client.Save(2, "a")).has_save_weights());
  REQUIRE(f.Assign(f.client.key(), f.client.session_id(), "p").ok());
  f.engine.Restart();

  v1::ListUsageResponse usage;
  REQUIRE(f.Usage(f.client.key(), &usage).ok());
  CHECK(usage.owner() == "default");
  REQUIRE(usage.sessions_size() == 1);
  CHECK(usage.sessions(0).session_id() == f.client.session_id());
  const v1::Usage* trained = nullptr;
  for (const v1::Usage& one : usage.usage()) {
    if (!one.session_id().empty()) trained = &one;
  }
  REQUIRE(trained != nullptr);
  CHECK(trained->base_model() == "tiny");
  CHECK(trained->project_id() == "p");
  CHECK(trained->forward_backward_tokens() == 5);
  CHECK(trained->forward_tokens() == 0);
  CHECK(trained->num_checkpoints() == 1);

  REQUIRE(f.Usage(f.engine.MakeKey("other"), &usage).ok());
  CHECK(usage.usage_size() == 0);
  v1::GetCheckpointStorageResponse storage;
  v1::GetCheckpointStorageRequest request;
  request.set_project_id("p");
  REQUIRE(f.engine.accounts()
              .GetCheckpointStorage(CallContext(f.client.key()), request, &storage)
              .ok());
  REQUIRE(storage.projects_size() == 1);
  CHECK(storage.projects(0).num_checkpoints() == 1);
  request.set_project_id("q");
  REQUIRE(f.engine.accounts()
              .GetCheckpointStorage(CallContext(f.client.key()), request, &storage)
              .ok());
  CHECK(storage.projects_size() == 0);
}

TEST_CASE("Accounts: a wrong window of usage is refused by name", "[engine][accounts]") {
  Accounts f;
  v1::ListUsageResponse usage;
  const auto field = [&](int64_t begin_shift, int64_t end_shift) {
    const absl::Status status = f.Usage(f.client.key(), &usage, begin_shift, end_shift);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(ErrorCode(status) == "bad_window");
    return ErrorField(status);
  };
  CHECK(field(1, kHourSeconds) == "starting_on");
  CHECK(field(0, kHourSeconds + 1) == "ending_before");
  CHECK(field(0, 0) == "ending_before");
  CHECK(field(0, -kHourSeconds) == "ending_before");
  CHECK(field(0, (14 * 24 + 1) * kHourSeconds) == "ending_before");
  CHECK(field(kHourSeconds, 2 * kHourSeconds) == "starting_on");
  CHECK(f.Usage(f.client.key(), &usage, 0, 14 * 24 * kHourSeconds).ok());
}

// Occupies every thread for reads while it lives.
class BlockedReads {
 public:
  explicit BlockedReads(ReadThreads& reads) : reads_(reads) {
    for (int i = 0; i < 2 * ReadThreads::Options().num_threads; ++i) Add("blocker");
    for (int i = 0; i < 2 * ReadThreads::Options().num_threads; ++i) Add("blocker too");
    while (num_running_ < ReadThreads::Options().num_threads) std::this_thread::yield();
  }
  ~BlockedReads() {
    go_on_.Notify();
    while (num_ended_ < num_added_) std::this_thread::yield();
  }

 private:
  void Add(const std::string& tenant_id) {
    ++num_added_;
    REQUIRE(reads_
                .TryRun(tenant_id,
                        [this] {
                          ++num_running_;
                          go_on_.WaitForNotification();
                          ++num_ended_;
                        })
                .ok());
  }

  ReadThreads& reads_;
  int num_added_ = 0;
  std::atomic<int> num_running_ = 0;
  std::atomic<int> num_ended_ = 0;
  absl::Notification go_on_;
};

TEST_CASE("Engine: while every read hangs, sessions live on and others are served", "[engine]") {
  Accounts f;
  f.client.MakeModel();
  const std::string tenant = f.engine.keys().Authenticate(f.client.key())->tenant_id;
  {
    BlockedReads blocked(f.engine.reads());
    v1::HeartbeatRequest beat;
    beat.set_session_id(f.client.session_id());
    v1::HeartbeatResponse alive;
    CHECK(f.engine.engine().Heartbeat(CallContext(f.client.key()), beat, &alive).ok());
    CHECK_FALSE(alive.finished());
    v1::GetCapabilitiesResponse capabilities;
    CHECK(f.engine.engine().GetCapabilities(CallContext(f.client.key()), {}, &capabilities).ok());
    f.client.Result(f.client.Train(1));
    // A tenant's reads above the bound are refused at once.
    while (f.engine.reads().TryRun(tenant, [] {}).ok()) {
    }
    v1::ListUsageResponse usage;
    CHECK(ErrorCode(f.Usage(f.client.key(), &usage)) == "too_many_reads");
    v1::SearchSessionsResponse found;
    CHECK(f.Search({}, &found).ok());
    // An operator's listing waits for its turn on these threads too, and holds none of gRPC's.
    grpc::ClientContext impatient;
    impatient.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
    v1::ListTenantsResponse tenants;
    CHECK(f.engine.admin().ListTenants(&impatient, {}, &tenants).error_code() ==
          grpc::StatusCode::DEADLINE_EXCEEDED);
    v1::FinishSessionRequest finish;
    finish.set_session_id(f.client.session_id());
    finish.set_reason("success");
    v1::FinishSessionResponse finished;
    CHECK(f.engine.engine().FinishSession(CallContext(f.client.key()), finish, &finished).ok());
  }
  v1::ListUsageResponse usage;
  while (ErrorCode(f.Usage(f.client.key(), &usage)) == "too_many_reads") std::this_thread::yield();
  CHECK(usage.sessions_size() == 1);
}

}  // namespace
}  // namespace lathe::engine

#include "services/engine/core/event_log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "services/engine/core/plan.h"
#include "services/engine/core/serialize.h"
#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

// A unique file, removed at the end.
class TempFile {
 public:
  TempFile() {
    std::string name = (std::filesystem::temp_directory_path() / "event_log_XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    path_ = name;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<Event> SomeHistory() {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  h.Gradient(model, 1);
  h.Step(model, 2);
  h.Save(model, 3, {.name = "a", .ttl_seconds = 5, .user_metadata = {{"k", "v"}}});
  h.Sampler(session, 0, "");
  h.Sample(session + ":sample:0", 1);
  h.RunWorker();
  h.AttachWorker("p2");
  h.Advance(100 * kSecond);
  h.Post(FinishSession{++h.last_call, "t", session, "success", "x"});
  return h.log;
}

// Writes `events` and returns the digest of the actions of a core that handled them.
std::string Record(const std::vector<Event>& events, const std::string& path) {
  auto log = EventLogWriter::Open(path, CoreOptions());
  REQUIRE(log.ok());
  Core core{CoreOptions()};
  ActionDigest digest;
  for (const Event& event : events) {
    REQUIRE(log->Append(event).ok());
    std::vector<Action> actions;
    core.Step(event, &actions);
    digest.Add(actions);
  }
  REQUIRE(log->Flush().ok());
  return digest.FinishHex();
}

TEST_CASE("Event log: a replay gives the digest of the live core", "[core]") {
  const TempFile file;
  const std::vector<Event> events = SomeHistory();
  const std::string live = Record(events, file.path());
  const auto replayed = ReplayEventLog(file.path());
  REQUIRE(replayed.ok());
  CHECK(replayed->digest == live);
  CHECK(replayed->num_events == static_cast<int64_t>(events.size()));
  CHECK(replayed->num_actions > replayed->num_events);
}

TEST_CASE("Event log: another event gives another digest", "[core]") {
  const TempFile file;
  std::vector<Event> events = SomeHistory();
  const std::string one = Record(events, file.path());
  std::get<Loaded>(events.front().body).random_seed += 1;
  CHECK(Record(events, file.path()) != one);
}

TEST_CASE("Event log: a truncated last event is left out", "[core]") {
  const TempFile file;
  const std::vector<Event> events = SomeHistory();
  Record(events, file.path());
  std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 1);
  const auto replayed = ReplayEventLog(file.path());
  REQUIRE(replayed.ok());
  CHECK(replayed->num_events == static_cast<int64_t>(events.size()) - 1);
}

TEST_CASE("Event log: what is not a log is refused", "[core]") {
  const TempFile file;
  CHECK(ReplayEventLog(file.path()).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(ReplayEventLog(file.path() + ".absent").ok());
}

TEST_CASE("Serialize: every event comes back as it was", "[core]") {
  for (const Event& event : SomeHistory()) {
    const std::string bytes = Serialize(event);
    const auto copy = Deserialize<Event>(bytes);
    REQUIRE(copy.has_value());
    CHECK(Serialize(*copy) == bytes);
  }
}

TEST_CASE("Serialize: numbers at their limits come back", "[core]") {
  OptimStepArgs args;
  args.learning_rate = -0.0;
  args.eps = 1e-300;
  const auto copy = Deserialize<OptimStepArgs>(Serialize(args));
  CHECK(std::signbit(copy->learning_rate));
  CHECK(copy->eps == 1e-300);
  SaveArgs save;
  save.sampling_session_seq_id = -1;
  save.ttl_seconds = INT64_MAX;
  const auto saved = Deserialize<SaveArgs>(Serialize(save));
  CHECK(saved->sampling_session_seq_id == -1);
  CHECK(saved->ttl_seconds == INT64_MAX);
}

TEST_CASE("Serialize: cut bytes are refused and never crash", "[core]") {
  const std::string bytes = Serialize(SomeHistory().front());
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(Deserialize<Event>(std::string_view(bytes).substr(0, size)).has_value());
  }
}

TEST_CASE("Plan: another version's plan is not read", "[core]") {
  std::string bytes = EncodePlan(Plan());
  REQUIRE(DecodePlan(bytes).has_value());
  bytes[0] = 0;
  CHECK_FALSE(DecodePlan(bytes).has_value());
}

}  // namespace
}  // namespace lathe::engine

// Executors as the ranks of one group, connected over the loopback address.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "services/worker/executor/executor.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {

// Long enough for a very busy machine.
inline constexpr absl::Duration kPatience = absl::Seconds(120);

// Replaces the encoding of commands by their index.
class Encoding {
 public:
  std::string Encode(const Command& command) {
    absl::MutexLock lock(&mu_);
    commands_.push_back(command);
    return std::to_string(commands_.size() - 1);
  }
  absl::StatusOr<Command> Decode(const std::string& encoded) const {
    absl::MutexLock lock(&mu_);
    return commands_.at(std::stoul(encoded));
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mu_);
};

inline std::string AnsweredBy(const Report& report) {
  return std::visit(
      [](const auto& answer) -> std::string {
        using Answer = std::decay_t<decltype(answer)>;
        if constexpr (std::is_same_v<Answer, SnapshotDone>) {
          return answer.snapshot_id;
        } else if constexpr (std::is_same_v<Answer, VersionSaved>) {
          return "saved:" + answer.version_id;
        } else if constexpr (std::is_same_v<Answer, VersionServed>) {
          return "served:" + answer.version_id;
        } else if constexpr (requires { answer.request_id; }) {
          return answer.request_id;
        } else {
          return {};
        }
      },
      report);
}

// The ranks of one group, each with its threads.
class Group {
 public:
  using Decode = std::function<absl::StatusOr<Command>(const std::string&)>;

  struct Options {
    MeshShape mesh = {.tp = 2};
    std::vector<std::string> model_paths;  // by rank; missing: the group's
    Decode decode;                         // empty: decodes what Encode returned
    VersionExchange versions;              // the same for each rank
  };

  Group(const std::filesystem::path& model, const Options& options) : ranks_(options.mesh.world()) {
    std::optional<ListeningSocket> socket = ListeningSocket::Open("127.0.0.1").value();
    const RendezvousPoint rendezvous{
        .session = "test", .address = socket->address(), .port = socket->port()};
    for (int rank = 0; rank < options.mesh.world(); ++rank) {
      Rank& own = ranks_[rank];
      ExecutorPeers peers{
          .await_rendezvous = [rendezvous] { return rendezvous; },
          .decode = options.decode
                        ? options.decode
                        : [this](const std::string& encoded) { return encoding_.Decode(encoded); },
          .on_disagreement =
              [&own](absl::Status status) {
                own.disagreement = std::move(status);
                own.ended.Notify();
              }};
      if (rank == 0) peers.socket.emplace(*std::move(socket));
      ExecutorOptions executor{.model_name = "tiny",
                               .model_path = model,
                               .checkpoint_root = dir_.path() / "checkpoints",
                               .device = "cpu",
                               .num_threads = 1,
                               .memory_fraction = 0.05,
                               .version_bytes = 1,  // so that each version is read again and again
                               .mesh = options.mesh,
                               .rank = rank,
                               .collective_timeout = kPatience};
      if (options.model_paths.size() > static_cast<size_t>(rank)) {
        executor.model_path = options.model_paths[rank];
      }
      own.executor = std::make_unique<Executor>(
          executor,
          ExecutorListener{
              .on_report = [this, rank](ReportEvent event) { RecordReport(rank, event); },
              .on_state_changed = [] {}},
          [&own](absl::Status status) {
            own.load_failure = std::move(status);
            own.ended.Notify();
          },
          std::move(peers), options.versions);
    }
    for (Rank& rank : ranks_) rank.executor->Start();
  }

  ~Group() { Stop(); }

  void Stop() {
    for (Rank& rank : ranks_) rank.executor->Stop();
  }

  void Send(const Command& command) {
    const std::string encoded = encoding_.Encode(command);
    REQUIRE(ranks_[0].executor->Submit(command, encoded).ok());
  }

  // Returns the answer to a request.
  Report Await(const std::string& request_id) {
    absl::MutexLock lock(&mu_);
    const auto is_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return answers_.contains(request_id);
    };
    REQUIRE(mu_.AwaitWithTimeout(absl::Condition(&is_here), kPatience));
    return answers_.at(request_id);
  }

  template <typename T>
  T AwaitAs(const std::string& request_id) {
    Report report = Await(request_id);
    if (const auto* failed = std::get_if<OpFailed>(&report)) INFO(failed->status);
    REQUIRE(std::holds_alternative<T>(report));
    return std::get<T>(std::move(report));
  }

  bool AwaitEnd(int rank) { return ranks_[rank].ended.WaitForNotificationWithTimeout(kPatience); }

  Executor& executor(int rank) { return *ranks_[rank].executor; }
  const absl::Status& load_failure(int rank) const { return ranks_[rank].load_failure; }
  const absl::Status& disagreement(int rank) const { return ranks_[rank].disagreement; }
  int num_followers_reports() const { return num_followers_reports_; }
  size_t num_answered_twice() const { return num_answered_twice_; }

 private:
  struct Rank {
    absl::Status load_failure, disagreement;  // set before `ended`
    absl::Notification ended;
    std::unique_ptr<Executor> executor;
  };

  void RecordReport(int rank, const ReportEvent& event) {
    if (rank != 0) ++num_followers_reports_;
    const std::string id = AnsweredBy(event.report);
    if (id.empty()) return;
    absl::MutexLock lock(&mu_);
    if (!answers_.emplace(id, event.report).second) ++num_answered_twice_;
  }

  const TempDir dir_;
  Encoding encoding_;
  absl::Mutex mu_;
  std::map<std::string, Report> answers_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> num_followers_reports_ = 0;
  std::atomic<size_t> num_answered_twice_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace lathe::worker

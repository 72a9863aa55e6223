// The kinds of load that service_load.cc generates.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libs/common/concurrency/named_thread.h"
#include "tests/bench/service/trainer.h"

namespace lathe::bench {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

// Latencies of each request in milliseconds.
struct Timings {
  std::vector<double> submits;
  std::vector<double> totals;  // from submission to result
};

// A step that a client repeats.
struct StepKind {
  SteadyClock::duration pause{};  // after each step
  int64_t num_tokens = 0;         // of a gradient before the step; 0: none
};

// Runs clients as coroutines on one thread. Commands run one at a time. Run throws the error of any
// client that fails.
class Load {
 public:
  Load();
  ~Load();

  json Run(const json& command);

 private:
  // Accepted requests, by model, of a tenant that sends faster than it is served.
  struct Flood {
    struct Lane {
      std::unique_ptr<Trainer> trainer;
      std::deque<std::string> request_ids;  // requests without a result so far
    };
    std::vector<Lane> lanes;
  };

  json Connect(const json& command);
  json Steps(const json& command);
  json OpenIdlePolls(const json& command);
  json Poll();
  json CloseIdlePolls();
  json Bodies(const json& command);
  json FloodWith(const json& command);
  json Drain(const json& command);
  json Single(const json& command);
  json Train(const json& command);
  json SubmitAll(const json& command);
  json OpenCallers(const json& command);
  json CloseCallers();

  std::unique_ptr<Trainer> NewTrainer(bool skips_seqs = true, const std::string& api_key = "");
  // Creates trainers with models until there are `count`. They remain for later commands.
  void EnsureTrainers(size_t count);
  asio::awaitable<void> StepUntil(Trainer& trainer, SteadyClock::time_point end, StepKind kind,
                                  Timings& timings);
  asio::awaitable<void> SendBodies(Trainer& trainer, const std::string& body,
                                   SteadyClock::time_point begin, SteadyClock::duration period,
                                   SteadyClock::time_point end, Timings& timings);
  // Polls until Unpark closes the connection or the gateway ends.
  asio::awaitable<void> PollForEver(std::shared_ptr<HttpSession> session, std::string question);
  // Calls until CloseCallers closes the connection or the gateway ends. Pauses after a refusal.
  asio::awaitable<void> CallForEver(std::shared_ptr<HttpSession> session, std::string path,
                                    std::string body);
  // Runs all clients to completion.
  void RunAll(std::vector<asio::awaitable<void>> clients);

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  int port_ = 0;
  std::vector<std::string> api_keys_;  // the trainers share them in turn
  std::string base_model_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::string> idle_polls_;  // ids of requests that wait for a missing seq_id
  // Used on the io thread only.
  std::vector<std::shared_ptr<HttpSession>> polling_;
  int64_t num_poll_answers_ = 0;
  std::vector<std::shared_ptr<HttpSession>> calling_;
  std::map<std::string, int64_t> num_call_answers_;  // by status
  std::map<std::string, Flood> floods_;
  NamedThread thread_;
};

}  // namespace lathe::bench

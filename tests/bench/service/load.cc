#include "tests/bench/service/load.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/system/system_error.hpp>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/gateway/training_bodies.h"

namespace lathe::bench {
namespace {

// Requests per model, below the engine's limit of unfinished requests per model.
constexpr int64_t kIdlePollsPerModel = 2048;
constexpr size_t kBodyClients = 4;
// Number of bodies between two optim_steps. It keeps the data that a recovery would need small.
constexpr int64_t kBodiesPerStep = 4;
constexpr int64_t kDatumTokens = 1063;
constexpr int64_t kNumLastSteps = 2;
// Exceeds the engine's minimum time between two snapshots of a model.
constexpr std::chrono::seconds kSnapshotPause{3};

// Pause of a caller after a refusal, about what Retry-After asks for.
constexpr std::chrono::milliseconds kRefusedPause{50};

double MsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count();
}

SteadyClock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

double Percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(values.size() - 1, index)];
}

json Summary(Timings& timings, double seconds) {
  const auto count = static_cast<double>(timings.totals.size());
  return {{"requests", timings.totals.size()},
          {"seconds", seconds},
          {"per_second", count / seconds},
          {"p50_ms", Percentile(timings.totals, 0.5)},
          {"p99_ms", Percentile(timings.totals, 0.99)},
          {"submit_p50_ms", Percentile(timings.submits, 0.5)},
          {"submit_p99_ms", Percentile(timings.submits, 0.99)},
          {"submit_max_ms", Percentile(timings.submits, 1)}};
}

asio::awaitable<void> SleepUntil(SteadyClock::time_point time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

}  // namespace

Load::Load() : work_(io_.get_executor()), thread_("load", [this] { io_.run(); }) {}

Load::~Load() { io_.stop(); }

json Load::Run(const json& command) {
  const std::string op = command.at("op");
  if (op == "connect") return Connect(command);
  if (op == "steps") return Steps(command);
  if (op == "open_idle_polls") return OpenIdlePolls(command);
  if (op == "poll") return Poll();
  if (op == "close_idle_polls") return CloseIdlePolls();
  if (op == "bodies") return Bodies(command);
  if (op == "flood") return FloodWith(command);
  if (op == "drain") return Drain(command);
  if (op == "train") return Train(command);
  if (op == "submit") return SubmitAll(command);
  if (op == "single") return Single(command);
  if (op == "open_callers") return OpenCallers(command);
  if (op == "close_callers") return CloseCallers();
  throw std::runtime_error("unknown op " + op);
}

json Load::Connect(const json& command) {
  port_ = command.at("port");
  api_keys_ = command.value("api_keys", std::vector<std::string>());
  if (api_keys_.empty()) api_keys_.push_back(command.at("api_key"));
  base_model_ = command.at("base_model");
  return json::object();
}

json Load::Steps(const json& command) {
  EnsureTrainers(command.at("clients"));
  const StepKind kind{.pause = Seconds(command.value("pause_ms", 0.0) / 1000),
                      .num_tokens = command.value("tokens", int64_t{0})};
  const auto begin = SteadyClock::now();
  const auto end = begin + Seconds(command.at("seconds"));
  Timings timings;
  std::vector<asio::awaitable<void>> clients;
  for (size_t i = 0; i < command.at("clients"); ++i) {
    clients.push_back(StepUntil(*trainers_[i], end, kind, timings));
  }
  RunAll(std::move(clients));
  json summary = Summary(timings, MsSince(begin) / 1000);
  summary["repeats"] =
      std::accumulate(trainers_.begin(), trainers_.end(), int64_t{0},
                      [](int64_t sum, const auto& one) { return sum + one->num_repeats(); });
  return summary;
}

json Load::OpenIdlePolls(const json& command) {
  const int64_t count = command.at("count");
  const int64_t num_models = (count + kIdlePollsPerModel - 1) / kIdlePollsPerModel;
  std::vector<std::unique_ptr<Trainer>> owners;
  std::vector<asio::awaitable<void>> clients;
  for (int64_t i = 0; i < num_models; ++i) {
    owners.push_back(NewTrainer(/*skips_seqs=*/false));
    const int64_t share = std::min(kIdlePollsPerModel, count - i * kIdlePollsPerModel);
    clients.push_back([](Trainer& owner, int64_t num_requests,
                         std::vector<std::string>& ids) -> asio::awaitable<void> {
      co_await owner.Create();
      owner.Skip(1);
      for (int64_t n = 0; n < num_requests; ++n) ids.push_back(co_await owner.SubmitDatum(3));
    }(*owners.back(), share, idle_polls_));
  }
  RunAll(std::move(clients));
  return {{"idle_polls", idle_polls_.size()}};
}

json Load::Poll() {
  const Target target{.port = port_, .api_key = api_keys_.front()};
  for (const std::string& id : idle_polls_) {
    auto session = std::make_shared<HttpSession>(io_.get_executor(), target);
    std::string question = absl::StrCat(R"({"request_id":")", id, R"("})");
    asio::post(io_, [this, session] { polling_.push_back(session); });
    asio::co_spawn(io_, PollForEver(session, std::move(question)), asio::detached);
  }
  return {{"polls", idle_polls_.size()}};
}

json Load::CloseIdlePolls() {
  std::promise<int64_t> num_answers;
  asio::post(io_, [&] {
    for (const auto& session : std::exchange(polling_, {})) session->Close();
    num_answers.set_value(std::exchange(num_poll_answers_, 0));
  });
  return {{"answers", num_answers.get_future().get()}};
}

json Load::OpenCallers(const json& command) {
  const Target target{.port = port_, .api_key = command.at("api_key")};
  for (size_t i = 0; i < command.at("clients"); ++i) {
    auto session = std::make_shared<HttpSession>(io_.get_executor(), target);
    asio::post(io_, [this, session] { calling_.push_back(session); });
    asio::co_spawn(io_, CallForEver(session, command.at("path"), command.at("body")),
                   asio::detached);
  }
  return json::object();
}

json Load::CloseCallers() {
  std::promise<std::map<std::string, int64_t>> answers;
  asio::post(io_, [&] {
    for (const auto& session : std::exchange(calling_, {})) session->Close();
    answers.set_value(std::exchange(num_call_answers_, {}));
  });
  return answers.get_future().get();
}

json Load::Bodies(const json& command) {
  const double megabytes = command.at("megabytes");
  const double per_second = command.at("per_second");
  EnsureTrainers(kBodyClients + 1);
  // A token takes 20 bytes in importance_sampling.
  const auto num_datums = static_cast<int64_t>(megabytes * 1e6 / (20 * kDatumTokens));
  const std::string body = gateway::TrainingProtobuf(
      {.num_datums = std::max<int64_t>(1, num_datums), .datum_tokens = kDatumTokens});
  const auto begin = SteadyClock::now();
  const auto end = begin + Seconds(command.at("seconds"));
  Timings large;
  Timings small;
  std::vector<asio::awaitable<void>> clients;
  for (size_t i = 0; i < kBodyClients; ++i) {
    const auto first = begin + Seconds(static_cast<double>(i) / per_second);
    const auto period = Seconds(static_cast<double>(kBodyClients) / per_second);
    clients.push_back(SendBodies(*trainers_[i + 1], body, first, period, end, large));
  }
  clients.push_back(StepUntil(*trainers_[0], end, {}, small));
  RunAll(std::move(clients));
  const double seconds = MsSince(begin) / 1000;
  return {{"body_bytes", body.size()},
          {"bodies", Summary(large, seconds)},
          {"small", Summary(small, seconds)}};
}

json Load::FloodWith(const json& command) {
  Flood& flood = floods_[command.at("name")];
  const int64_t num_models = command.at("models");
  const int64_t per_model = command.at("requests").get<int64_t>() / num_models;
  const int64_t tokens = command.at("tokens");
  const auto begin = SteadyClock::now();
  for (int64_t i = 0; i < num_models; ++i) {
    flood.lanes.push_back({.trainer = NewTrainer(true, command.at("api_key"))});
  }
  std::vector<asio::awaitable<void>> clients;
  for (Flood::Lane& lane : flood.lanes) {
    clients.push_back([](Flood::Lane& one, int64_t count, int64_t size) -> asio::awaitable<void> {
      co_await one.trainer->Create();
      for (int64_t i = 0; i < count; ++i) {
        one.request_ids.push_back(co_await one.trainer->SubmitDatum(size));
      }
    }(lane, per_model, tokens));
  }
  RunAll(std::move(clients));
  return {{"accepted", per_model * num_models}, {"seconds", MsSince(begin) / 1000}};
}

json Load::Drain(const json& command) {
  const auto end = SteadyClock::now() + Seconds(command.at("seconds"));
  std::map<std::string, int64_t> num_done;
  std::vector<asio::awaitable<void>> clients;
  for (const std::string name : command.at("names")) {
    for (Flood::Lane& lane : floods_.at(name).lanes) {
      clients.push_back([](Flood::Lane& one, SteadyClock::time_point until,
                           int64_t& count) -> asio::awaitable<void> {
        while (!one.request_ids.empty() && SteadyClock::now() < until) {
          const std::string id = one.request_ids.front();
          const bool is_there = co_await one.trainer->Poll(id);
          if (!is_there) continue;
          one.request_ids.pop_front();
          if (SteadyClock::now() < until) ++count;
        }
      }(lane, end, num_done[name]));
    }
  }
  RunAll(std::move(clients));
  return num_done;
}

json Load::Single(const json& command) {
  const std::unique_ptr<Trainer> trainer = NewTrainer(true, command.at("api_key"));
  const int64_t tokens = command.at("tokens");
  const auto pause = Seconds(command.at("pause_ms").get<double>() / 1000);
  json took;
  RunAll([&] {
    std::vector<asio::awaitable<void>> one;
    one.push_back([](Trainer& client, int64_t size, SteadyClock::duration rest,
                     json& ms) -> asio::awaitable<void> {
      co_await client.Create();
      co_await SleepUntil(SteadyClock::now() + rest);
      const auto begin = SteadyClock::now();
      const std::string datum = co_await client.SubmitDatum(size);
      const std::string step = co_await client.SubmitStep();
      co_await client.Await(datum);
      ms["gradient_ms"] = MsSince(begin);
      co_await client.Await(step);
      ms["step_ms"] = MsSince(begin);
    }(*trainer, tokens, pause, took));
    return one;
  }());
  return took;
}

json Load::Train(const json& command) {
  EnsureTrainers(command.at("models"));
  const int64_t last_seq = command.at("last_seq");
  for (const auto& trainer : trainers_) trainer->Skip(last_seq - kNumLastSteps);
  for (int64_t i = 0; i < kNumLastSteps; ++i) {
    std::vector<asio::awaitable<void>> clients;
    for (const auto& trainer : trainers_) {
      clients.push_back([](Trainer& one) -> asio::awaitable<void> {
        co_await one.Await(co_await one.SubmitStep());
      }(*trainer));
    }
    RunAll(std::move(clients));
    std::this_thread::sleep_for(kSnapshotPause);
  }
  return json::object();
}

json Load::SubmitAll(const json& command) {
  const int64_t tokens = command.at("tokens");
  std::vector<asio::awaitable<void>> clients;
  for (const auto& trainer : trainers_) {
    clients.push_back([](Trainer& one, int64_t size) -> asio::awaitable<void> {
      co_await one.SubmitDatum(size);
    }(*trainer, tokens));
  }
  RunAll(std::move(clients));
  return {{"accepted", trainers_.size()}};
}

std::unique_ptr<Trainer> Load::NewTrainer(bool skips_seqs, const std::string& api_key) {
  const std::string& own_key = api_keys_[trainers_.size() % api_keys_.size()];
  const Target target{
      .port = port_, .api_key = api_key.empty() ? own_key : api_key, .skips_seqs = skips_seqs};
  return std::make_unique<Trainer>(io_.get_executor(), target, base_model_);
}

void Load::EnsureTrainers(size_t count) {
  std::vector<asio::awaitable<void>> clients;
  while (trainers_.size() < count) {
    trainers_.push_back(NewTrainer());
    clients.push_back(trainers_.back()->Create());
  }
  RunAll(std::move(clients));
}

asio::awaitable<void> Load::StepUntil(Trainer& trainer, SteadyClock::time_point end, StepKind kind,
                                      Timings& timings) {
  while (SteadyClock::now() < end) {
    const auto begin = SteadyClock::now();
    std::string gradient;
    if (kind.num_tokens > 0) gradient = co_await trainer.SubmitDatum(kind.num_tokens);
    const auto step_begin = SteadyClock::now();
    const std::string id = co_await trainer.SubmitStep();
    timings.submits.push_back(MsSince(step_begin));
    if (!gradient.empty()) co_await trainer.Await(gradient);
    co_await trainer.Await(id);
    timings.totals.push_back(MsSince(begin));
    if (kind.pause.count() > 0) co_await SleepUntil(SteadyClock::now() + kind.pause);
  }
}

asio::awaitable<void> Load::SendBodies(Trainer& trainer, const std::string& body,
                                       SteadyClock::time_point begin, SteadyClock::duration period,
                                       SteadyClock::time_point end, Timings& timings) {
  int64_t count = 0;
  for (auto due = begin; due < end; due += period) {
    co_await SleepUntil(due);
    const auto sent = SteadyClock::now();
    const std::string id = co_await trainer.SubmitBody(body);
    timings.submits.push_back(MsSince(sent));
    co_await trainer.Await(id, kProtobuf);
    timings.totals.push_back(MsSince(sent));
    if (++count % kBodiesPerStep == 0) co_await trainer.Await(co_await trainer.SubmitStep());
  }
}

asio::awaitable<void> Load::PollForEver(std::shared_ptr<HttpSession> session,
                                        std::string question) {
  try {
    for (;;) {
      co_await session->Post("retrieve_future", question);
      ++num_poll_answers_;
    }
  } catch (const boost::system::system_error&) {
    // Unpark closed the connection, or the gateway ended.
  }
}

asio::awaitable<void> Load::CallForEver(std::shared_ptr<HttpSession> session, std::string path,
                                        std::string body) {
  try {
    for (;;) {
      const HttpAnswer answer = co_await session->Exchange(path, body);
      ++num_call_answers_[absl::StrCat(answer.status)];
      if (answer.status != 200) co_await SleepUntil(SteadyClock::now() + kRefusedPause);
    }
  } catch (const boost::system::system_error&) {
    // CloseCallers closed the connection, or the gateway ended.
  }
}

void Load::RunAll(std::vector<asio::awaitable<void>> clients) {
  std::vector<std::future<void>> ends;
  for (auto& client : clients) {
    ends.push_back(asio::co_spawn(io_, std::move(client), asio::use_future));
  }
  for (auto& end : ends) end.get();
}

}  // namespace lathe::bench

// A core with the state of a large service, and the sizes of what its Steps do.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/core.h"

namespace lathe::engine {

struct ScaleSizes {
  int64_t num_models = 10'000;
  int64_t num_live_models = 100;  // the other models are offloaded
  int64_t num_sessions = 5'000;   // of one tenant
  int64_t samplers_per_session = 20;
  int64_t num_samples = 262'144;
};

// The Steps of one kind: their CPU time, for people, and the largest of them.
struct StepSizes {
  std::vector<int64_t> nanoseconds;
  int64_t max_effects = 0;  // actions and writes
  int64_t max_visited = 0;  // see Core::num_visited
};

// The store makes every commit durable at once. The worker of the one group holds the live models
// and answers only when a test says so.
class ScaleWorld {
 public:
  ScaleWorld(const ScaleSizes& sizes, const CoreOptions& options);

  // Makes one Step, and the Steps for the commits that follow from it. `kind` names it in `steps`.
  void Step(const std::string& kind, EventBody body);
  // Advances the time by a second and ticks.
  void Tick(const std::string& kind);
  void AttachWorker(const std::string& kind);
  // Detaches the worker, which is gone for good.
  void LoseWorker();
  // Submits the next sample of a session. Returns the error code; empty: accepted.
  std::string SubmitSample(int64_t session, int64_t seq);
  // Submits the creation of a model. Returns the error code; empty: accepted.
  std::string CreateModel(int64_t session, int64_t seq);
  void CompleteSample(const std::string& request_id);
  // Prints the times of all kinds of Steps.
  void Print() const;

  std::string SessionId(int64_t session) const;

  int64_t now = 1'000'000 * kSecond;
  std::map<std::string, StepSizes> steps;        // by kind
  std::set<std::string> running;                 // samples that the worker was sent
  std::map<std::string, int64_t> num_completed;  // CompleteRequests, by request
  std::set<std::string> finished_sessions;
  std::set<std::string> ended_sessions;
  std::set<std::string> unloaded_models;
  std::set<std::string> offloaded_models;
  std::set<std::string> deleted_samplers;
  std::string last_error;  // error code of the last Answer; empty: success

 private:
  StoredState MakeState() const;
  void Execute(const Action& action, std::vector<EventBody>& next);
  // Does what the worker does with a command.
  void Reply(const SendToWorker& send, std::vector<EventBody>& next);

  const ScaleSizes sizes_;
  Core core_;
  CallId last_call_ = 0;
  int64_t last_id_ = 0;
  int64_t epoch_ = 0;
};

}  // namespace lathe::engine

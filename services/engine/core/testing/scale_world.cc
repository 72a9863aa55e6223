#include "services/engine/core/testing/scale_world.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"

namespace lathe::engine {
namespace {

constexpr char kTenant[] = "t";
constexpr char kGroup[] = "g";

BaseModelRow Base() {
  BaseModelRow row;
  row.name = "base";
  row.content_hash = "hash";
  row.max_context_length = 1000;
  return row;
}

std::string IdOf(const char* kind, int64_t number) {
  return absl::StrFormat("%s%06d", kind, number);
}

// CPU time of this thread, as others may use the machine meanwhile.
int64_t ThreadTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

}  // namespace

ScaleWorld::ScaleWorld(const ScaleSizes& sizes, const CoreOptions& options)
    : sizes_(sizes), core_(options) {
  Step("start", Loaded{MakeState(), 7});
}

std::string ScaleWorld::SessionId(int64_t session) const { return IdOf("s", session); }

StoredState ScaleWorld::MakeState() const {
  StoredState state;
  state.term = 1;
  state.base_models.push_back(Base());
  for (int64_t i = 0; i < sizes_.num_sessions; ++i) {
    SessionRow row;
    row.session_id = SessionId(i);
    row.tenant_id = kTenant;
    row.created_at = row.heartbeat_at = now;
    state.sessions.push_back(row);
    for (int64_t k = 0; k < sizes_.samplers_per_session; ++k) {
      SamplerRow sampler;
      sampler.session_id = row.session_id;
      sampler.sampling_session_id = absl::StrFormat("%s:sample:%d", row.session_id, k);
      sampler.tenant_id = kTenant;
      sampler.sampling_session_seq_id = k;
      sampler.base_model = "base";
      sampler.created_at = now;
      if (k > 0) {  // an unnamed version; the first sampler uses the base model
        sampler.model_id = row.session_id + ":train:0";
        sampler.version_id = absl::StrFormat("%s@%d", sampler.model_id, k);
        sampler.version_bytes = 1;
        VersionRow version;
        version.version_id = sampler.version_id;
        version.model_id = sampler.model_id;
        version.tenant_id = kTenant;
        version.dir = absl::StrFormat("c%s-%d", row.session_id, k);
        state.versions.push_back(version);
      }
      state.samplers.push_back(sampler);
    }
  }
  for (int64_t i = 0; i < sizes_.num_models; ++i) {
    ModelRow row;
    row.session_id = SessionId(i % sizes_.num_sessions);
    row.model_seq_id = i / sizes_.num_sessions;
    row.model_id = absl::StrFormat("%s:train:%d", row.session_id, row.model_seq_id);
    row.tenant_id = kTenant;
    row.base_model = "base";
    row.group = kGroup;
    row.state = ModelState::kReady;
    row.is_offloaded = i >= sizes_.num_live_models;
    row.created_at = row.last_request_at = now;
    state.models.push_back(row);
    SnapshotRow snapshot;
    snapshot.snapshot_id = absl::StrFormat("c%d", i);
    snapshot.model_id = row.model_id;
    state.snapshots.push_back(snapshot);
  }
  return state;
}

void ScaleWorld::Step(const std::string& kind, EventBody body) {
  std::vector<EventBody> events;
  events.push_back(std::move(body));
  for (size_t i = 0; i < events.size(); ++i) {
    const Event event{++now, std::move(events[i])};
    const bool is_commit = std::holds_alternative<Committed>(event.body);
    std::vector<Action> actions;
    const int64_t visited = core_.num_visited();
    const int64_t began = ThreadTime();
    core_.Step(event, &actions);
    const int64_t took = ThreadTime() - began;
    const bool is_piece = std::holds_alternative<Continue>(event.body);
    const std::string kind_of_step = i == 0      ? kind
                                     : is_commit ? "committed"
                                     : is_piece  ? kind + ", next piece"
                                                 : "command done";
    StepSizes& sizes = steps[kind_of_step];
    sizes.nanoseconds.push_back(took);
    sizes.max_visited = std::max(sizes.max_visited, core_.num_visited() - visited);
    auto num_effects = static_cast<int64_t>(actions.size());
    for (const Action& action : actions) {
      const auto* const commit = std::get_if<Commit>(&action);
      if (commit != nullptr) num_effects += static_cast<int64_t>(commit->writes.size());
      Execute(action, events);
    }
    // The effects of a commit were counted when they were decided, as writes.
    if (!is_commit) sizes.max_effects = std::max(sizes.max_effects, num_effects);
  }
}

void ScaleWorld::Reply(const SendToWorker& send, std::vector<EventBody>& next) {
  std::visit(
      [&](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, SendSample>) {
          running.insert(command.request_id);
        } else if constexpr (std::is_same_v<Command, SendCancel>) {
          running.erase(command.request_id);
        } else if constexpr (std::is_same_v<Command, SendDropAdapter> ||
                             std::is_same_v<Command, SendRestoreAdapter> ||
                             std::is_same_v<Command, SendCreateAdapter>) {
          WorkerDone done;
          done.group = send.group;
          done.epoch = send.epoch;
          done.request_id = command.request_id;
          done.result_id = "result-" + command.request_id;
          if (!command.request_id.empty()) next.push_back(std::move(done));
        }
      },
      send.command);
}

void ScaleWorld::Execute(const Action& action, std::vector<EventBody>& next) {
  if (const auto* const answer = std::get_if<Answer>(&action)) {
    last_error = answer->error ? answer->error->code : "";
  } else if (const auto* const send = std::get_if<SendToWorker>(&action)) {
    epoch_ = send->epoch;
    Reply(*send, next);
  } else if (std::holds_alternative<ContinueLater>(action)) {
    next.push_back(Continue{});
  }
  const auto* const commit = std::get_if<Commit>(&action);
  if (commit == nullptr) return;
  next.push_back(Committed{commit->commit_id});
  for (const Write& write : commit->writes) {
    if (const auto* const done = std::get_if<CompleteRequest>(&write)) {
      ++num_completed[done->request_id];
    } else if (const auto* const session = std::get_if<PutSession>(&write)) {
      if (session->row.state == SessionState::kFinished) {
        finished_sessions.insert(session->row.session_id);
      }
      if (session->row.state == SessionState::kEnded)
        ended_sessions.insert(session->row.session_id);
    } else if (const auto* const model = std::get_if<PutModel>(&write)) {
      if (model->row.state == ModelState::kUnloaded) unloaded_models.insert(model->row.model_id);
      if (model->row.is_offloaded) offloaded_models.insert(model->row.model_id);
    } else if (const auto* const sampler = std::get_if<DeleteSampler>(&write)) {
      deleted_samplers.insert(sampler->sampling_session_id);
    }
  }
}

void ScaleWorld::Tick(const std::string& kind) {
  now += kSecond;
  Step(kind, engine::Tick{});
}

void ScaleWorld::AttachWorker(const std::string& kind) {
  WorkerAttached hello;
  hello.group = kGroup;
  hello.stream_id = ++last_id_;
  hello.process_id = absl::StrFormat("p%d", last_id_);
  hello.base_model = "base";
  hello.ready = ReadyModel{Base(), 1000};
  Step(kind, std::move(hello));
}

void ScaleWorld::LoseWorker() {
  WorkerDetached event;
  event.group = kGroup;
  event.process_gone = true;
  event.cause = LossCause::kKilled;
  running.clear();
  Step("worker lost", std::move(event));
}

std::string ScaleWorld::SubmitSample(int64_t session, int64_t seq) {
  Submit submit;
  submit.call = ++last_call_;
  submit.tenant_id = kTenant;
  submit.owner_id = SessionId(session) + ":sample:0";
  submit.op_class = OpClass::kSample;
  submit.seq_id = seq;
  submit.kind = OperationKind::kSample;
  submit.args = SampleArgs{.num_samples = 1, .prompt_tokens = 3, .max_tokens = 5};
  Step("submit sample", std::move(submit));
  return last_error;
}

std::string ScaleWorld::CreateModel(int64_t session, int64_t seq) {
  Submit submit;
  submit.call = ++last_call_;
  submit.tenant_id = kTenant;
  submit.owner_id = SessionId(session);
  submit.op_class = OpClass::kModel;
  submit.seq_id = seq;
  submit.kind = OperationKind::kCreateModel;
  submit.args = CreateModelArgs{.base_model = "base"};
  Step("create model", std::move(submit));
  return last_error;
}

void ScaleWorld::CompleteSample(const std::string& request_id) {
  WorkerDone done;
  done.group = kGroup;
  done.epoch = epoch_;
  done.request_id = request_id;
  done.result_id = "result-" + request_id;
  done.sampled_tokens = 5;
  running.erase(request_id);
  Step("sample done", std::move(done));
}

void ScaleWorld::Print() const {
  std::printf("%-36s %8s %9s %9s %9s %9s %9s\n", "step", "number", "p50 ms", "p99 ms", "max ms",
              "effects", "visited");
  for (const auto& [kind, sizes] : steps) {
    std::vector<int64_t> sorted = sizes.nanoseconds;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double share) {
      const auto i = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1));
      return static_cast<double>(sorted[i]) / 1e6;
    };
    std::printf("%-36s %8zu %9.3f %9.3f %9.3f %9lld %9lld\n", kind.c_str(), sorted.size(), at(0.5),
                at(0.99), at(1), static_cast<long long>(sizes.max_effects),
                static_cast<long long>(sizes.max_visited));
  }
}

}  // namespace lathe::engine

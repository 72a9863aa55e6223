#include "services/engine/core/testing/core_harness.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lathe::engine {

CoreHarness::CoreHarness(CoreOptions options)
    : options_(options), core_(std::make_unique<Core>(options)) {
  Post(Loaded{store.TakeLeadership(), seed_});
}

void CoreHarness::CommitOne() {
  const Commit commit = std::move(commits_.front());
  commits_.pop_front();
  store.Apply(commit.writes);
  Post(Committed{commit.commit_id});
}

void CoreHarness::CommitAll() {
  while (!commits_.empty()) CommitOne();
}

void CoreHarness::Advance(int64_t nanoseconds) {
  now += nanoseconds;
  Post(engine::Tick{});
}

void CoreHarness::Continue() {
  is_continue_due = false;
  Post(engine::Continue{});
}

void CoreHarness::AttachWorker(const std::string& process_id, bool ready,
                               const std::string& base_model) {
  worker = std::make_unique<FakeWorker>(process_id, disk, base_model);
  worker->is_supervised = is_supervised;
  worker->pid = pid;
  worker->mesh = mesh;
  worker->role = role;
  worker->serves_versions = serves_versions;
  attached = true;
  Post(worker->Hello(ready));
}

FakeWorker& CoreHarness::AttachOther(const std::string& group, GroupRole other_role) {
  auto other = std::make_unique<FakeWorker>("process of " + group, disk, "base", group);
  other->role = other_role;
  FakeWorker& attached_now = *other;
  others[group] = std::move(other);
  Post(attached_now.Hello());
  return attached_now;
}

void CoreHarness::ReattachAs(const WorkerAttached& hello) {
  attached = true;
  Post(hello);
}

void CoreHarness::DetachWorker(bool process_gone) {
  attached = false;
  Post(WorkerDetached{"g", process_gone});
}

void CoreHarness::RunWorkerOnce() {
  const auto run = [this](FakeWorker& one, bool is_attached) {
    if (one.HasWork()) one.RunOne();
    if (!is_attached) return;
    for (EventBody& report : one.TakeReports()) Post(std::move(report));
  };
  if (worker) run(*worker, attached);
  for (const auto& [group, other] : others) run(*other, /*is_attached=*/true);
}

bool CoreHarness::HasWork() const {
  return (worker && worker->HasWork()) ||
         std::any_of(others.begin(), others.end(),
                     [](const auto& other) { return other.second->HasWork(); });
}

void CoreHarness::RunWorker() {
  do {
    RunWorkerOnce();
    if (hold_commits_ && !HasWork()) CommitAll();
  } while (HasWork());
}

void CoreHarness::RestartEngine() {
  commits_.clear();
  events_.clear();
  attached = false;
  core_ = std::make_unique<Core>(options_);
  actions.clear();
  tenants.clear();
  Post(Loaded{store.TakeLeadership(), ++seed_});
}

void CoreHarness::Post(EventBody body) {
  events_.push_back(std::move(body));
  PumpEvents();
}

void CoreHarness::PumpEvents() {
  if (pumping_) return;
  pumping_ = true;
  while (!events_.empty()) {
    EventBody body = std::move(events_.front());
    events_.pop_front();
    StepCore(std::move(body));
  }
  pumping_ = false;
}

void CoreHarness::StepCore(EventBody body) {
  const Event event{++now, std::move(body)};
  std::vector<Action> out;
  core_->Step(event, &out);
  for (const Action& action : out) {
    actions.push_back(action);
    Execute(action);
  }
  CheckUsage();
}

void CoreHarness::CheckUsage() const {
  std::map<std::string, TenantUsage> published;
  for (const auto& [id, tenant] : tenants) {
    if (tenant.usage != TenantUsage()) published[id] = tenant.usage;
  }
  if (published != core_->RecountUsage()) throw std::logic_error("a tenant's counters drifted");
}

void CoreHarness::Execute(const Action& action) {
  if (const auto* commit = std::get_if<Commit>(&action)) {
    for (const Write& write : commit->writes) {
      const auto* complete = std::get_if<CompleteRequest>(&write);
      if (complete != nullptr) result_of[complete->request_id] = complete->result_id;
    }
    if (hold_commits_) {
      commits_.push_back(*commit);
    } else {
      store.Apply(commit->writes);
      events_.push_back(Committed{commit->commit_id});
    }
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    if (!answers.emplace(answer->call, *answer).second) throw std::logic_error("answered twice");
  } else if (const auto* result = std::get_if<MakeResult>(&action)) {
    made[result->result_id] = *result;
  } else if (const auto* notify = std::get_if<NotifyDone>(&action)) {
    done.insert(notify->request_id);
  } else if (const auto* state = std::get_if<NotifyQueueState>(&action)) {
    queue_state = *state;
    queue_states[state->group] = *state;
  } else if (const auto* action_of_group = std::get_if<NotifyGroup>(&action)) {
    notified_groups[action_of_group->request_id] = action_of_group->group;
  } else if (const auto* model = std::get_if<NotifyModelState>(&action)) {
    model_states[model->model_id] = *model;
  } else if (const auto* drain = std::get_if<NotifyGroupDrain>(&action)) {
    drains[drain->group] = *drain;
  } else if (const auto* tenant = std::get_if<NotifyTenant>(&action)) {
    tenants[tenant->tenant_id] = *tenant;
  } else if (const auto* send = std::get_if<SendToWorker>(&action)) {
    if (send->rank > 0 || std::holds_alternative<SendDie>(send->command)) {
      to_ranks.push_back(*send);
    } else if (const auto other = others.find(send->group); other != others.end()) {
      other->second->Receive(*send);
    } else if (attached) {
      worker->Receive(*send);
    }
  } else if (std::holds_alternative<ContinueLater>(action)) {
    is_continue_due = true;
    if (!hold_continues) Continue();
  } else if (const auto* files = std::get_if<DeleteFiles>(&action)) {
    deleted_dirs.insert(files->dir);
  } else if (const auto* other_files = std::get_if<DeleteOtherFiles>(&action)) {
    needed_dirs = other_files->needed_dirs;
  } else if (const auto* body = std::get_if<ForgetBody>(&action)) {
    forgotten_bodies.insert(body->body_id);
  } else if (const auto* note = std::get_if<RecordRecovery>(&action)) {
    recoveries.push_back(*note);
  }
}

const Answer* CoreHarness::FindAnswer(CallId call) const {
  const auto it = answers.find(call);
  return it == answers.end() ? nullptr : &it->second;
}

const Answer& CoreHarness::AnswerTo(CallId call) const { return answers.at(call); }

std::string CoreHarness::NewSession(SessionOrdering ordering, const std::string& tenant) {
  CreateSession event;
  event.call = ++last_call;
  event.row.tenant_id = tenant;
  event.row.ordering = ordering;
  Post(event);
  CommitAll();
  return AnswerTo(last_call).id;
}

std::string CoreHarness::NewModel(const std::string& session, int64_t model_seq,
                                  const std::string& tenant) {
  CreateModel(session, model_seq, tenant);
  CommitAll();
  RunWorker();
  return session + ":train:" + std::to_string(model_seq);
}

CallId CoreHarness::CreateModel(const std::string& session, int64_t model_seq,
                                const std::string& tenant) {
  CreateModelArgs args;
  args.base_model = "base";
  return SubmitArgs(session, OpClass::kModel, model_seq, OperationKind::kCreateModel, args, tenant);
}

CallId CoreHarness::Train(const std::string& model, int64_t seq, OperationKind kind,
                          const std::string& content, const std::string& tenant, int64_t tokens) {
  Submit submit;
  submit.tenant_id = tenant;
  submit.owner_id = model;
  submit.seq_id = seq;
  submit.kind = kind;
  submit.content_hash = content;
  if (kind == OperationKind::kOptimStep) {
    submit.args = OptimStepArgs{};
  } else {
    const bool forward_only = kind == OperationKind::kForward;
    submit.args = TrainArgs{};
    submit.payload = {"body-" + std::to_string(last_call + 1), tokens * 4, tokens};
    disk.bodies[submit.payload.body_id] =
        std::make_shared<RequestBody>(RequestBody{model, seq, forward_only});
  }
  return Send(std::move(submit));
}

CallId CoreHarness::Save(const std::string& model, int64_t seq, SaveArgs args, OperationKind kind) {
  return SubmitArgs(model, OpClass::kTrain, seq, kind, std::move(args));
}

CallId CoreHarness::SubmitArgs(const std::string& owner, OpClass op_class, int64_t seq,
                               OperationKind kind, OperationArgs args, const std::string& tenant) {
  Submit submit;
  submit.tenant_id = tenant;
  submit.owner_id = owner;
  submit.op_class = op_class;
  submit.seq_id = seq;
  submit.kind = kind;
  submit.args = std::move(args);
  return Send(std::move(submit));
}

CallId CoreHarness::Sampler(const std::string& session, int64_t seq, const std::string& path,
                            const std::string& tenant) {
  CreateSamplingSession event;
  event.call = ++last_call;
  event.tenant_id = tenant;
  event.session_id = session;
  event.sampling_session_seq_id = seq;
  if (path.empty()) {
    event.base_model = "base";
  } else {
    event.model_path = path;
  }
  Post(event);
  return last_call;
}

CallId CoreHarness::Sample(const std::string& sampler, int64_t seq, SampleArgs args,
                           const std::string& tenant) {
  return SubmitArgs(sampler, OpClass::kSample, seq, OperationKind::kSample, args, tenant);
}

CallId CoreHarness::Send(Submit submit) {
  submit.call = ++last_call;
  Post(std::move(submit));
  return last_call;
}

std::optional<ErrorInfo> CoreHarness::ErrorOf(CallId call) const {
  const MakeResult* const result = ResultOf(call);
  return result == nullptr ? std::nullopt : result->error;
}

const MakeResult* CoreHarness::ResultOf(CallId call) const {
  const auto it = made.find(result_of.at(AnswerTo(call).id));
  return it == made.end() ? nullptr : &it->second;
}

}  // namespace lathe::engine

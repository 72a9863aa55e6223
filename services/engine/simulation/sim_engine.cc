#include "services/engine/simulation/sim_engine.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/simulation/sim_worker.h"

namespace lathe::engine::simulation {
namespace {

SimResult ToResult(const MakeResult& made) {
  SimResult result;
  result.failed = made.error.has_value();
  if (made.error) {
    result.code = made.error->code;
    result.message = made.error->message;
  }
  result.model_id = made.model_id;
  result.path = made.path;
  result.sampling_session_id = made.sampling_session_id;
  return result;
}

}  // namespace

SimEngine::SimEngine(World& world)
    : world_(world),
      name_(absl::StrFormat("engine%d", ++world.last_process)),
      core_(world.swarm.core),
      bugs_(world.bug, world.random) {
  StoredState state = world_.store.TakeLeadership(world_.Now());
  term_ = state.term;
  dirs_at_start_ = world_.disk.List();
  Post(Loaded{.state = std::move(state), .random_seed = world_.random.Next()});
  Tick();
}

void SimEngine::Tick() {
  world_.time.After(kSecond, [this] {
    if (is_dead_) return;
    if (!is_frozen_) {
      if (FindsLeaseLost()) return Kill();
      Post(engine::Tick{});
    }
    Tick();
  });
}

// A leader checks its lease every few seconds.
bool SimEngine::FindsLeaseLost() const {
  return world_.store.term() != term_ && world_.random.Chance(300) &&
         world_.bug != SeededBug::kNoTermCheck;
}

void SimEngine::Kill() {
  if (is_dead_) return;
  is_dead_ = true;
  world_.trace.Log(world_.time.now(), [&] { return name_ + " is killed"; });
  for (const auto& [rank, link] : links_) {
    link->open_at_engine = false;
    world_.time.After(world_.Delay(kSecond), [closed = link] { closed->worker->OnClosed(closed); });
  }
  links_.clear();
}

void SimEngine::Thaw() {
  if (is_dead_) return;
  is_frozen_ = false;
  world_.trace.Log(world_.time.now(), [&] { return name_ + " goes on"; });
  Post(engine::Tick{});
}

void SimEngine::Post(EventBody event) {
  if (is_dead_) return;
  inbox_.push_back(std::move(event));
  if (is_frozen_ || is_stepping_) return;
  is_stepping_ = true;
  while (!inbox_.empty() && !is_dead_) {
    EventBody next = std::move(inbox_.front());
    inbox_.pop_front();
    Step(std::move(next));
  }
  is_stepping_ = false;
}

void SimEngine::Step(EventBody body) {
  bugs_.Change(body);
  const bool is_tick = std::holds_alternative<engine::Tick>(body);
  const Event event{.now = world_.Now(), .body = std::move(body)};
  world_.trace.Add(name_.c_str(), world_.time.now(), event.body);
  std::vector<Action> actions;
  core_.Step(event, &actions);
  bugs_.Change(actions);
  for (Action& action : actions) {
    world_.trace.Add("  ->", world_.time.now(), action);
    std::visit([this](auto& one) { Execute(one); }, action);
  }
  if (is_tick) CheckPublishedUsage();
}

// ---- store

void SimEngine::Execute(Commit& action) {
  for (const Write& write : action.writes) {
    if (const auto* const insert = std::get_if<InsertRequest>(&write)) {
      const auto body = held_bodies_.find(insert->row.body_id);
      if (body != held_bodies_.end() && !body->second.is_large) {
        queued_.bodies.emplace_back(body->first, body->second.body);
      }
    } else if (const auto* const complete = std::get_if<CompleteRequest>(&write)) {
      const auto result = held_results_.find(complete->result_id);
      if (result == held_results_.end()) {
        throw Violation("I1",
                        complete->request_id + " completes with a result that does not exist");
      }
      queued_.results.insert(*result);
    }
  }
  queued_.commits.push_back(std::move(action));
  if (!is_committing_) BeginCommit();
}

void SimEngine::BeginCommit() {
  is_committing_ = true;
  const auto group = std::make_shared<CommitGroup>(std::exchange(queued_, CommitGroup()));
  world_.time.After(world_.Delay(world_.swarm.max_commit), [this, group] { EndCommit(group); });
  if (world_.bug == SeededBug::kFsyncRemoved) {
    Post(Committed{.commit_id = group->commits.back().commit_id});
  }
}

// If an engine died meanwhile, its commit may have succeeded without its knowledge.
void SimEngine::EndCommit(const std::shared_ptr<CommitGroup>& group) {
  if (!is_dead_ && world_.random.Chance(world_.swarm.store_error)) Kill();
  if (is_dead_ && !world_.random.Chance(world_.swarm.commit_survives)) return;
  const bool applied = world_.store.Apply(term_, *group);
  if (is_dead_) return;
  if (!applied) {
    world_.trace.Log(world_.time.now(), [&] { return name_ + " leads no more"; });
    return Kill();
  }
  OnDurable(*group);
  is_committing_ = false;
  if (world_.bug != SeededBug::kFsyncRemoved) {
    Post(Committed{.commit_id = group->commits.back().commit_id});
  }
  if (!queued_.commits.empty() && !is_committing_) BeginCommit();
}

void SimEngine::OnDurable(const CommitGroup& group) {
  for (const Commit& commit : group.commits) {
    for (const Write& write : commit.writes) {
      if (const auto* const insert = std::get_if<InsertRequest>(&write)) {
        const auto body = held_bodies_.find(insert->row.body_id);
        if (body != held_bodies_.end()) body->second.is_committed = true;
        CheckBounds(insert->row);
      } else if (const auto* const session = std::get_if<PutSession>(&write)) {
        CheckTenant(session->row.tenant_id);
      } else if (const auto* const sampler = std::get_if<PutSampler>(&write)) {
        CheckTenant(sampler->row.tenant_id);
      } else if (const auto* const complete = std::get_if<CompleteRequest>(&write)) {
        held_results_.erase(complete->result_id);
      }
    }
  }
}

void SimEngine::CheckBounds(const RequestRow& row) const {
  const CoreOptions& options = world_.swarm.core;
  const auto check = [&](const std::string& id, int64_t limit) {
    if (world_.store.NumLive(id) <= limit) return;
    throw Violation("I6", absl::StrFormat("%s has %d unfinished requests, limit is %d", id,
                                          world_.store.NumLive(id), limit));
  };
  check(row.tenant_id, options.max_rows_per_tenant);
  if (row.op_class == OpClass::kTrain) check(row.owner_id, options.max_rows_per_model);
}

void SimEngine::CheckTenant(const std::string& tenant_id) const {
  const CoreOptions& options = world_.swarm.core;
  const TenantUsage usage = world_.store.CountUsage()[tenant_id];
  const auto check = [&](const char* what, int64_t count, int64_t limit) {
    if (limit == 0 || count <= limit) return;
    throw Violation("I6",
                    absl::StrFormat("%s has %d %s, limit is %d", tenant_id, count, what, limit));
  };
  check("sessions", usage.sessions, options.max_sessions_per_tenant);
  check("samplers", usage.samplers, options.max_samplers_per_tenant);
}

std::map<std::string, TenantUsage> SimEngine::PublishedUsage() const {
  std::map<std::string, TenantUsage> published;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.usage != TenantUsage()) published[id] = tenant.usage;
  }
  return published;
}

void SimEngine::CheckPublishedUsage() const {
  if (PublishedUsage() == core_.RecountUsage()) return;
  throw Violation("I6", name_ + " publishes other counters than its tenants have");
}

void SimEngine::CheckUsageIsStored() const {
  if (PublishedUsage() != world_.store.CountUsage()) {
    throw Violation("I6", name_ + " counts other sessions, samplers or results than the store has");
  }
  const CoreOptions& options = world_.swarm.core;
  int64_t num_unfetched = 0;
  int64_t most_unfetched = 0;
  for (const auto& [id, usage] : PublishedUsage()) {
    num_unfetched += usage.unfetched_results;
    most_unfetched = std::max(most_unfetched, usage.unfetched_results);
    const bool is_over = usage.unfetched_results > options.max_unfetched_results_per_tenant ||
                         usage.unfetched_bytes > options.max_unfetched_bytes_per_tenant;
    if (usage.unfetched_results <= 1 || !is_over) continue;
    throw Violation("I6", absl::StrFormat("%s has %d unfetched results of %d bytes", id,
                                          usage.unfetched_results, usage.unfetched_bytes));
  }
  if (num_unfetched > options.max_unfetched_results_total && most_unfetched > 1) {
    throw Violation("I6", absl::StrFormat("%d unfetched results are kept", num_unfetched));
  }
}

// ---- callers

void SimEngine::Call(EventBody event, const SharedBody& body, Reply reply) {
  if (is_dead_) return;
  const CallId call = ++last_call_;
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.call; }) one.call = call;
      },
      event);
  const auto* const new_submit = std::get_if<Submit>(&event);
  const auto tenant = new_submit == nullptr ? tenants_.end() : tenants_.find(new_submit->tenant_id);
  const bool has_room =
      tenant == tenants_.end() || tenant->second.room.Allows(new_submit->payload, world_.Now());
  if (body != nullptr && !has_room) {
    std::get<Submit>(event).payload.is_withheld = true;
  } else if (body != nullptr) {
    auto& submit = std::get<Submit>(event);
    const std::string id = absl::StrFormat("%s-body%d", name_, ++last_id_);
    const bool is_large = world_.random.Chance(world_.swarm.large_body);
    held_bodies_[id] = {body, is_large, false};
    if (is_large) world_.store.PutLargeBody(id, body);
    submit.payload.body_id = id;
  }
  const auto* const submit = std::get_if<Submit>(&event);
  if (submit != nullptr) reply = Resolving(*submit, std::move(reply));
  calls_[call] = std::move(reply);
  Post(std::move(event));
}

SimEngine::Reply SimEngine::Resolving(const Submit& submit, Reply reply) {
  if (!MayBeStored(submit)) return reply;
  return [this, submit, reply = std::move(reply)](const Answer& answer) {
    const RequestRow* const row = IsClosedSeq(answer)
                                      ? world_.store.FindByKey(submit.tenant_id, submit.owner_id,
                                                               submit.op_class, submit.seq_id)
                                      : nullptr;
    reply(row == nullptr ? answer : AnswerFromStore(submit, *row));
  };
}

void SimEngine::Execute(Answer& action) {
  const auto it = calls_.find(action.call);
  if (it == calls_.end()) {
    throw Violation("I1", absl::StrFormat("call %d of %s is answered twice", action.call, name_));
  }
  const Reply reply = std::move(it->second);
  calls_.erase(it);
  // The lease is checked before an answer leaves: an old leader may lack the object that the call
  // names, and must not report it as absent.
  if (world_.store.term() == term_ || world_.bug == SeededBug::kNoTermCheck) reply(action);
}

const SimResult* SimEngine::GetResult(const std::string& request_id) {
  const SimResult* const result = world_.store.FindResult(request_id);
  if (result == nullptr) return nullptr;
  if (world_.bug == SeededBug::kDeliveredWhenSent) PostDelivered(request_id);
  return result;
}

void SimEngine::PostDelivered(const std::string& request_id) {
  Post(Delivered{request_id, world_.store.history().at(request_id).row.tenant_id});
}

void SimEngine::Execute(MakeResult& action) { held_results_[action.result_id] = ToResult(action); }

void SimEngine::Execute(ForgetBody& action) {
  const auto it = held_bodies_.find(action.body_id);
  if (it == held_bodies_.end()) return;
  if (it->second.is_large && !it->second.is_committed) {
    world_.store.DiscardLargeBody(action.body_id);
  }
  held_bodies_.erase(it);
}

// Checks that an operation that ran again had the same weights as the first time.
void SimEngine::Execute(CompareReplay& action) {
  const auto again = held_results_.find(action.result_id);
  const SimResult* const first = world_.store.FindResult(action.request_id);
  const bool differs = again != held_results_.end() && first != nullptr && first->weights != 0 &&
                       first->weights != again->second.weights;
  held_results_.erase(action.result_id);
  if (differs) throw Violation("I2", action.request_id + " ran again on other weights");
}

// Many events may wait before it.
void SimEngine::Execute(ContinueLater&) {
  world_.time.After(world_.Delay(kSecond), [this] { Post(Continue{}); });
}

void SimEngine::Execute(DeleteFiles& action) { world_.disk.Delete(action.dir); }

void SimEngine::Execute(DeleteOtherFiles& action) {
  for (const std::string& dir : dirs_at_start_) {
    const auto& needed = action.needed_dirs;
    if (!std::binary_search(needed.begin(), needed.end(), dir)) world_.disk.Delete(dir);
  }
  dirs_at_start_.clear();
}

// ---- workers

SharedBody SimEngine::BodyFor(const SendToWorker& command, const std::string& request_id,
                              const std::string& body_id) {
  const auto held = held_bodies_.find(body_id);
  SharedBody body = held != held_bodies_.end() ? held->second.body : nullptr;
  // Committed bodies do not stay in memory for long.
  if (body == nullptr || held->second.is_committed) body = world_.store.FindBody(body_id);
  if (body != nullptr) return body;
  WorkerDone done;
  done.group = command.group;
  done.epoch = command.epoch;
  done.request_id = request_id;
  done.error = ErrorInfo{absl::StatusCode::kDataLoss, "body_lost", "", "body is lost"};
  done.result_id = absl::StrFormat("%s-lost%d", name_, ++last_id_);
  held_results_[done.result_id] = {.failed = true, .code = "body_lost", .message = "body is lost"};
  Post(std::move(done));
  return nullptr;
}

void SimEngine::Execute(SendToWorker& action) {
  const auto it = links_.find({action.group, action.rank});
  if (it == links_.end() || it->second->stream_id != action.stream_id) return;
  EngineMessage message{.send = std::move(action), .bodies = {}};
  if (auto* const batch = std::get_if<SendTrainBatch>(&message.send.command)) {
    std::erase_if(batch->items, [&](const SendTrainBatch::Item& item) {
      SharedBody body = BodyFor(message.send, item.request_id, item.body_id);
      if (body == nullptr) return true;
      message.bodies[item.body_id] = std::move(body);
      return false;
    });
  } else if (const auto* const sample = std::get_if<SendSample>(&message.send.command)) {
    SharedBody body = BodyFor(message.send, sample->request_id, sample->body_id);
    if (body == nullptr) return;
    message.bodies[sample->body_id] = std::move(body);
  }
  const std::shared_ptr<Link> link = it->second;
  // The worker's parent is asked to kill it too.
  if (world_.swarm.is_supervised && std::holds_alternative<SendDie>(message.send.command)) {
    world_.time.After(world_.Delay(5 * kSecond), [link] { link->worker->Die(LossCause::kEnded); });
  }
  world_.time.After(ArrivalAfter(world_, link->last_to_worker),
                    [link, message = std::move(message)]() mutable {
                      if (link->is_black_hole) return;
                      link->worker->Receive(link, std::move(message));
                    });
}

void SimEngine::OnHello(const std::shared_ptr<Link>& link, const WorkerAttached& hello) {
  if (is_dead_) return link->worker->OnClosed(link);
  link->stream_id = ++last_id_;
  const std::shared_ptr<Link> replaced = std::exchange(links_[{link->group, link->rank}], link);
  if (replaced != nullptr) {
    CloseLink(replaced);
    Post(WorkerDetached{.group = link->group, .rank = link->rank});
  }
  WorkerAttached attached = hello;
  attached.stream_id = link->stream_id;
  Post(std::move(attached));
}

void SimEngine::OnReport(const std::shared_ptr<Link>& link, WorkerReport report) {
  const auto it = links_.find({link->group, link->rank});
  if (it == links_.end() || it->second != link) return;
  if (auto* const done = std::get_if<WorkerDone>(&report.event)) {
    done->result_id = absl::StrFormat("%s-result%d", name_, ++last_id_);
    constexpr int64_t kResultBytes = 100;
    done->result_bytes = kResultBytes;
    held_results_[done->result_id] = std::move(report.result);
  }
  Post(std::move(report.event));
}

void SimEngine::CloseLink(const std::shared_ptr<Link>& link) {
  link->open_at_engine = false;
  world_.time.After(world_.Delay(kSecond), [link] { link->worker->OnClosed(link); });
}

void SimEngine::End(const std::shared_ptr<Link>& link, WorkerDetached detached) {
  const auto it = links_.find({link->group, link->rank});
  if (is_dead_ || it == links_.end() || it->second != link) return;
  links_.erase(it);
  CloseLink(link);
  Post(std::move(detached));
}

void SimEngine::CheckHoldsNothing() const {
  if (!held_bodies_.empty()) {
    throw Violation("I6", absl::StrFormat("%s still holds %d bodies, one is %s", name_,
                                          held_bodies_.size(), held_bodies_.begin()->first));
  }
  if (!held_results_.empty()) {
    throw Violation("I6", absl::StrFormat("%s still holds %d results, one is %s", name_,
                                          held_results_.size(), held_results_.begin()->first));
  }
  if (!calls_.empty()) {
    throw Violation("I1", absl::StrFormat("%d calls of %s got no answer", calls_.size(), name_));
  }
}

}  // namespace lathe::engine::simulation

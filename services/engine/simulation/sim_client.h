// A user's program: one session, some models and samplers, and retries. It remembers all answers.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/events.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

// A request of a client with its outcome.
struct ClientOp {
  Submit submit;
  SharedBody body;
  bool is_answered = false;
  bool is_given_up = false;
  bool is_reuse = false;    // another request under a used seq; must be refused
  bool is_foreign = false;  // for another tenant's object; must be refused
  bool is_cancelled = false;
  bool is_forgotten = false;  // the client came back without it
  bool is_dropped = false;    // a limit of its tenant removed the result
  int64_t accepted_at = 0;
  std::string request_id;  // empty: not accepted
  std::optional<SimResult> result;
};

class SimClient {
 public:
  // `find_engine`: the engine that a call reaches; nullptr: none. `neighbours`: clients with ids of
  // other tenants; must outlive this.
  SimClient(World& world, int64_t number, std::function<SimEngine*()> find_engine,
            const std::vector<std::unique_ptr<SimClient>>& neighbours);

  // Schedules the next action.
  void Begin();
  // Stops new requests. Open ones are followed to their end.
  void Wind() { num_actions_left_ = 0; }
  bool has_acted() const { return has_vanished_ || num_actions_left_ == 0; }
  // Returns true if all calls have answers and all accepted requests have results.
  bool is_settled() const;
  // Lists what is_settled waits for.
  std::string OpenWork() const;
  void FinishSession();
  bool has_vanished() const { return has_vanished_; }
  // A vanished client continues with its session and models.
  void ComeBack();
  // Runs a request on each model, so that a worker has it.
  void TouchModels();

  const std::vector<std::string>& object_ids() const { return object_ids_; }

 private:
  struct Program {
    std::string model_id;
    ClientOp* creation = nullptr;
    int64_t next_seq = 1;
    std::vector<int64_t> skipped_seqs;
    std::vector<ClientOp*> ops;
    bool is_unloaded = false;
  };
  struct SamplerProgram {
    std::string id;
    int64_t next_seq = 1;
  };
  using OnAnswer = std::function<void(const Answer&)>;

  void Act();
  void ActOnce();
  void CreateModel();
  void Train(Program& program);
  void TrainChunks(Program& program);
  void TrainLate(Program& program);
  void Reuse(Program& program);
  void Intrude();
  void Sample();
  void MakeSampler();
  void RemoveCheckpoint();
  void Unload(Program& program);
  void Vanish();
  void Nap();
  void SendHeartbeat();

  bool Chance(int64_t per_mille) { return world_.random.Chance(per_mille); }
  ClientOp& NewOp(Submit submit);
  Submit NewSubmit(const std::string& owner, OpClass op_class, int64_t seq_id, OperationKind kind,
                   OperationArgs args);
  ClientOp& SendTraining(Program& program, int64_t seq_id, OperationKind kind);
  OperationArgs ArgsOf(OperationKind kind, const Program& program);
  void AddBody(ClientOp& op, bool forward_only, int64_t num_samples = 1);

  // Sends the request repeatedly until it is answered or given up.
  void Send(ClientOp& op);
  void SendOnce(const EventBody& event, const SharedBody& body, const OnAnswer& on_answer);
  // The same as Send, for calls that are no requests.
  void Ask(EventBody event, OnAnswer on_answer);
  void HandleAnswer(ClientOp& op, const Answer& answer);
  void HandleRefusal(ClientOp& op, const ErrorInfo& error);
  void Poll(ClientOp& op);
  void ReadAgain(ClientOp& op);
  void SendAgain(ClientOp& op);
  void HandleResult(ClientOp& op, const SimResult& result);
  void RecordSuccess(const ClientOp& op, const SimResult& result);

  // Return true if `op` may be refused, or fail, with that code.
  bool MayBeRefused(const ClientOp& op, const ErrorInfo& error) const;
  bool MayFail(const ClientOp& op, const SimResult& result) const;
  bool session_may_be_over() const;
  bool may_have_been_silent() const;
  void RecordAnswer();
  void HandleSession(const Answer& answer);
  // Returns true if a limit has removed the result of `op`.
  bool IsDropped(const ClientOp& op) const;
  // Returns true if a repetition of `op` may become another request.
  bool IsForgotten(const ClientOp& op) const;
  // Checks that a request that a limit refused is not in the store as one that runs.
  void CheckNotAccepted(const Submit& submit) const;
  // Records a silence after which the server may have regarded the client as gone.
  void RecordSilence();

  World& world_;
  const std::string name_;
  const std::string tenant_id_;
  const bool is_serial_;
  const std::function<SimEngine*()> find_engine_;
  const std::vector<std::unique_ptr<SimClient>>& neighbours_;
  int64_t num_actions_left_;
  bool has_vanished_ = false;
  bool naps_ = false;
  bool is_finishing_ = false;
  bool is_finished_ = false;
  std::string session_id_;
  bool asks_for_session_ = false;
  int64_t heard_at_ = 0;   // last sign that the session lives
  bool was_away_ = false;  // for so long that the session may be over
  int64_t num_asking_ = 0;
  int64_t next_model_seq_ = 0;
  int64_t next_sampler_seq_ = 0;
  std::list<Program> programs_;
  std::list<SamplerProgram> samplers_;
  std::list<ClientOp> ops_;
  std::vector<std::string> training_paths_;
  std::vector<std::string> sampler_paths_;
  std::vector<std::string> object_ids_;  // models, samplers
};

}  // namespace lathe::engine::simulation

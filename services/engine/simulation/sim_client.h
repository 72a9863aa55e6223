// A program of a user: one session, some models and samplers, retries, and a memory of all it was
// told.
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

// A request of a client and what became of it.
struct ClientOp {
  Submit submit;
  SharedBody body;
  bool is_answered = false;
  bool is_given_up = false;
  bool is_reuse = false;    // of a seq, with other content: to be refused
  bool is_foreign = false;  // on another tenant's object: to be refused
  bool is_cancelled = false;
  bool is_forgotten = false;  // by a client that came back
  int64_t accepted_at = 0;
  std::string request_id;  // empty: not accepted
  std::optional<SimResult> result;
};

class SimClient {
 public:
  // `find_engine`: whom a call reaches; nullptr: nobody. `neighbours`: where other tenants' ids are
  // found; must outlive this.
  SimClient(World& world, int64_t number, std::function<SimEngine*()> find_engine,
            const std::vector<std::unique_ptr<SimClient>>& neighbours);

  // Takes up its next action, later.
  void Begin();
  // No more new requests; what is open is followed to its end.
  void Wind() { num_actions_left_ = 0; }
  bool has_acted() const { return has_vanished_ || num_actions_left_ == 0; }
  // Everything it asked for was answered, everything accepted has a result.
  bool is_settled() const;
  // What is_settled waits for, for people.
  std::string WhatIsOpen() const;
  void FinishSession();
  bool has_vanished() const { return has_vanished_; }
  // It vanished, and goes on with the session and the models that it had.
  void ComeBack();
  // Runs something on each of its models, and so has it with a worker.
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
  void Beat();

  bool Chance(int64_t per_mille) { return world_.random.Chance(per_mille); }
  ClientOp& NewOp(Submit submit);
  Submit NewSubmit(const std::string& owner, OpClass op_class, int64_t seq_id, OperationKind kind,
                   OperationArgs args);
  ClientOp& SendTraining(Program& program, int64_t seq_id, OperationKind kind);
  OperationArgs ArgsOf(OperationKind kind, const Program& program);
  void AddBody(ClientOp& op, bool forward_only);

  // Sends it until it is answered or given up.
  void Send(ClientOp& op);
  void SendOnce(const EventBody& event, const SharedBody& body, const OnAnswer& on_answer);
  // As Send, for calls that are no requests.
  void Ask(EventBody event, OnAnswer on_answer);
  void HandleAnswer(ClientOp& op, const Answer& answer);
  void HandleRefusal(ClientOp& op, const ErrorInfo& error);
  void Poll(ClientOp& op);
  void ReadAgain(ClientOp& op);
  void SendAgain(ClientOp& op);
  void HandleResult(ClientOp& op, const SimResult& result);
  void NoteSuccess(const ClientOp& op, const SimResult& result);

  // Why `op` may be refused or fail with that code; false: it may not.
  bool MayBeRefused(const ClientOp& op, const ErrorInfo& error) const;
  bool MayFail(const ClientOp& op, const SimResult& result) const;
  bool session_may_be_over() const;
  bool may_have_been_silent() const;
  void NoteHeard();
  // The server may have taken the time without a word for the client's end.
  void NoteSilence();

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
  bool was_away_ = false;  // for so long that it may be over
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

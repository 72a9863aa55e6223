// One request from acceptance to its end: rows, counters and answers; not what it does.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// nullptr: no such key, or retention has forgotten it.
Request* FindByKey(State& s, const std::string& owner_id, OpClass op_class, int64_t seq_id);

// The bound that one more request of `tenant_id` would break. `model`: nullptr for samples.
std::optional<ErrorInfo> OverBound(const State& s, const std::string& tenant_id, const Model* model,
                                   int64_t bytes);

// Accepts `submit` under `seq_id`: its row joins this Step's Commit and its caller is answered.
// `group`: that will run it; may be empty for samples.
Request& Accept(State& s, const Submit& submit, int64_t seq_id, const std::string& session_id,
                const std::string& group, Plan plan);

// Refuses `submit`, and records its seq as used: a training seq that was answered is consumed.
void RefuseAndConsume(State& s, const Submit& submit, int64_t seq_id, ErrorInfo error);

// Adds a request to the indexes and counters; for Accept and for a restart.
Request& Track(State& s, Request request);

// Answers a repeated submission: the same ids, or why it is not a repetition.
void AnswerRepeated(State& s, const Submit& submit, const Request& request);

// That group is to run it; its caller is told when the Step ends.
void SetGroup(State& s, Request& request, const std::string& group);
void TellGroups(State& s);
// The request runs on another group than it was queued for; no group: on none.
void MoveToGroup(State& s, Request& request, const std::string& group);

// Its group's worker was sent it, and has not answered.
bool IsAtWorker(const State& s, const Request& request);
// Its group has it no more, neither to send nor at its worker: it will be sent again.
void TakeBack(State& s, Request& request);

// Ends a live request. A result that the worker made is named; its receipt is acknowledged.
void EndWithWorkerResult(State& s, Request& request, RequestState state,
                         const std::string& result_id);
// Ends a live request with a result of the core.
void Succeed(State& s, Request& request, MakeResult result, bool from_worker = true);
void Fail(State& s, Request& request, const ErrorInfo& error, bool from_worker = false);

// What others must know of a failure: a forward_backward leaves its gradient incomplete, and a
// model whose unload failed goes on.
void NoteFailure(State& s, const Request& request, const std::string& message);

// When a request that ended is forgotten; and takes that back.
void AddToRetention(State& s, const RequestRow& row);
void DropFromRetention(State& s, const RequestRow& row);

void OnDelivered(State& s, const Delivered& event);

}  // namespace lathe::engine

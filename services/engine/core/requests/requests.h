// Life of a request from acceptance to its end: rows, counters and answers, but not its work.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Returns nullptr if the key is unknown or retention has forgotten it.
// Finds a training request that came without seq_id.
Request* FindByIdempotencyKey(State& s, const std::string& model_id, const std::string& key);
Request* FindByKey(State& s, const std::string& owner_id, OpClass op_class, int64_t seq_id);

// Accepts `submit` under `seq_id`. Its row joins this Step's Commit, and its caller is answered.
// `group`: the group that will run it; may be empty for samples.
Request& Accept(State& s, const Submit& submit, int64_t seq_id, const std::string& session_id,
                const std::string& group, Plan plan);

// Refuses `submit` and records its seq as used: a training seq that was answered is consumed.
void RefuseAndConsume(State& s, const Submit& submit, int64_t seq_id, ErrorInfo error);

// Adds a request to the indexes and counters, at acceptance or at a restart.
Request& Track(State& s, Request request);

// Answers a duplicate submission: the same ids, or why it is not a duplicate.
void AnswerDuplicate(State& s, const Submit& submit, const Request& request);

// Assigns the request to a group. Its caller is notified when the Step ends.
void SetGroup(State& s, Request& request, const std::string& group);
void NotifyGroups(State& s);
// Moves the request to another group; an empty `group` means none.
void MoveToGroup(State& s, Request& request, const std::string& group);

// Returns true if its group's worker was sent the request and has not answered.
bool IsAtWorker(const State& s, const Request& request);
// Returns true if the processes of its group were sent the request. They may be running it, also
// while they are away.
bool MayRun(const State& s, const Request& request);
// Removes the request from its group's queues and worker records. It will be sent again.
void TakeBack(State& s, Request& request);

// Ends a live request with the result that the worker made, and acknowledges that result.
void EndWithWorkerResult(State& s, Request& request, RequestState state, const WorkerDone& done);
// Ends a live request with a result of the core. `from_worker`: also acknowledges the worker's
// report about the request.
void Succeed(State& s, Request& request, MakeResult result, bool from_worker = true);
void Fail(State& s, Request& request, const ErrorInfo& error, bool from_worker = false);

// Records the side effects of a failure: a failed forward_backward leaves its gradient incomplete,
// and a model whose unload failed continues.
void RecordFailure(State& s, Request& request, const std::string& message);

// Schedules when a finished request is forgotten.
void AddToRetention(State& s, const RequestRow& row);
// Removes a finished request from all tables.
void Forget(State& s, const Request& request);

// Removes the result of a finished request. A client that asks for it is told so.
void RemoveResult(State& s, Request& request);

void OnDelivered(State& s, const Delivered& event);

}  // namespace lathe::engine

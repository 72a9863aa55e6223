// Membership of a group: the processes of its ranks attach one by one, form a set, and end
// together.
//
// Ranks rendezvous once. Communicators join one set of processes, and a process cannot continue in
// another set. A group is therefore formed when all its ranks have attached, under a session that
// names the set. It is lost when one of its ranks is lost. The rest of a lost set is evicted, at
// once or when it reconnects.
#pragma once

#include <cstdint>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Returns nullptr if the group has no such rank.
Rank* FindRank(Group& group, int64_t rank);

// Returns true if the group has processes of another mesh than `mesh`. They cannot work with one of
// `mesh`.
bool HasOtherMesh(const Group& group, const MeshShape& mesh);
// Records the process and the mesh that it reports. If the mesh differs, the group gets new ranks;
// declare processes of the other mesh dead before.
void RecordArrival(Group& group, const WorkerAttached& event);

// Prefixes `how` for a group of several: "rank 1: signal 11". `rank` -1: no prefix.
std::string NameRank(const Group& group, int64_t rank, const std::string& how);

// "rank 1 of 4" or "3 of 4 ranks". Empty: all are attached.
std::string MissingRanks(const Group& group);

// Names the set of attached processes. For a group of one, this is the process id.
std::string SessionOf(const Group& group);

// Returns true if the rank belongs to the set of processes that the group consists of.
bool IsMember(const Group& group, const Rank& rank);
// Reported exit of the rank's process in the group's set; nullptr if none was reported. The exit of
// a later process of this rank says nothing about the set.
const WorkerExited* ExitOfMember(const Group& group, const Rank& rank);
// Returns true if a rank has joined another set than `session` names.
bool HasJoinedOtherSet(const Group& group, const std::string& session);
// Returns true if the whole set has obeyed the group's newest Form.
bool IsFormed(const Group& group, const std::string& session);

// Records the attached processes as those of the group.
void RecordProcesses(Group& group);

// Each rank gets the command on its own stream.
void SendForm(State& s, Group& group, const std::string& session);
void SendAdopt(State& s, Group& group);
// Handles a rank of a formed group that has reconnected on another stream.
void Rejoin(State& s, Group& group, Rank& rank);
// Evicts the attached processes whose set is lost.
void Evict(State& s, Group& group, const std::string& reason);
// Evicts the processes of sets whose time to end has passed (Group::evict_at).
void EvictOverdue(State& s);

}  // namespace lathe::engine

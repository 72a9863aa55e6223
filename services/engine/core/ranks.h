// Who is in a group: processes that come one by one, belong together, and go together.
//
// Ranks meet once: communicators join one set of processes, and none of them can go on in another.
// So a group is formed when all its ranks have come, under a session that names the set; it is lost
// when one of them is; and what is left of a lost set is told to die, at once or when it comes
// back.
#pragma once

#include <cstdint>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// nullptr: the group has no such rank.
Rank* FindRank(Group& group, int64_t rank);

// Notes the process and the mesh that it says its group has; another mesh makes another group.
void NoteArrival(State& s, Group& group, const WorkerAttached& event);

// Of a group of several: "rank 1: signal 11". `rank` -1: of none.
std::string NameRank(const Group& group, int64_t rank, const std::string& how);

// Empty: all are there. "rank 1 of 4", "3 of 4 ranks"
std::string MissingRanks(const Group& group);

// Names the set of processes that have come; of a group of one the process itself.
std::string SessionOf(const Group& group);

// Of the set that the group consists of.
bool IsMember(const Group& group, const Rank& rank);
// How its process of that set ended, as far as it was told; nullptr: it was not. What another one
// came to that is there by now says nothing of the set.
const WorkerExited* ExitOfMember(const Group& group, const Rank& rank);
// Of another set than `session` names.
bool HasMetOthers(const Group& group, const std::string& session);
// The whole set has obeyed the group's newest Form.
bool IsFormed(const Group& group, const std::string& session);

// The group consists of those that have come.
void NoteProcesses(Group& group);

// Each rank on its stream.
void SendForm(State& s, Group& group, const std::string& session);
void SendAdopt(State& s, Group& group);
// A rank of a group that works has come back on another stream.
void Rejoin(State& s, Group& group, Rank& rank);
// Ends those that have met peers which they will not see again.
void Dismiss(State& s, Group& group, const std::string& reason);
// The same, of sets whose time is over (Group::dismiss_at).
void DismissOverdue(State& s);

}  // namespace lathe::engine

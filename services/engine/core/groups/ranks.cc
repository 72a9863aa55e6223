#include "services/engine/core/groups/ranks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"

namespace lathe::engine {
namespace {

int64_t NumberOf(const Group& group, const Rank& rank) { return &rank - group.ranks.data(); }

void SendTo(State& s, const Group& group, const Rank& rank, WorkerCommand command) {
  s.fx.SendToRank(group.row.group, NumberOf(group, rank), rank.stream_id, group.row.epoch,
                  std::move(command));
}

FormGroup FormOf(const State& s, const Group& group, const std::string& session) {
  if (group.ranks.size() == 1) return {s.term, std::nullopt};
  return {s.term, RendezvousPoint{session, group.ranks[0].address, group.ranks[0].port}};
}

void SetMesh(Group& group, const MeshShape& mesh) {
  if (group.mesh == mesh) return;
  Rank awaited;
  awaited.detached_at = group.ranks[0].detached_at;
  group.mesh = mesh;
  group.ranks.assign(static_cast<size_t>(mesh.world()), awaited);
}

}  // namespace

Rank* FindRank(Group& group, int64_t rank) {
  const bool is_there = rank >= 0 && rank < static_cast<int64_t>(group.ranks.size());
  return is_there ? &group.ranks[static_cast<size_t>(rank)] : nullptr;
}

bool HasOtherMesh(const Group& group, const MeshShape& mesh) {
  return group.mesh != mesh &&
         std::any_of(group.ranks.begin(), group.ranks.end(),
                     [](const Rank& rank) { return !rank.process_id.empty(); });
}

void RecordArrival(Group& group, const WorkerAttached& event) {
  SetMesh(group, event.mesh);
  Rank& rank = *FindRank(group, event.rank);
  const bool is_another = rank.process_id != event.process_id;
  if (is_another && ExitOfMember(group, rank) == nullptr) rank.exit.reset();
  rank.attached = true;
  rank.process_id = event.process_id;
  rank.session = group.ranks.size() == 1 ? event.process_id : event.session;
  rank.epoch = event.epoch;
  rank.stream_id = event.stream_id;
  rank.address = event.address;
  rank.port = event.port;
  rank.pid = event.pid;
  rank.is_supervised = event.is_supervised;
  rank.refusal = event.refusal;
}

std::string NameRank(const Group& group, int64_t rank, const std::string& how) {
  const bool is_named = rank >= 0 && group.ranks.size() > 1;
  return is_named ? absl::StrFormat("rank %d: %s", rank, how) : how;
}

std::string MissingRanks(const Group& group) {
  const auto missing = std::count_if(group.ranks.begin(), group.ranks.end(),
                                     [](const Rank& rank) { return !rank.attached; });
  if (missing == 0) return "";
  if (missing > 1) return absl::StrFormat("%d of %d ranks", missing, group.ranks.size());
  const auto first = std::find_if(group.ranks.begin(), group.ranks.end(),
                                  [](const Rank& rank) { return !rank.attached; });
  return absl::StrFormat("rank %d of %d", NumberOf(group, *first), group.ranks.size());
}

std::string SessionOf(const Group& group) {
  if (group.ranks.size() == 1) return group.ranks[0].process_id;
  Sha256 digest;
  for (const Rank& rank : group.ranks) digest.Update(rank.process_id + "\n");
  return digest.FinishHex();
}

bool IsMember(const Group& group, const Rank& rank) {
  return !group.row.process_id.empty() && rank.session == group.row.process_id;
}

const WorkerExited* ExitOfMember(const Group& group, const Rank& rank) {
  const bool is_of_member =
      !group.row.process_id.empty() && rank.exit && rank.exit_session == group.row.process_id;
  return is_of_member ? &*rank.exit : nullptr;
}

bool HasJoinedOtherSet(const Group& group, const std::string& session) {
  return std::any_of(group.ranks.begin(), group.ranks.end(), [&](const Rank& rank) {
    return !rank.session.empty() && rank.session != session;
  });
}

bool IsFormed(const Group& group, const std::string& session) {
  return group.row.process_id == session &&
         std::all_of(group.ranks.begin(), group.ranks.end(),
                     [&](const Rank& rank) { return rank.epoch == group.row.epoch; });
}

void RecordProcesses(Group& group) {
  group.processes.clear();
  group.is_supervised = false;
  for (Rank& rank : group.ranks) {
    rank.exit_session = rank.session;
    group.processes.emplace(NumberOf(group, rank), rank.pid);
    group.is_supervised = group.is_supervised || rank.is_supervised;
  }
}

void SendForm(State& s, Group& group, const std::string& session) {
  for (Rank& rank : group.ranks) {
    rank.epoch = group.row.epoch;
    SendTo(s, group, rank, FormOf(s, group, session));
  }
}

void SendAdopt(State& s, Group& group) {
  for (const Rank& rank : group.ranks) SendTo(s, group, rank, AdoptGroup{s.term});
}

void Rejoin(State& s, Group& group, Rank& rank) {
  const bool has_heard = IsMember(group, rank) && rank.epoch == group.row.epoch;
  if (has_heard) return SendTo(s, group, rank, AdoptGroup{s.term});
  rank.session = group.row.process_id;
  rank.epoch = group.row.epoch;
  SendTo(s, group, rank, FormOf(s, group, rank.session));
}

void Evict(State& s, Group& group, const std::string& reason) {
  group.evict_at = 0;
  for (Rank& rank : group.ranks) {
    if (!rank.attached || rank.session.empty()) continue;
    rank.attached = false;
    rank.detached_at = s.now;
    SendTo(s, group, rank, SendDie{reason});
  }
  if (!group.ranks[0].attached) group.hello.reset();
}

void EvictOverdue(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.evict_at == 0 || group.evict_at > s.now) continue;
    Evict(s, group, "another rank of the group was asked to end");
  }
}

}  // namespace lathe::engine

#include "services/engine/runtime/commit_loop.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "services/engine/series/point_batch.h"

namespace lathe::engine {
namespace {

// Pause between attempts while the disk is full.
constexpr absl::Duration kFullPause = absl::Milliseconds(250);

absl::Status TooManyPoints(const char* whose, int64_t bytes, int64_t limit) {
  return WithDetail(absl::ResourceExhaustedError(absl::StrFormat(
                        "%s that wait to be stored would take %d bytes, limit is %d; try again",
                        whose, bytes, limit)),
                    "too_many_points", "points");
}

size_t BlobBytes(const CommitLoop::Item& item) {
  size_t bytes = 0;
  for (const auto& blob : item.blobs) bytes += blob.bytes->size();
  return bytes;
}

}  // namespace

CommitLoop::CommitLoop(Store& store, int64_t term, Callbacks callbacks)
    : store_(store),
      term_(term),
      callbacks_(std::move(callbacks)),
      thread_("engine-store", [this] { Run(); }) {}

CommitLoop::~CommitLoop() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

void CommitLoop::Enqueue(Item item) {
  absl::MutexLock lock(&mu_);
  queue_.push_back(std::move(item));
}

absl::Status CommitLoop::TryEnqueue(UserPoints points) {
  const int64_t bytes = MemoryOf(*points.entry);
  absl::MutexLock lock(&mu_);
  int64_t& of_tenant = user_bytes_[points.entry->tenant_id];
  if (of_tenant + bytes > kMaxTenantBytes) {
    return TooManyPoints("points of your calls", of_tenant + bytes, kMaxTenantBytes);
  }
  if (all_user_bytes_ + bytes > kMaxUserBytes) {
    return TooManyPoints("points of all calls", all_user_bytes_ + bytes, kMaxUserBytes);
  }
  of_tenant += bytes;
  all_user_bytes_ += bytes;
  users_.push_back(std::move(points));
  return absl::OkStatus();
}

void CommitLoop::Run() {
  for (;;) {
    Group group = TakeGroup();
    if (group.empty()) return;
    AddPoints(group);
    const absl::Status status = CommitWhenThereIsRoom(group);
    if (!status.ok()) {
      callbacks_.on_failure(status);
      return;
    }
    FailPoint("engine.commit.after");
    if (group.journal_id != 0) callbacks_.on_points(group.journal_id, group.points);
    for (const UserPoints& user : group.users) user.on_durable();
    if (!group.items.empty()) callbacks_.on_durable(group.items);
  }
}

// Ids grow from one leader to the next, as completion numbers do.
void CommitLoop::AddPoints(Group& group) {
  if (!callbacks_.on_points) return;
  if (callbacks_.points_of && !group.items.empty())
    group.points = callbacks_.points_of(group.items);
  for (const UserPoints& user : group.users) {
    if (!user.entry->points.empty()) group.points.push_back(user.entry);
  }
  if (!group.points.empty()) group.journal_id = CompletionNumber(term_, ++num_batches_);
}

absl::Status CommitLoop::CommitWhenThereIsRoom(const Group& group) {
  absl::Status status = CommitGroup(group);
  if (!absl::IsResourceExhausted(status)) return status;
  while (absl::IsResourceExhausted(status)) {
    if (callbacks_.on_full) callbacks_.on_full(status);
    if (IsClosedWithin(kFullPause)) return status;
    status = CommitGroup(group);
  }
  if (status.ok() && callbacks_.on_full) callbacks_.on_full(status);
  return status;
}

bool CommitLoop::IsClosedWithin(absl::Duration pause) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&closed_), pause);
}

CommitLoop::Group CommitLoop::TakeGroup() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &CommitLoop::HasWorkLocked));
  size_t writes = 0;
  size_t bytes = 0;
  auto end = queue_.begin();
  for (; end != queue_.end(); ++end) {
    writes += end->commit.writes.size();
    bytes += BlobBytes(*end);
    if (end != queue_.begin() && (writes > kMaxWrites || bytes > kMaxBytes)) break;
  }
  Group group;
  group.items = {std::make_move_iterator(queue_.begin()), std::make_move_iterator(end)};
  queue_.erase(queue_.begin(), end);
  TakeUsersLocked(group);
  return group;
}

void CommitLoop::TakeUsersLocked(Group& group) {
  int64_t bytes = 0;
  while (!users_.empty()) {
    const PointEntry& entry = *users_.front().entry;
    const int64_t size = MemoryOf(entry);
    if (bytes > 0 && bytes + size > kMaxGroupUserBytes) return;
    bytes += size;
    all_user_bytes_ -= size;
    const auto of_tenant = user_bytes_.find(entry.tenant_id);
    of_tenant->second -= size;
    if (of_tenant->second == 0) user_bytes_.erase(of_tenant);
    group.users.push_back(std::move(users_.front()));
    users_.pop_front();
  }
}

absl::Status CommitLoop::CommitGroup(const Group& group) {
  std::vector<Blob> blobs;
  for (const Item& item : group.items) {
    for (const Item::NamedBytes& blob : item.blobs) blobs.push_back({blob.id, *blob.bytes});
  }
  if (group.items.size() == 1 && group.journal_id == 0) {
    return CommitWrites(group.items.front().commit.writes, blobs);
  }
  std::vector<Write> writes;
  for (const Item& item : group.items) {
    writes.insert(writes.end(), item.commit.writes.begin(), item.commit.writes.end());
  }
  if (group.journal_id != 0) {
    writes.push_back(AppendPoints{group.journal_id, PackBatch(group.points)});
  }
  // Points that were durable before need no transaction.
  return writes.empty() && group.items.empty() ? absl::OkStatus() : CommitWrites(writes, blobs);
}

absl::Status CommitLoop::CommitWrites(const std::vector<Write>& writes,
                                      const std::vector<Blob>& blobs) {
  const auto began = std::chrono::steady_clock::now();
  const int error = FailPointErrno("engine.commit.before");
  if (error == kFailPointSkip) return absl::OkStatus();
  absl::Status status = error != 0 ? absl::ErrnoToStatus(error, "the store cannot commit")
                                   : store_.Commit(term_, writes, blobs);
  if (callbacks_.on_timed) {
    callbacks_.on_timed(absl::FromChrono(std::chrono::steady_clock::now() - began), writes.size());
  }
  return status;
}

}  // namespace lathe::engine

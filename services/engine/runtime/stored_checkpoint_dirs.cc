#include "services/engine/runtime/stored_checkpoint_dirs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr absl::Duration kTrashLooks = absl::Hours(1);
// Pause after a place that lacked directories was looked at.
constexpr absl::Duration kClaimPause = absl::Seconds(10);
constexpr absl::Duration kListedFor = absl::Minutes(1);
// Uploads may take hours on a slow line.
constexpr absl::Duration kUploadsKept = absl::Hours(24);
constexpr absl::Duration kFinishWithin = absl::Seconds(3);

bool IsIn(const std::vector<std::string>& sorted, const std::string& dir) {
  return std::binary_search(sorted.begin(), sorted.end(), dir);
}

absl::Status NotInTrash(const std::string& dir, absl::string_view why) {
  return WithDetail(absl::NotFoundError(absl::StrCat(dir, " ", why)), "not_found", "dir");
}

}  // namespace

StoredCheckpointDirs::StoredCheckpointDirs(StoredCheckpoints stored, absl::Duration trash_kept)
    : stored_(std::move(stored)), trash_kept_(trash_kept) {}

void StoredCheckpointDirs::ListAtStart() {
  // A new leader does not wait long for a store that is away.
  absl::StatusOr<std::vector<std::string>> dirs = stored_.reads->ListDirs();
  if (!dirs.ok()) {
    LogWarn("checkpoints that no row names are not looked for: the object store does not answer",
            {{"error", dirs.status().message()}});
    dirs = std::vector<std::string>();
  }
  // Marks that are there are not made again. Deletions would wait behind them after each start.
  if (!dirs->empty()) {
    if (const auto trashed = stored_.reads->ListTrash(); trashed.ok()) {
      std::set<std::string> marked;
      for (const CheckpointObjects::Trashed& entry : *trashed) marked.insert(entry.dir);
      std::erase_if(*dirs, [&marked](const std::string& dir) { return marked.contains(dir); });
    }
  }
  absl::MutexLock lock(&mu_);
  at_start_ = *std::move(dirs);
  thread_ =
      std::make_unique<PeriodicTask>("engine-objects", kPeriod, [this] { WorkOnce(absl::Now()); });
}

void StoredCheckpointDirs::KeepOnly(const std::vector<std::string>& needed) {
  absl::MutexLock lock(&mu_);
  for (std::string& dir : at_start_) {
    if (!IsCheckpointDir(dir) || IsIn(needed, dir)) continue;
    changes_.push_back({Change::Kind::kMark, std::move(dir)});
  }
  at_start_.clear();
  needed_.insert(needed.begin(), needed.end());
  knows_needed_ = true;
}

void StoredCheckpointDirs::Keep(const std::string& dir) {
  absl::MutexLock lock(&mu_);
  needed_.insert(dir);
  taken_.erase(dir);
}

void StoredCheckpointDirs::Add(Change::Kind kind, std::string dir) {
  // An empty name would mean all checkpoints. No checkpoint has one.
  if (!IsCheckpointDir(dir)) return;
  absl::MutexLock lock(&mu_);
  changes_.push_back({kind, std::move(dir)});
}

void StoredCheckpointDirs::Delete(std::string dir) {
  {
    absl::MutexLock lock(&mu_);
    needed_.erase(dir);
    taken_.erase(dir);
  }
  Add(Change::Kind::kDelete, std::move(dir));
}

void StoredCheckpointDirs::PutBack(std::string dir) {
  {
    absl::MutexLock lock(&mu_);
    taken_.erase(dir);
    if (needed_.contains(dir)) return;
  }
  Add(Change::Kind::kMark, std::move(dir));
}

void StoredCheckpointDirs::EndCalls() {
  stored_.reads->Cancel();
  stored_.copies->Cancel();
}

// A store that hangs is cut off, also if the thread waits for it.
void StoredCheckpointDirs::Finish(absl::Time) {
  is_stopping_ = true;
  const PeriodicTask cut_off("engine-cut-off", kFinishWithin, [this] { stored_.work->Cancel(); });
  thread_.reset();
  absl::MutexLock lock(&work_mu_);
  if (!is_claimed_) return;  // the place may be another installation's
  for (;;) {
    Change change;
    {
      absl::MutexLock changes_lock(&mu_);
      if (changes_.empty()) return;
      change = std::move(changes_.front());
      changes_.erase(changes_.begin());
    }
    if (!Make(change).ok()) return;
  }
}

absl::Status StoredCheckpointDirs::Make(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kMark:
      return Mark(change.dir);
    case Change::Kind::kUnmark:
      return stored_.work->UnmarkAsTrash(change.dir);
    case Change::Kind::kPurge:
      return Purge(change.dir);
    case Change::Kind::kDelete:
      break;
  }
  return stored_.work->Delete(change.dir);
}

// An earlier leader may have marked the directory, and an operator taken it back since.
absl::Status StoredCheckpointDirs::Mark(const std::string& dir) {
  if (!BeginTrashing(dir)) return absl::OkStatus();
  absl::Status status = stored_.work->MarkAsTrash(dir);
  EndTrashing();
  return status;
}

bool StoredCheckpointDirs::BeginTrashing(const std::string& dir) {
  absl::MutexLock lock(&mu_);
  if (taken_.contains(dir) || needed_.contains(dir)) return false;
  trashed_now_ = dir;
  return true;
}

void StoredCheckpointDirs::EndTrashing() {
  absl::MutexLock lock(&mu_);
  trashed_now_.clear();
}

// The mark was seen earlier. Meanwhile the directory may have come back, here or by the last
// leader.
absl::Status StoredCheckpointDirs::Purge(const std::string& dir) {
  ASSIGN_OR_RETURN(const bool is_trash, stored_.work->IsTrash(dir));
  if (!is_trash || !BeginTrashing(dir)) return absl::OkStatus();
  LogInfo("deleting a checkpoint from the trash", {{"dir", dir}});
  absl::Status status = stored_.work->Delete(dir);
  if (status.ok()) status = stored_.work->UnmarkAsTrash(dir);
  EndTrashing();
  return status;
}

absl::Status StoredCheckpointDirs::MakeAll(std::vector<Change> changes) {
  absl::Status failure;
  std::vector<Change> failed;
  std::set<std::string> failed_dirs;  // whose later changes wait, too
  int64_t num_marked = 0;
  size_t next = 0;
  for (; next < changes.size() && !is_stopping_ && !absl::IsUnavailable(failure); ++next) {
    Change& change = changes[next];
    absl::Status status;
    if (!failed_dirs.contains(change.dir)) status = Make(change);
    if (status.ok() && !failed_dirs.contains(change.dir)) {
      if (change.kind == Change::Kind::kMark) ++num_marked;
      continue;
    }
    if (!status.ok()) failure = std::move(status);
    failed_dirs.insert(change.dir);
    failed.push_back(std::move(change));
  }
  if (num_marked > 0) {
    LogWarn("moved checkpoints that no row of the database names to the trash",
            {{"num_dirs", num_marked}, {"kept", absl::FormatDuration(trash_kept_)}});
  }
  std::vector<Change> left;
  for (; next < changes.size(); ++next) {
    (failed_dirs.contains(changes[next].dir) ? failed : left).push_back(std::move(changes[next]));
  }
  std::move(failed.begin(), failed.end(), std::back_inserter(left));
  absl::MutexLock lock(&mu_);
  changes_.insert(changes_.begin(), std::make_move_iterator(left.begin()),
                  std::make_move_iterator(left.end()));
  return failure;
}

void StoredCheckpointDirs::WorkOnce(absl::Time now) {
  absl::MutexLock lock(&work_mu_);
  absl::Status status = ClaimOnce();
  if (status.ok()) {
    std::vector<Change> changes;
    {
      absl::MutexLock changes_lock(&mu_);
      changes.swap(changes_);
    }
    status = MakeAll(std::move(changes));
  }
  if (!status.ok() && !has_failed_) {
    LogWarn("checkpoints cannot be deleted or moved to the trash now; tried again every second",
            {{"error", status.message()}});
  }
  has_failed_ = !status.ok();
  if (!is_claimed_ || absl::IsUnavailable(status) || is_stopping_) return;
  if (now - trash_looked_at_ < kTrashLooks) return;
  trash_looked_at_ = now;
  LookAtTrash(now);
}

absl::Status StoredCheckpointDirs::ClaimOnce() {
  if (is_claimed_) return absl::OkStatus();
  absl::Status status = stored_.work->CheckOwner(stored_.store_id);
  // A marker that vanishes is never made again, because the rest may have gone with it.
  if (absl::IsNotFound(status) && !was_claimed_ && absl::Now() >= next_claim_) {
    status = ClaimPlace(stored_.store_id, stored_.named_dirs, *stored_.work);
    // This lists the whole place. Whoever copies what is missing needs longer than a second.
    if (absl::IsNotFound(status)) next_claim_ = absl::Now() + kClaimPause;
  }
  is_claimed_ = status.ok();
  was_claimed_ |= is_claimed_;
  const bool is_of_another = ErrorCode(status) == CheckpointObjects::kOfAnother;
  if (is_of_another && stored_.on_refused) stored_.on_refused(status);
  return status;
}

void StoredCheckpointDirs::LookAtTrash(absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (!knows_needed_) {
      trash_looked_at_ = absl::InfinitePast();
      return;
    }
  }
  // A store that ignores conditions may have let another installation take the place.
  is_claimed_ = false;
  if (!ClaimOnce().ok()) return;
  const auto trashed = stored_.work->ListTrash();
  const auto aborted = stored_.work->AbortUploads(now - kUploadsKept);
  if (!trashed.ok() || !aborted.ok()) {
    LogWarn("the trash of the object store cannot be looked at; tried again in an hour",
            {{"error", (trashed.ok() ? aborted.status() : trashed.status()).message()}});
  }
  if (aborted.ok() && *aborted > 0) LogInfo("ended old uploads", {{"num_uploads", *aborted}});
  if (!trashed.ok()) return;
  for (const CheckpointObjects::Trashed& entry : *trashed) {
    if (!IsCheckpointDir(entry.dir)) continue;
    // A crash may have left the mark of a checkpoint that came back.
    if (IsNeeded(entry.dir)) {
      Add(Change::Kind::kUnmark, entry.dir);
    } else if (now - entry.since >= trash_kept_) {
      Add(Change::Kind::kPurge, entry.dir);
    }
  }
}

bool StoredCheckpointDirs::IsNeeded(const std::string& dir) const {
  absl::MutexLock lock(&mu_);
  return needed_.contains(dir);
}

absl::Status StoredCheckpointDirs::CheckInTrash(const std::string& dir) {
  RETURN_IF_ERROR(CheckDirName(dir));
  ASSIGN_OR_RETURN(const bool is_trash, stored_.reads->IsTrash(dir));
  // A mark that a crash has left says nothing about a checkpoint that came back.
  if (is_trash && !IsNeeded(dir)) return absl::OkStatus();
  return NotInTrash(dir, "is not in the trash");
}

absl::Status StoredCheckpointDirs::TakeFromTrash(const std::string& dir) {
  {
    absl::MutexLock lock(&mu_);
    if (trashed_now_ == dir) {
      return absl::UnavailableError(
          absl::StrFormat("%s is being moved to the trash, or deleted; try again", dir));
    }
    if (needed_.contains(dir)) return NotInTrash(dir, "is not in the trash");
    // The caller that took it decides what becomes of it.
    if (!taken_.insert(dir).second) return NotInTrash(dir, "was taken from the trash already");
    std::erase_if(changes_, [&dir](const Change& change) { return change.dir == dir; });
  }
  absl::Status status = stored_.reads->UnmarkAsTrash(dir);
  // The changes that are gone included its mark, if that was still to come.
  if (!status.ok()) PutBack(dir);
  return status;
}

absl::StatusOr<std::vector<std::string>> StoredCheckpointDirs::ListTrash() {
  ASSIGN_OR_RETURN(const std::vector<CheckpointObjects::Trashed> trashed,
                   stored_.reads->ListTrash());
  std::vector<std::string> dirs;
  for (const CheckpointObjects::Trashed& entry : trashed) {
    if (IsCheckpointDir(entry.dir) && !IsNeeded(entry.dir)) dirs.push_back(entry.dir);
  }
  return dirs;
}

absl::StatusOr<std::string> StoredCheckpointDirs::ReadTextInTrash(const std::string& dir,
                                                                  const std::string& file) {
  return stored_.reads->ReadText(dir, file);
}

int64_t StoredCheckpointDirs::BytesInTrash(const std::string& dir) {
  return stored_.reads->BytesOf(dir).value_or(0);
}

absl::StatusOr<std::string> StoredCheckpointDirs::ReadText(const std::string& dir,
                                                           const std::string& file) {
  return stored_.reads->ReadText(dir, file);
}

absl::StatusOr<int64_t> StoredCheckpointDirs::SizeOf(const std::string& dir,
                                                     const std::string& file) {
  ASSIGN_OR_RETURN(const ObjectInfo info, stored_.reads->Describe(dir, file));
  return info.size_bytes;
}

bool StoredCheckpointDirs::AreFilesMissing(const CheckpointRow& row) {
  const absl::Time now = absl::Now();
  bool is_old = false;
  {
    absl::MutexLock lock(&mu_);
    is_old = now >= list_again_at_;
    if (is_old) list_again_at_ = now + kListedFor;  // others use the older listing meanwhile
  }
  if (is_old) {
    absl::StatusOr<std::vector<std::string>> dirs = stored_.reads->ListDirs();
    absl::MutexLock lock(&mu_);
    if (dirs.ok()) {
      listed_ = *std::move(dirs);
      std::sort(listed_.begin(), listed_.end());
      listed_at_ = now;
    }
  }
  absl::MutexLock lock(&mu_);
  return absl::FromUnixNanos(row.created_at) < listed_at_ && !IsIn(listed_, row.dir);
}

absl::Status StoredCheckpointDirs::Copy(const std::string& from, const std::string& to,
                                        const std::string& tinker_path) {
  absl::Status status = stored_.copies->Copy(from, to, tinker_path);
  if (!status.ok()) Delete(to);
  if (!absl::IsNotFound(status)) return status;
  return WithDetail(absl::NotFoundError("the checkpoint's files are gone"), "checkpoint_missing",
                    "source_path");
}

std::string StoredCheckpointDirs::AddressOf(const std::string& dir) const {
  return stored_.work->AddressOf(dir);
}

CheckpointPlace StoredCheckpointDirs::Place() const {
  return {.address = stored_.work->Address(), .store_id = stored_.store_id};
}

}  // namespace lathe::engine

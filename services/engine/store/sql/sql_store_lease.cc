// The lease of leadership.
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

constexpr char kReadLease[] = "SELECT term, process, address, duration_ms, num_renewals FROM lease";
constexpr char kTakeLease[] =
    "UPDATE lease SET term = term + 1, process = ?, address = ?, duration_ms = ?, num_renewals = 0"
    " WHERE term = ? AND num_renewals = ?";
// Waits for a commit under the old term that is in progress. No later commit can use that term.
constexpr char kRaiseTerm[] = "UPDATE leader SET term = ?, last_commit = 0";
constexpr char kRenewLease[] = "UPDATE lease SET num_renewals = num_renewals + 1 WHERE term = ?";
constexpr char kReleaseLease[] =
    "UPDATE lease SET duration_ms = 0, num_renewals = num_renewals + 1 WHERE term = ?";

}  // namespace

absl::StatusOr<LeaseRow> SqlStore::ReadLease() {
  LeaseRow row;
  RETURN_IF_ERROR(OnLease([&](SqlConnection& connection) {
    Query query = connection.Prepare(kReadLease);
    query.Next();
    row.term = query.Int();
    row.process = query.Text();
    row.address = query.Text();
    row.duration = absl::Milliseconds(query.Int());
    row.num_renewals = query.Int();
    return absl::OkStatus();
  }));
  return row;
}

absl::StatusOr<int64_t> SqlStore::TakeLease(const LeaseRow& seen, const LeaseRow& lease) {
  const int64_t term = seen.term + 1;
  RETURN_IF_ERROR(OnLease([&](SqlConnection& connection) {
    const int64_t num_changed =
        connection.Prepare(kTakeLease)
            .Bind(lease.process, lease.address, absl::ToInt64Milliseconds(lease.duration),
                  seen.term, seen.num_renewals)
            .Run();
    if (num_changed == 0) {
      return absl::AbortedError(
          absl::StrFormat("the lease of term %d was renewed or taken meanwhile", seen.term));
    }
    connection.Prepare(kRaiseTerm).Bind(term).Run();
    return absl::OkStatus();
  }));
  return term;
}

absl::Status SqlStore::RenewLease(int64_t term) {
  return OnLease([&](SqlConnection& connection) {
    if (connection.Prepare(kRenewLease).Bind(term).Run() > 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("another engine has taken the lease of term %d", term));
  });
}

absl::Status SqlStore::ReleaseLease(int64_t term) {
  return OnLease([&](SqlConnection& connection) {
    connection.Prepare(kReleaseLease).Bind(term).Run();
    return absl::OkStatus();
  });
}

absl::StatusOr<StoredState> SqlStore::TakeLeadership() {
  for (;;) {
    ASSIGN_OR_RETURN(const LeaseRow seen, ReadLease());
    const absl::StatusOr<int64_t> term = TakeLease(seen, LeaseRow());
    if (absl::IsAborted(term.status())) continue;
    if (!term.ok()) return term.status();
    const absl::Status migrated = Migrate(*term);
    if (absl::IsAborted(migrated)) continue;
    RETURN_IF_ERROR(migrated);
    absl::StatusOr<StoredState> state = Load(*term);
    // Load failed with FailedPrecondition: another process has become the leader already.
    if (!absl::IsFailedPrecondition(state.status())) return state;
  }
}

}  // namespace lathe::engine

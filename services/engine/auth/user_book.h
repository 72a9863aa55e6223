// Users and the sessions of browsers, in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/role_map.h"
#include "services/engine/auth/user_role.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Browser that a session begins in. Texts are cut to their bounds.
struct Browser {
  std::string user_agent;
  std::string ip_prefix;
};

// Person or key that makes a change, for the audit log.
struct Actor {
  std::string id;
  std::string tenant_id;
};

// A mirror of the store's users and sessions. All changes go through this class, so they take
// effect at once, and looking a session up reads no store. The time since the last use of a session
// is in memory only: it begins anew with every leader. Thread-safe.
class UserBook {
 public:
  static constexpr size_t kMaxUsers = 20'000;
  static constexpr size_t kMaxSessions = 50'000;
  // Sessions of one tenant's users and keys, so that no tenant can take those of the others.
  static constexpr size_t kMaxSessionsOfTenant = 5'000;
  // Sessions of one user or key. A further one ends the oldest.
  static constexpr size_t kMaxSessionsOfOne = 16;
  // Sign-ins of one user or key in a minute.
  static constexpr int64_t kMaxSignInsPerMinute = 20;
  static constexpr size_t kMaxTickets = 64;
  static constexpr absl::Duration kTicketLifetime = absl::Seconds(60);

  struct Options {
    absl::Duration session_lifetime = absl::Hours(12);
    // A session that is not used for this long ends.
    absl::Duration session_idle = absl::Hours(2);
    RoleMap role_map = {};
    size_t max_sessions_of_tenant = kMaxSessionsOfTenant;
  };

  // Both must outlive this.
  UserBook(Store& store, Clock& clock, Options options)
      : store_(store), clock_(clock), options_(std::move(options)) {}

  // Rereads everything from the store.
  absl::Status Refresh() ABSL_LOCKS_EXCLUDED(change_mu_);

  const RoleMap& role_map() const { return options_.role_map; }

  struct Found {
    UserSessionRow session;
    std::optional<UserRow> user;  // of a user's session
  };
  // Finds a live session by its secret and counts this as a use. A session of a disabled user is
  // not found.
  std::optional<Found> Find(std::string_view user_session) const;
  // Finds a live session by SessionIdOf its hash. No use.
  std::optional<Found> FindById(const std::string& session_id) const;
  std::optional<UserRow> FindUser(const std::string& user_id) const;
  bool HasBoundRole(const UserRow& row) const;

  struct NewSession {
    std::string text;  // returned only here
    UserSessionRow row;
  };
  // Begins a session of a user, whom it makes if the identity is new. If the role or the tenant is
  // another than at the last sign-in, the user's other sessions end. `role` in `tenant_id` is what
  // the role map says. PermissionDenied ("user_disabled"). ResourceExhausted: a bound was reached.
  absl::StatusOr<NewSession> BeginForUser(const Identity& identity, UserRole role,
                                          const std::string& tenant_id, const Browser& browser);
  // Begins a session of a key, which ends at `key_expires_at` at the latest; 0: no bound.
  absl::StatusOr<NewSession> BeginForKey(const ApiKeyRow& key, UserRole role,
                                         const Browser& browser);
  // Begins a session of the person at the machine, with the role operator.
  absl::StatusOr<NewSession> BeginForTicket(const std::string& tenant_id, const Browser& browser);

  // Makes a ticket that works once, for kTicketLifetime. ResourceExhausted: kMaxTickets are open.
  absl::StatusOr<std::string> MakeTicket();
  // Returns PermissionDenied ("bad_ticket") unless MakeTicket made it and nobody used it.
  absl::Status UseTicket(std::string_view ticket);

  // Ends a session. Ending it twice is no error.
  absl::Status End(const UserSessionRow& session, const Actor& actor, const char* event);
  struct Edit {
    std::optional<bool> disabled;
    // A role that goes before the role map. Empty: the role map decides again.
    std::optional<std::string> bound_role;
  };
  // Changes the user, and ends all of the user's sessions. Returns the new row. NotFound: there is
  // no such user.
  absl::StatusOr<UserRow> Update(const std::string& user_id, const Edit& edit, const Actor& actor);
  // Records that a sign-in was refused. Equal ones within a minute are one entry.
  void RecordRefusal(const Identity& identity, const std::string& tenant_id,
                     const std::string& outcome);

  // Oldest first. Empty `tenant_id`: all.
  std::vector<UserRow> Users(const std::string& tenant_id) const;
  // Live sessions, newest first.
  std::vector<UserSessionRow> SessionsOf(const std::string& user_id) const;

  // Returns the name of a session in listings, which is no secret.
  static std::string SessionIdOf(const UserSessionRow& row) {
    return row.session_hash.substr(0, 16);
  }

 private:
  struct Session {
    explicit Session(UserSessionRow stored, int64_t now) : row(std::move(stored)), used_at(now) {}
    const UserSessionRow row;
    mutable std::atomic<int64_t> used_at;
  };
  struct Window {
    int64_t began_at = 0;
    int64_t num_sign_ins = 0;
  };

  // Returns the id of the user or key of a session, which bounds are counted by.
  static const std::string& OwnerOf(const UserSessionRow& row);
  static bool IsOfTicket(const UserSessionRow& row);
  void AddLocked(UserSessionRow row, int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(const std::string& hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the tenant's sessions without those that `change` ends.
  size_t NumAfterLocked(const std::string& tenant_id, const UserChange& change) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool IsLive(const Session& session, int64_t now) const;
  std::optional<Found> FoundLocked(const Session& session, int64_t now) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Returns ResourceExhausted if `owner` signs in too often.
  absl::Status Pace(const std::string& owner, int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Completes `row`, adds it to `change` with what it displaces, and makes the change.
  absl::StatusOr<NewSession> Begin(UserSessionRow row, const Browser& browser, UserChange change,
                                   AuditRow audit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Adds the sessions that ended by themselves, and the owner's oldest ones above the bound.
  absl::Status MakeRoom(const UserSessionRow& fresh, UserChange& change, int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Makes the change durable, then visible.
  absl::Status Apply(const UserChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  AuditRow Entry(const char* event, const Actor& actor, const std::string& object) const;
  // Returns the hashes of the sessions of a user or key.
  std::vector<std::string> HashesOf(const std::string& owner) const;
  UserRow FindOrMakeUser(const Identity& identity, int64_t now) const;

  Store& store_;
  Clock& clock_;
  const Options options_;
  // Held during a change, so that changes become visible in the order of the store.
  absl::Mutex change_mu_;
  std::map<std::string, Window> windows_ ABSL_GUARDED_BY(change_mu_);  // by owner
  mutable absl::Mutex mu_;
  std::map<std::string, UserRow> users_ ABSL_GUARDED_BY(mu_);  // by user_id
  // Ids by issuer and subject.
  std::map<std::pair<std::string, std::string>, std::string> ids_ ABSL_GUARDED_BY(mu_);
  // Roles by user_id and tenant_id.
  std::map<std::pair<std::string, std::string>, std::string> bindings_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<Session>, std::less<>> sessions_
      ABSL_GUARDED_BY(mu_);  // by session_hash
  // Hashes of sessions by owner, oldest first.
  std::map<std::string, std::vector<std::string>> of_owner_ ABSL_GUARDED_BY(mu_);
  // Sessions by tenant, without those of tickets.
  std::map<std::string, size_t> num_of_tenant_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, absl::Time> tickets_ ABSL_GUARDED_BY(mu_);  // expiry by hash
  std::map<std::string, absl::Time> refusals_ ABSL_GUARDED_BY(mu_);
  int64_t sweep_at_ ABSL_GUARDED_BY(change_mu_) = 0;
};

}  // namespace lathe::engine

#include "services/engine/auth/user_book.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr size_t kUserIdBytes = 8;
constexpr size_t kTicketLength = 43;
constexpr size_t kMaxEmailBytes = 320;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxUserAgentBytes = 256;
constexpr size_t kMaxIpPrefixBytes = 64;
constexpr size_t kMaxRefusals = 1024;
constexpr absl::Duration kSweepPeriod = absl::Minutes(1);
constexpr char kOperatorOwner[] = "ticket";

// Cuts a text from outside, without leaving a part of a UTF-8 character.
std::string Cut(const std::string& text, size_t max_bytes) {
  size_t size = std::min(text.size(), max_bytes);
  if (size < text.size()) {
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  }
  // Postgres refuses texts with a zero byte.
  std::string cut = text.substr(0, size);
  std::erase(cut, '\0');
  return cut;
}

absl::Status Exhausted(const std::string& message, const char* code) {
  return WithDetail(absl::ResourceExhaustedError(message), code);
}

}  // namespace

absl::Status UserBook::Refresh() {
  absl::MutexLock lock(&change_mu_);
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  ASSIGN_OR_RETURN(StoredUsers stored, store_.ListUsers(now));
  std::sort(stored.sessions.begin(), stored.sessions.end(),
            [](const auto& a, const auto& b) { return a.created_at < b.created_at; });
  absl::MutexLock reading(&mu_);
  users_.clear();
  ids_.clear();
  bindings_.clear();
  sessions_.clear();
  of_owner_.clear();
  num_of_tenant_.clear();
  for (UserRow& row : stored.users) {
    ids_[{row.issuer, row.subject}] = row.user_id;
    users_[row.user_id] = std::move(row);
  }
  for (RoleBindingRow& row : stored.bindings) bindings_[{row.user_id, row.tenant_id}] = row.role;
  for (UserSessionRow& row : stored.sessions) AddLocked(std::move(row), now);
  return absl::OkStatus();
}

bool UserBook::IsOfTicket(const UserSessionRow& row) {
  return row.user_id.empty() && row.key_id.empty();
}

const std::string& UserBook::OwnerOf(const UserSessionRow& row) {
  static const std::string ticket = kOperatorOwner;
  if (IsOfTicket(row)) return ticket;
  return row.user_id.empty() ? row.key_id : row.user_id;
}

void UserBook::AddLocked(UserSessionRow row, int64_t now) {
  of_owner_[OwnerOf(row)].push_back(row.session_hash);
  if (!IsOfTicket(row)) ++num_of_tenant_[row.tenant_id];
  std::string hash = row.session_hash;
  sessions_.emplace(std::move(hash), std::make_unique<Session>(std::move(row), now));
}

void UserBook::RemoveLocked(const std::string& hash) {
  const auto session = sessions_.find(hash);
  if (session == sessions_.end()) return;
  const UserSessionRow& row = session->second->row;
  const auto owner = of_owner_.find(OwnerOf(row));
  std::erase(owner->second, hash);
  if (owner->second.empty()) of_owner_.erase(owner);
  if (!IsOfTicket(row)) {
    const auto tenant = num_of_tenant_.find(row.tenant_id);
    if (--tenant->second == 0) num_of_tenant_.erase(tenant);
  }
  sessions_.erase(session);
}

bool UserBook::IsLive(const Session& session, int64_t now) const {
  return now < session.row.expires_at &&
         now - session.used_at < absl::ToInt64Nanoseconds(options_.session_idle);
}

std::optional<UserBook::Found> UserBook::FoundLocked(const Session& session, int64_t now) const {
  if (!IsLive(session, now)) return std::nullopt;
  Found found{.session = session.row, .user = std::nullopt};
  if (session.row.user_id.empty()) return found;
  const auto user = users_.find(session.row.user_id);
  if (user == users_.end() || user->second.disabled_at != 0) return std::nullopt;
  found.user = user->second;
  return found;
}

std::optional<UserBook::Found> UserBook::Find(std::string_view user_session) const {
  if (!IsUserSession(user_session)) return std::nullopt;
  const std::string hash = Sha256Hex(user_session);
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  absl::ReaderMutexLock lock(&mu_);
  const auto session = sessions_.find(hash);
  if (session == sessions_.end()) return std::nullopt;
  std::optional<Found> found = FoundLocked(*session->second, now);
  if (found) session->second->used_at = now;
  return found;
}

std::optional<UserBook::Found> UserBook::FindById(const std::string& session_id) const {
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  absl::ReaderMutexLock lock(&mu_);
  const auto session = sessions_.lower_bound(session_id);
  if (session == sessions_.end() || SessionIdOf(session->second->row) != session_id) {
    return std::nullopt;
  }
  return FoundLocked(*session->second, now);
}

std::optional<UserRow> UserBook::FindUser(const std::string& user_id) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto user = users_.find(user_id);
  if (user == users_.end()) return std::nullopt;
  return user->second;
}

bool UserBook::HasBoundRole(const UserRow& row) const {
  absl::ReaderMutexLock lock(&mu_);
  return bindings_.contains({row.user_id, row.tenant_id});
}

AuditRow UserBook::Entry(const char* event, const Actor& actor, const std::string& object) const {
  return {.at = absl::ToUnixNanos(clock_.Now()),
          .tenant_id = actor.tenant_id,
          .resource = "organizations",
          .event = event,
          .actor = actor.id,
          .object = object,
          .outcome = "ok",
          .details = {}};
}

absl::Status UserBook::Pace(const std::string& owner, int64_t now) {
  const int64_t minute = absl::ToInt64Nanoseconds(absl::Minutes(1));
  if (windows_.size() >= kMaxUsers) {
    std::erase_if(windows_, [&](const auto& one) { return now - one.second.began_at >= minute; });
  }
  Window& window = windows_[owner];
  if (now - window.began_at >= minute) window = {.began_at = now};
  if (++window.num_sign_ins <= kMaxSignInsPerMinute) return absl::OkStatus();
  return WithRetryAfter(Exhausted(absl::StrFormat("%d sign-ins within a minute, limit is %d",
                                                  window.num_sign_ins, kMaxSignInsPerMinute),
                                  "too_many_sign_ins"),
                        absl::Nanoseconds(window.began_at + minute - now));
}

std::vector<std::string> UserBook::HashesOf(const std::string& owner) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto hashes = of_owner_.find(owner);
  return hashes == of_owner_.end() ? std::vector<std::string>() : hashes->second;
}

UserRow UserBook::FindOrMakeUser(const Identity& identity, int64_t now) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto known = ids_.find({identity.issuer, identity.subject});
  if (known != ids_.end()) return users_.at(known->second);
  UserRow row;
  row.user_id = RandomId(kUserIdBytes);
  row.issuer = identity.issuer;
  row.subject = identity.subject;
  row.created_at = now;
  return row;
}

absl::StatusOr<UserBook::NewSession> UserBook::BeginForUser(const Identity& identity, UserRole role,
                                                            const std::string& tenant_id,
                                                            const Browser& browser) {
  absl::MutexLock lock(&change_mu_);
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  UserRow user = FindOrMakeUser(identity, now);
  if (user.disabled_at != 0) {
    return WithDetail(absl::PermissionDeniedError("an administrator disabled this user"),
                      "user_disabled");
  }
  if (user.last_login_at != 0) {
    RETURN_IF_ERROR(Pace(user.user_id, now));
  }
  const UserRow old = user;
  user.email = Cut(identity.email, kMaxEmailBytes);
  user.name = Cut(identity.name, kMaxNameBytes);
  user.tenant_id = tenant_id;
  user.role = UserRoleWord(role);
  user.last_login_at = now;
  {
    absl::ReaderMutexLock reading(&mu_);
    const auto bound = bindings_.find({user.user_id, tenant_id});
    if (bound != bindings_.end()) user.role = bound->second;
    if (!users_.contains(user.user_id) && users_.size() >= kMaxUsers) {
      return Exhausted(absl::StrFormat("there are %d users, limit is %d", users_.size(), kMaxUsers),
                       "too_many_users");
    }
  }
  UserSessionRow row;
  row.user_id = user.user_id;
  row.tenant_id = tenant_id;
  row.role = user.role;
  AuditRow audit =
      Entry("user_sign_in", {absl::StrCat("user:", user.user_id), tenant_id}, user.user_id);
  audit.details = {{"issuer", user.issuer}, {"role", user.role}, {"subject", user.subject}};
  UserChange change;
  // A session keeps the role and the tenant that it began with.
  if (old.role != user.role || old.tenant_id != user.tenant_id) {
    change.ended_sessions = HashesOf(user.user_id);
  }
  change.users.push_back(std::move(user));
  return Begin(std::move(row), browser, std::move(change), std::move(audit));
}

absl::StatusOr<UserBook::NewSession> UserBook::BeginForKey(const ApiKeyRow& key, UserRole role,
                                                           const Browser& browser) {
  absl::MutexLock lock(&change_mu_);
  RETURN_IF_ERROR(Pace(key.key_id, absl::ToUnixNanos(clock_.Now())));
  UserSessionRow row;
  row.key_id = key.key_id;
  row.tenant_id = key.tenant_id;
  row.role = UserRoleWord(role);
  row.expires_at = key.expires_at;
  return Begin(std::move(row), browser, {},
               Entry("user_sign_in", {key.key_id, key.tenant_id}, key.key_id));
}

absl::StatusOr<UserBook::NewSession> UserBook::BeginForTicket(const std::string& tenant_id,
                                                              const Browser& browser) {
  absl::MutexLock lock(&change_mu_);
  UserSessionRow row;
  row.tenant_id = tenant_id;
  row.role = UserRoleWord(UserRole::kOperator);
  return Begin(std::move(row), browser, {}, Entry("user_sign_in", {"", tenant_id}, kOperatorOwner));
}

size_t UserBook::NumAfterLocked(const std::string& tenant_id, const UserChange& change) const {
  const auto found = num_of_tenant_.find(tenant_id);
  if (found == num_of_tenant_.end()) return 0;
  const auto is_of_tenant = [&](const std::string& hash) {
    const auto session = sessions_.find(hash);
    return session != sessions_.end() && !IsOfTicket(session->second->row) &&
           session->second->row.tenant_id == tenant_id;
  };
  const auto num_ended =
      static_cast<size_t>(std::ranges::count_if(change.ended_sessions, is_of_tenant));
  // A session may be named twice there.
  return found->second - std::min(found->second, num_ended);
}

absl::Status UserBook::MakeRoom(const UserSessionRow& fresh, UserChange& change, int64_t now) {
  absl::ReaderMutexLock lock(&mu_);
  if (now >= sweep_at_) {
    for (const auto& [hash, session] : sessions_) {
      if (change.ended_sessions.size() >= static_cast<size_t>(kMaxPurgedRows)) break;
      if (!IsLive(*session, now)) change.ended_sessions.push_back(hash);
    }
    change.expired_at = now;
    const bool is_whole = change.ended_sessions.size() < static_cast<size_t>(kMaxPurgedRows);
    if (is_whole) sweep_at_ = now + absl::ToInt64Nanoseconds(kSweepPeriod);
  }
  const auto others = of_owner_.find(OwnerOf(fresh));
  if (others != of_owner_.end() && others->second.size() >= kMaxSessionsOfOne) {
    change.ended_sessions.push_back(others->second.front());
  }
  if (const size_t num = NumAfterLocked(fresh.tenant_id, change);
      !IsOfTicket(fresh) && num >= options_.max_sessions_of_tenant) {
    return Exhausted(absl::StrFormat("the tenant has %d sessions, limit is %d", num,
                                     options_.max_sessions_of_tenant),
                     "too_many_sessions");
  }
  if (sessions_.size() < kMaxSessions || !change.ended_sessions.empty()) return absl::OkStatus();
  return Exhausted(
      absl::StrFormat("there are %d sessions, limit is %d", sessions_.size(), kMaxSessions),
      "too_many_sessions");
}

absl::StatusOr<UserBook::NewSession> UserBook::Begin(UserSessionRow row, const Browser& browser,
                                                     UserChange change, AuditRow audit) {
  NewSession fresh;
  fresh.text = MakeUserSession();
  const absl::Time now = clock_.Now();
  row.session_hash = Sha256Hex(fresh.text);
  row.created_at = absl::ToUnixNanos(now);
  const int64_t latest = absl::ToUnixNanos(now + options_.session_lifetime);
  row.expires_at = row.expires_at == 0 ? latest : std::min(row.expires_at, latest);
  row.user_agent = Cut(browser.user_agent, kMaxUserAgentBytes);
  row.ip_prefix = Cut(browser.ip_prefix, kMaxIpPrefixBytes);
  RETURN_IF_ERROR(MakeRoom(row, change, row.created_at));
  audit.details.emplace_back("address", row.ip_prefix);
  audit.details.emplace_back("session_id", SessionIdOf(row));
  std::sort(audit.details.begin(), audit.details.end());
  change.sessions.push_back(row);
  change.audit.push_back(std::move(audit));
  RETURN_IF_ERROR(Apply(change));
  fresh.row = std::move(row);
  return fresh;
}

absl::Status UserBook::Apply(const UserChange& change) {
  RETURN_IF_ERROR(store_.ChangeUsers(change));
  absl::MutexLock lock(&mu_);
  for (const UserRow& row : change.users) {
    users_[row.user_id] = row;
    ids_[{row.issuer, row.subject}] = row.user_id;
  }
  for (const RoleBindingRow& row : change.bindings) {
    bindings_[{row.user_id, row.tenant_id}] = row.role;
  }
  for (const RoleBindingRow& row : change.removed_bindings) {
    bindings_.erase({row.user_id, row.tenant_id});
  }
  for (const std::string& hash : change.ended_sessions) RemoveLocked(hash);
  for (const UserSessionRow& row : change.sessions) AddLocked(row, row.created_at);
  return absl::OkStatus();
}

absl::Status UserBook::End(const UserSessionRow& session, const Actor& actor, const char* event) {
  absl::MutexLock lock(&change_mu_);
  {
    absl::ReaderMutexLock reading(&mu_);
    if (!sessions_.contains(session.session_hash)) return absl::OkStatus();
  }
  UserChange change;
  change.ended_sessions.push_back(session.session_hash);
  AuditRow audit = Entry(event, actor, OwnerOf(session));
  audit.details = {{"session_id", SessionIdOf(session)}};
  change.audit.push_back(std::move(audit));
  return Apply(change);
}

absl::StatusOr<UserRow> UserBook::Update(const std::string& user_id, const Edit& edit,
                                         const Actor& actor) {
  absl::MutexLock lock(&change_mu_);
  const std::optional<UserRow> old = FindUser(user_id);
  if (!old) return absl::NotFoundError("the user does not exist");
  UserRow user = *old;
  UserChange change;
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  const Actor in_tenant{.id = actor.id, .tenant_id = user.tenant_id};
  if (edit.bound_role) {
    const bool is_removed = edit.bound_role->empty();
    if (!is_removed) user.role = *edit.bound_role;
    const RoleBindingRow binding{.user_id = user.user_id,
                                 .tenant_id = user.tenant_id,
                                 .role = *edit.bound_role,
                                 .created_at = now,
                                 .created_by = actor.id};
    (is_removed ? change.removed_bindings : change.bindings).push_back(binding);
    AuditRow audit = Entry("user_role_set", in_tenant, user.user_id);
    audit.details = {{"from", old->role}, {"to", is_removed ? "mapped" : user.role}};
    change.audit.push_back(std::move(audit));
  }
  if (edit.disabled && *edit.disabled != (old->disabled_at != 0)) {
    user.disabled_at = *edit.disabled ? now : 0;
    change.audit.push_back(
        Entry(*edit.disabled ? "user_disable" : "user_enable", in_tenant, user.user_id));
  }
  change.users.push_back(user);
  change.ended_sessions = HashesOf(user.user_id);
  RETURN_IF_ERROR(Apply(change));
  return user;
}

void UserBook::RecordRefusal(const Identity& identity, const std::string& tenant_id,
                             const std::string& outcome) {
  const absl::Time now = clock_.Now();
  const std::string key =
      Sha256Hex(absl::StrCat(identity.issuer, "\n", identity.subject, "\n", outcome));
  {
    absl::MutexLock lock(&mu_);
    if (refusals_.size() >= kMaxRefusals) {
      std::erase_if(refusals_, [&](const auto& one) { return one.second <= now; });
    }
    // Beyond the bound nothing is recorded, so that strangers cannot fill the log.
    const auto known = refusals_.find(key);
    const bool is_repeated = known != refusals_.end() && known->second > now;
    if (is_repeated || refusals_.size() >= kMaxRefusals) return;
    refusals_[key] = now + absl::Minutes(1);
  }
  AuditRow audit = Entry("user_sign_in", {"", tenant_id}, Cut(identity.subject, kMaxNameBytes));
  audit.outcome = outcome;
  audit.details = {{"issuer", identity.issuer}};
  static_cast<void>(store_.AppendAudit(audit));
}

absl::StatusOr<std::string> UserBook::MakeTicket() {
  const std::string ticket = RandomBase62(kTicketLength);
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mu_);
  std::erase_if(tickets_, [&](const auto& one) { return one.second <= now; });
  if (tickets_.size() >= kMaxTickets) {
    return Exhausted(
        absl::StrFormat("%d tickets are open, limit is %d", tickets_.size(), kMaxTickets),
        "too_many_tickets");
  }
  tickets_[Sha256Hex(ticket)] = now + kTicketLifetime;
  return ticket;
}

absl::Status UserBook::UseTicket(std::string_view ticket) {
  const std::string hash = Sha256Hex(ticket);
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mu_);
  const auto found = tickets_.find(hash);
  const bool is_good = found != tickets_.end() && found->second > now;
  if (found != tickets_.end()) tickets_.erase(found);
  if (is_good) return absl::OkStatus();
  return WithDetail(
      absl::PermissionDeniedError("the link was used or is older than a minute; make another one"),
      "bad_ticket");
}

std::vector<UserRow> UserBook::Users(const std::string& tenant_id) const {
  std::vector<UserRow> rows;
  {
    absl::ReaderMutexLock lock(&mu_);
    for (const auto& [user_id, row] : users_) {
      if (tenant_id.empty() || row.tenant_id == tenant_id) rows.push_back(row);
    }
  }
  std::sort(rows.begin(), rows.end(), [](const UserRow& a, const UserRow& b) {
    return std::tie(a.created_at, a.user_id) < std::tie(b.created_at, b.user_id);
  });
  return rows;
}

std::vector<UserSessionRow> UserBook::SessionsOf(const std::string& user_id) const {
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  std::vector<UserSessionRow> rows;
  absl::ReaderMutexLock lock(&mu_);
  const auto hashes = of_owner_.find(user_id);
  if (hashes == of_owner_.end()) return rows;
  for (auto hash = hashes->second.rbegin(); hash != hashes->second.rend(); ++hash) {
    const Session& session = *sessions_.find(*hash)->second;
    if (IsLive(session, now)) rows.push_back(session.row);
  }
  return rows;
}

}  // namespace lathe::engine

#include "services/api-gateway/auth/credential_cache.h"

#include <algorithm>

#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

constexpr size_t kMaxKeyBytes = 4096;
// Longest lifetime of an entry, whatever the engine allows. A revoked key stops working within it.
constexpr absl::Duration kMaxLifetime = absl::Seconds(5);
// Lifetime of a refusal. It shields the engine from a client that repeats an unknown key.
constexpr absl::Duration kRefusalLifetime = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(5);
// Timeout on routes that also answer without the engine. Old clients wait only 5 s for telemetry.
constexpr absl::Duration kShortTimeout = absl::Seconds(1);

// Returns the same error for every reason, so that a caller learns nothing about keys.
absl::Status Unauthenticated() {
  return WithDetail(absl::UnauthenticatedError("the API key is missing or not valid"),
                    "unauthenticated", "x-api-key");
}

// Returns true if gRPC metadata can carry `api_key`.
bool IsWellFormed(const std::string& api_key) {
  return !api_key.empty() && api_key.size() <= kMaxKeyBytes &&
         std::all_of(api_key.begin(), api_key.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

bool IsOutage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

absl::Status CredentialCache::TakeSession(Request& request) const {
  request.api_key = cookies_.FindSession(request);
  if (request.api_key.empty()) {
    return WithDetail(absl::UnauthenticatedError("there is no session; sign in"), "bad_session");
  }
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  return is_read ? absl::OkStatus() : CheckCsrf(request, request.api_key);
}

asio::awaitable<absl::StatusOr<KeyState>> CredentialCache::Check(const Route& route,
                                                                 Request& request) {
  if (route.access == Access::kPublic) co_return KeyState::kNone;
  if (route.access == Access::kSession) {
    if (absl::Status status = TakeSession(request); !status.ok()) co_return status;
  } else if (!IsWellFormed(request.api_key) || IsUserSession(request.api_key)) {
    // A session does nothing outside of its cookie.
    co_return Unauthenticated();
  }
  const bool insists = route.access != Access::kKeyUnlessEngineDown;
  absl::Status status = co_await CheckKey(request, insists ? kTimeout : kShortTimeout);
  if (status.ok()) co_return KeyState::kAccepted;
  if (!IsOutage(status)) co_return status;
  if (!insists) {
    co_return WasGood(request.api_key) ? KeyState::kAccepted : KeyState::kUnverified;
  }
  // Unavailable for every kind of outage, so that the client repeats the request.
  co_return absl::UnavailableError("the engine does not answer; try again");
}

asio::awaitable<absl::Status> CredentialCache::CheckKey(const Request& request,
                                                        absl::Duration timeout) {
  const std::string& api_key = request.api_key;
  if (const auto known = Find(api_key)) co_return *known;
  if (!WasGood(api_key)) {
    const absl::Status admitted = failed_.Admit(request.peer);
    if (!admitted.ok()) co_return admitted;
  }
  const v1::AuthenticateRequest question;
  const absl::StatusOr<v1::AuthenticateResponse> answer =
      co_await engine_.Call(&EngineClient::AsyncStub::Authenticate, question, api_key, timeout);
  if (answer.ok()) {
    Remember(api_key, absl::OkStatus(), absl::Seconds(answer->cache_seconds()));
    co_return absl::OkStatus();
  }
  if (answer.status().code() != absl::StatusCode::kUnauthenticated) co_return answer.status();
  failed_.Count(request.peer);
  // A refused token or session keeps the engine's message, such as its expiry. All keys get the
  // same message.
  const std::string code = ErrorCode(answer.status());
  const bool is_key = code != "bad_token" && code != "bad_session";
  const absl::Status refusal = is_key ? Unauthenticated() : answer.status();
  Remember(api_key, refusal, kRefusalLifetime);
  co_return refusal;
}

std::optional<absl::Status> CredentialCache::Find(const std::string& api_key) {
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mu_);
  for (const auto* entries : {&accepted_, &refused_}) {
    const auto entry = entries->find(api_key);
    if (entry != entries->end() && entry->second.expires_at > now) return entry->second.status;
  }
  return std::nullopt;
}

bool CredentialCache::WasGood(const std::string& api_key) {
  absl::MutexLock lock(&mu_);
  return accepted_.contains(api_key);
}

void CredentialCache::Remember(const std::string& api_key, absl::Status status,
                               absl::Duration lifetime) {
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mu_);
  // Refusals have a map of their own, so that wrong keys cannot push out good ones.
  auto& entries = status.ok() ? accepted_ : refused_;
  (status.ok() ? refused_ : accepted_).erase(api_key);
  // Any entry may go: its key then costs one more call. A search for an expired one would make
  // every miss cost as much as the whole map.
  if (entries.size() >= kMaxEntries && !entries.contains(api_key)) entries.erase(entries.begin());
  entries[api_key] = {now + std::min(lifetime, kMaxLifetime), std::move(status)};
}

}  // namespace lathe::gateway

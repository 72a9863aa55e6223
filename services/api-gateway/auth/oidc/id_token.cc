#include "services/api-gateway/auth/oidc/id_token.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr size_t kHalfDigestBytes = 16;

absl::Status Refused(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the ID token is refused: ", why));
}

// Returns the seconds of a claim, which may have a fraction.
absl::StatusOr<absl::Time> TimeClaim(const Json& claims, const char* name) {
  const absl::StatusOr<double> seconds = JsonNumber(claims, name);
  // Beyond these bounds it is no date, and arithmetic would overflow.
  if (!seconds.ok() || !(*seconds > 0 && *seconds < 1e11)) {
    return Refused(absl::StrCat(name, " is missing or no time"));
  }
  return absl::FromUnixMicros(static_cast<int64_t>(*seconds * 1e6));
}

absl::Status CheckTimes(const Json& claims, absl::Time now) {
  ASSIGN_OR_RETURN(const absl::Time expires_at, TimeClaim(claims, "exp"));
  ASSIGN_OR_RETURN(const absl::Time issued_at, TimeClaim(claims, "iat"));
  if (expires_at + kIdTokenLeeway <= now) return Refused("it has expired");
  if (issued_at - kIdTokenLeeway > now) return Refused("its iat is in the future");
  if (!JsonHas(claims, "nbf")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::Time not_before, TimeClaim(claims, "nbf"));
  if (not_before - kIdTokenLeeway > now) return Refused("its nbf is in the future");
  return absl::OkStatus();
}

absl::Status CheckAudience(const Json& claims, const std::string& client_id) {
  const auto aud = claims.find("aud");
  if (aud == claims.end()) return Refused("it has no aud");
  size_t num_audiences = 1;
  bool is_for_us = *aud == client_id;
  if (aud->is_array()) {
    num_audiences = aud->size();
    is_for_us = std::find(aud->begin(), aud->end(), Json(client_id)) != aud->end();
  }
  if (!is_for_us) return Refused("its aud is another client");
  const bool has_azp = JsonHas(claims, "azp");
  if (num_audiences > 1 && !has_azp) return Refused("it has several aud and no azp");
  if (has_azp && claims["azp"] != client_id) return Refused("its azp is another client");
  return absl::OkStatus();
}

absl::Status CheckAccessToken(const Json& claims, const std::string& access_token) {
  if (!JsonHas(claims, "at_hash")) return absl::OkStatus();
  const absl::StatusOr<std::string> at_hash = JsonString(claims, "at_hash");
  const std::string half = Sha256Bytes(access_token).substr(0, kHalfDigestBytes);
  if (!at_hash.ok() || !EqualInConstantTime(*at_hash, absl::WebSafeBase64Escape(half))) {
    return Refused("its at_hash is that of another access token");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> CheckIdToken(const std::string& token, const JwkSet& keys,
                                  const IdTokenChecks& checks) {
  ASSIGN_OR_RETURN(const std::string payload, keys.Verify(token, checks.algorithms));
  absl::StatusOr<Json> parsed = ParseJson(payload, "ID token");
  if (!parsed.ok() || !parsed->is_object()) return Refused("it is not JSON");
  const Json& claims = *parsed;
  if (JsonString(claims, "iss").value_or("") != checks.issuer) return Refused("its iss is another");
  RETURN_IF_ERROR(CheckAudience(claims, checks.client_id));
  RETURN_IF_ERROR(CheckTimes(claims, checks.now));
  const absl::StatusOr<std::string> nonce = JsonString(claims, "nonce");
  if (!nonce.ok() || !EqualInConstantTime(*nonce, checks.nonce)) {
    return Refused("its nonce is another");
  }
  RETURN_IF_ERROR(CheckAccessToken(claims, checks.access_token));
  const std::string subject = JsonString(claims, "sub").value_or("");
  if (subject.empty() || subject.size() > kMaxSubjectBytes) {
    return Refused(
        absl::StrCat("its sub has ", subject.size(), " bytes, expected 1 to ", kMaxSubjectBytes));
  }
  return parsed;
}

}  // namespace lathe::gateway

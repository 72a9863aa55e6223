// An OpenID Connect provider: its addresses, its keys, and the exchange of a code for claims.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/http_client/http_call.h"
#include "libs/common/json/json.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/auth/oidc/jwk_set.h"
#include "services/api-gateway/auth/oidc/login_state.h"

namespace lathe::gateway {

struct OidcOptions {
  std::string issuer;  // address of the provider; empty: there is none
  std::string name;    // for people; empty: the host of the issuer
  std::string client_id;
  std::string client_secret;  // empty: a public client
  std::string scopes = "openid profile email";
  std::vector<std::string> algorithms = {"RS256", "ES256"};
  // Claims for which the provider is asked once more if the ID token lacks one of them.
  std::vector<std::string> claims = {"email"};
};

// Returns InvalidArgument that names the option, its value and what is expected.
absl::Status CheckOidcOptions(const OidcOptions& options);

// Returns the host of the issuer, or the configured name.
std::string ProviderName(const OidcOptions& options);

// AuthorizationUrl and Redeem may block for seconds. Thread-safe.
class OidcProvider {
 public:
  static constexpr absl::Duration kMetadataLifetime = absl::Hours(1);
  // An unknown key makes the provider's keys be read again, not sooner than this.
  static constexpr absl::Duration kKeysPause = absl::Minutes(1);

  using Http = std::function<absl::StatusOr<::lathe::HttpAnswer>(const HttpCallRequest&)>;

  // `clock` must outlive it. `http` makes the calls.
  OidcProvider(OidcOptions options, Clock& clock, Http http = HttpExchange)
      : options_(std::move(options)), clock_(clock), http_(std::move(http)) {}

  const OidcOptions& options() const { return options_; }

  // Returns the address to which a browser goes to sign in. Unavailable: the provider does not
  // answer, or not as it must.
  absl::StatusOr<std::string> AuthorizationUrl(const LoginState& login,
                                               const std::string& redirect_uri);
  // Returns the verified claims of the user for the code of a callback. `issuer` is the parameter
  // iss of the callback (RFC 9207); empty: none. Errors:
  //   Unavailable       the provider does not answer, or refuses the code
  //   InvalidArgument   another provider answered, or the ID token is refused
  absl::StatusOr<Json> Redeem(const std::string& code, const std::string& issuer,
                              const LoginState& login, const std::string& redirect_uri);
  // Returns the address where a browser ends its session with the provider; empty: none.
  std::string SignOutUrl(const std::string& back_to);

 private:
  struct Metadata {
    std::string authorization_endpoint;
    std::string token_endpoint;
    std::string jwks_uri;
    std::string userinfo_endpoint;     // empty: none
    std::string end_session_endpoint;  // empty: none
    bool sends_issuer = false;         // callbacks have iss
    absl::Time read_at;
  };
  struct Tokens {
    std::string id_token;
    std::string access_token;
  };

  absl::StatusOr<std::shared_ptr<const Metadata>> ReadMetadata();
  absl::StatusOr<std::shared_ptr<const JwkSet>> ReadKeys(const Metadata& metadata);
  absl::StatusOr<Tokens> ExchangeCode(const Metadata& metadata, const std::string& code,
                                      const LoginState& login, const std::string& redirect_uri);
  absl::StatusOr<Json> CheckToken(const Metadata& metadata, const Tokens& tokens,
                                  const LoginState& login);
  absl::Status AddUserinfo(const Metadata& metadata, const Tokens& tokens, Json& claims);
  // Returns the JSON of a 200. Unavailable otherwise.
  absl::StatusOr<Json> Fetch(HttpCallRequest request);

  const OidcOptions options_;
  Clock& clock_;
  const Http http_;
  absl::Mutex mu_;
  std::shared_ptr<const Metadata> metadata_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const JwkSet> keys_ ABSL_GUARDED_BY(mu_);
  absl::Time keys_read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace lathe::gateway

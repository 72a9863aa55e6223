#include "services/api-gateway/settings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr int kMaxPollHoldSeconds = 40;

void AddLimits(OptionSet& set, HttpLimits& limits) {
  set.Add(&limits.max_head_bytes, "gateway.max_head_bytes", limits.max_head_bytes,
          "maximum bytes of a request's first line and headers");
  set.Add(&limits.max_body_bytes, "gateway.max_body_bytes", limits.max_body_bytes,
          "maximum bytes of a request body as sent");
  set.Add(&limits.max_inflight_bytes, "gateway.max_inflight_bytes", 0,
          "maximum memory for the bodies of all requests, as sent, inflated and parsed; further "
          "requests are answered 429; 0: a quarter of the memory available at the start");
  set.Add(&limits.max_connections, "gateway.max_connections", limits.max_connections,
          "maximum number of open connections; further ones are closed at once");
  set.Add(&limits.max_connections_per_address, "gateway.max_connections_per_address",
          limits.max_connections_per_address,
          "maximum number of open connections from one address; 0: no limit per address");
  set.Add(&limits.max_polls_per_key, "gateway.max_polls_per_key", limits.max_polls_per_key,
          "maximum number of polls of one key that wait; further ones are answered 429");
  set.Add(&limits.max_viewers, "gateway.max_viewers", limits.max_viewers,
          "maximum number of clients that receive events; further ones are answered 503");
  set.Add(&limits.max_viewers_per_tenant, "gateway.max_viewers_per_tenant",
          limits.max_viewers_per_tenant,
          "maximum number of clients of one tenant that receive events; further ones are answered "
          "429");
  set.Add(&limits.max_failed_keys_per_minute, "gateway.max_failed_keys_per_minute",
          limits.max_failed_keys_per_minute,
          "refused keys of one address in a minute, after which the gateway checks its further "
          "keys slowly; 0: no limit");
  set.Add(&limits.idle_timeout, "gateway.idle_timeout", limits.idle_timeout,
          "maximum time between two requests of a connection");
  set.Add(&limits.head_timeout, "gateway.head_timeout", limits.head_timeout,
          "maximum time of a TLS handshake, from a connection to its first byte, and from a "
          "request's first byte to the end of its headers");
  set.Add(&limits.progress_timeout, "gateway.progress_timeout", limits.progress_timeout,
          "maximum time in which no byte of a body arrives, or the client reads no byte of a "
          "response");
  set.Add(&limits.body_timeout, "gateway.body_timeout", limits.body_timeout,
          "maximum time for a whole body");
  set.Add(&limits.min_body_bytes_per_second, "gateway.min_body_bytes_per_second",
          limits.min_body_bytes_per_second,
          "minimum average rate of a body; slower bodies end after progress_timeout");
}

absl::Status CheckLimits(const HttpLimits& limits) {
  const absl::Duration shortest = std::min(
      {limits.idle_timeout, limits.head_timeout, limits.progress_timeout, limits.body_timeout});
  if (shortest <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a timeout is ", absl::FormatDuration(shortest), ", expected more than 0"));
  }
  if (limits.max_head_bytes < 1024 || limits.max_head_bytes > kReadBufferBytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat("max_head_bytes is ", limits.max_head_bytes,
                                                   ", allowed are 1024 to ", kReadBufferBytes / 2));
  }
  if (limits.max_polls_per_key < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_polls_per_key is ", limits.max_polls_per_key, ", expected at least 1"));
  }
  if (limits.max_viewers < 1 || limits.max_viewers_per_tenant < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_viewers is ", limits.max_viewers, " and max_viewers_per_tenant ",
                     limits.max_viewers_per_tenant, ", expected at least 1"));
  }
  if (limits.max_connections < 1 || limits.max_connections_per_address < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_connections is ", limits.max_connections, " and max_connections_per_address ",
        limits.max_connections_per_address, ", expected at least 1 and 0"));
  }
  if (limits.max_inflight_bytes < 0 ||
      (limits.max_inflight_bytes > 0 && limits.max_inflight_bytes < kMinInflightBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_inflight_bytes is ", limits.max_inflight_bytes,
                     ", allowed are 0 and at least ", kMinInflightBytes));
  }
  if (limits.max_failed_keys_per_minute < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_failed_keys_per_minute is ",
                                                   limits.max_failed_keys_per_minute,
                                                   ", expected at least 0"));
  }
  if (limits.min_body_bytes_per_second < 1) {
    return absl::InvalidArgumentError(absl::StrCat("min_body_bytes_per_second is ",
                                                   limits.min_body_bytes_per_second,
                                                   ", expected at least 1"));
  }
  return absl::OkStatus();
}

void AddOidc(OptionSet& set, OidcOptions& oidc) {
  set.Add(&oidc.issuer, "auth.oidc_issuer", "",
          "address of the OpenID Connect provider where people sign in to the dashboard, as its "
          "tokens name it; empty: none");
  set.Add(&oidc.name, "auth.oidc_name", "",
          "name of the provider for people; empty: the host of its address");
  set.Add(&oidc.client_id, "auth.oidc_client_id", "", "this service's id at the provider");
  set.Add(&oidc.client_secret, "auth.oidc_client_secret", "",
          "this service's secret at the provider; empty: a public client", {.secret = true});
  set.Add(&oidc.scopes, "auth.oidc_scopes", oidc.scopes, "scopes to ask for, with spaces between");
  set.Add(&oidc.algorithms, "auth.oidc_algorithms", oidc.algorithms,
          "algorithms of ID tokens: RS256, PS256, ES256");
  set.Add(&oidc.claims, "auth.oidc_claims", oidc.claims,
          "claims for which userinfo is asked if the ID token lacks one of them");
}

void AddOptions(OptionSet& set, Settings& settings) {
  set.Add(&settings.gateway.engine_addresses, "gateway.engine", {},
          "addresses of the engine and its standbys, unix:PATH or HOST:PORT", {.required = true});
  set.Add(&settings.gateway.engine_tls.ca, "gateway.engine_ca", "",
          "PEM file with CAs; an engine on another machine must present a certificate that one "
          "of them signed");
  set.Add(&settings.gateway.engine_tls.cert, "gateway.engine_cert", "",
          "PEM file with the client certificate, for an engine that requests one");
  set.Add(&settings.gateway.engine_tls.key, "gateway.engine_key", "",
          "PEM file of its private key");
  set.Add(&settings.gateway.secret_file, "gateway.secret_file", "",
          "copy of the engine's RUN_DIR/gateway.secret, for an engine on another machine");
  set.Add(&settings.listen, "gateway.listen", "127.0.0.1:8080", "address of the API, HOST:PORT");
  set.Add(&settings.grpc_listen, "gateway.grpc_listen", "",
          "address of the gRPC services, HOST:PORT; empty: none");
  set.Add(&settings.gateway.grpc_reflection, "gateway.reflection", false,
          "also offers gRPC reflection, without a key");
  set.Add(&settings.gateway.routes.public_url, "gateway.public_url", "",
          "scheme and host of download links; empty: from the Host header");
  set.Add(&settings.gateway.allowed_hosts, "gateway.allowed_hosts", {},
          "names allowed in the Host header, besides those of public_url and loopback; *: any "
          "name; empty on an address other than loopback: any name");
  set.Add(&settings.gateway.trusted_proxies, "gateway.trusted_proxies", {},
          "addresses or networks of the proxies in front of the gateway, such as 10.0.0.0/8; it "
          "takes the client's address from their X-Forwarded-For and the scheme from their "
          "X-Forwarded-Proto");
  set.Add(&settings.gateway.routes.jwt_auth, "gateway.jwt_auth", false,
          "asks clients to exchange their key for tokens that are valid for an hour");
  set.Add(&settings.gateway.routes.retrieve_futures, "gateway.retrieve_futures", true,
          "asks clients to wait for all their samples with one poll, instead of one poll each");
  set.Add(&settings.data_dir, "gateway.data_dir", "",
          "the engine's data directory as this process mounts it; empty: no downloads of "
          "checkpoints");
  AddStorageOptions(set, settings.storage, /*has_cache=*/false);
  set.Add(&settings.gateway.outage_grace, "gateway.outage_grace", settings.gateway.outage_grace,
          "time without an engine after which /readyz answers 503; a change of the leader is "
          "shorter");
  set.Add(&settings.gateway.drain_delay, "gateway.drain_delay", settings.gateway.drain_delay,
          "time for which a gateway that was asked to stop serves on while /readyz answers 503, so "
          "that balancers notice; a second signal ends it");
  set.Add(&settings.gateway.drain_timeout, "gateway.drain_timeout", settings.gateway.drain_timeout,
          "maximum time after drain_delay that a stop waits for requests in progress");
  set.Add(&settings.poll_hold_seconds, "gateway.poll_hold_seconds", 20,
          "seconds that a poll waits for its result, at most 40; a hanging engine adds up to 3");
  AddLimits(set, settings.gateway.limits);
  set.Add(&settings.gateway.tls.cert, "gateway.tls_cert", "",
          "PEM file with the certificate chain for HTTPS; read again when it changes");
  set.Add(&settings.gateway.tls.key, "gateway.tls_key", "", "PEM file of its private key");
  set.Add(&settings.gateway.tls.client_ca, "gateway.tls_client_ca", "",
          "PEM file with CAs; clients must present a certificate that one of them signed");
  set.Add(
      &settings.insecure_i_know, "gateway.insecure_i_know", false,
      "allows listen and grpc_listen to be addresses that other machines reach, and engine to be "
      "another machine, without TLS");
  NoticeOptions& notices = settings.gateway.notices;
  set.Add(&notices.notice, "gateway.notice", "",
          "text that SDKs since 0.34 write into their users' logs; empty: none");
  set.Add(&notices.notice_level, "gateway.notice_level", notices.notice_level,
          "level at which SDKs log the notice: warning or error",
          {.choices = {"warning", "error"}});
  set.Add(&notices.min_sdk_version, "gateway.min_sdk_version", notices.min_sdk_version,
          "older SDKs are asked to upgrade; empty: no minimum");
  set.Add(&settings.metrics_listen, "metrics.gateway_listen", "",
          "HOST:PORT of /metrics, /livez and /readyz, for a private network; empty: no page",
          {.flag = "metrics-listen"});
  set.Add(&settings.num_threads, "gateway.threads", 2, "HTTP threads");
  AddOidc(set, settings.gateway.sign_in.oidc);
  AddTracingOptions(set, settings.tracing);
  AddLogLevel(set, &settings.log_level);
}

}  // namespace

Settings ParseSettings(int argc, char** argv) {
  Settings settings;
  OptionSet set("lathe-gateway", "Serves the Tinker API over HTTP in front of lathe-engine.");
  AddOptions(set, settings);
  set.SetCheck([&settings] { return CheckSettings(settings); });
  set.ParseOrExit(argc, argv);
  settings.config_path = set.config_path();
  return settings;
}

// A gateway proves itself to engines that it reaches by network.
absl::Status CheckSecret(const GatewayOptions& options) {
  for (const std::string& address : options.engine_addresses) {
    if (!options.secret_file.empty() || address.starts_with("unix:")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("secret_file is missing: the engine at ", address,
                     " serves only gateways that have a copy of its RUN_DIR/gateway.secret"));
  }
  return absl::OkStatus();
}

absl::Status CheckSettings(const Settings& settings) {
  if (settings.gateway.drain_delay < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "drain_delay is ", absl::FormatDuration(settings.gateway.drain_delay), ", minimum is 0s"));
  }
  if (settings.gateway.drain_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("drain_timeout is ", absl::FormatDuration(settings.gateway.drain_timeout),
                     ", minimum is 0s"));
  }
  if (settings.gateway.outage_grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("outage_grace is ", absl::FormatDuration(settings.gateway.outage_grace),
                     ", minimum is 0s"));
  }
  if (settings.poll_hold_seconds < 1 || settings.poll_hold_seconds > kMaxPollHoldSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll_hold_seconds is ", settings.poll_hold_seconds, ", allowed are 1 to 40"));
  }
  if (settings.num_threads < 1 || settings.num_threads > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", settings.num_threads, ", allowed are 1 to 64"));
  }
  RETURN_IF_ERROR(CheckTlsFiles(settings.gateway.tls));
  RETURN_IF_ERROR(CheckStorageOptions(settings.storage));
  RETURN_IF_ERROR(CheckTracingOptions(settings.tracing));
  RETURN_IF_ERROR(TrustedProxies::Parse(settings.gateway.trusted_proxies).status());
  RETURN_IF_ERROR(CheckNotices(settings.gateway.notices));
  RETURN_IF_ERROR(CheckOidcOptions(settings.gateway.sign_in.oidc));
  RETURN_IF_ERROR(CheckExposure({.option = "listen",
                                 .address = settings.listen,
                                 .has_tls = settings.gateway.tls.enabled(),
                                 .insecure_i_know = settings.insecure_i_know}));
  if (!settings.grpc_listen.empty()) {
    RETURN_IF_ERROR(CheckExposure({.option = "grpc_listen",
                                   .address = settings.grpc_listen,
                                   .has_tls = settings.gateway.tls.enabled(),
                                   .insecure_i_know = settings.insecure_i_know}));
  }
  RETURN_IF_ERROR(CheckChannelTls(settings.gateway.engine_tls, settings.gateway.engine_addresses,
                                  settings.insecure_i_know));
  RETURN_IF_ERROR(CheckSecret(settings.gateway));
  return CheckLimits(settings.gateway.limits);
}

}  // namespace lathe::gateway

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/listener/tls_files.h"
#include "tools/lathe/certs/certificate.h"
#include "tools/lathe/doctor/check.h"
#include "tools/lathe/launch/http_get.h"
#include "tools/lathe/launch/listen_address.h"

namespace lathe::cli {
namespace {

constexpr int kConnectMilliseconds = 2000;
constexpr absl::Duration kFewDays = absl::Hours(14 * 24);

// Options that are listen addresses, and the section of their certificate; empty: they have none.
struct Listener {
  const char* option;
  const char* tls;
};
constexpr Listener kListeners[] = {
    {"up.listen", "up"},
    {"up.grpc_listen", "up"},
    {"up.metrics_listen", ""},
    {"gateway.listen", "gateway"},
    {"gateway.grpc_listen", "gateway"},
    {"metrics.gateway_listen", ""},
    {"engine.grpc_listen", "engine"},
    {"engine.worker_listen", "engine"},
    {"metrics.engine_listen", ""},
    {"metrics.worker_listen", ""},
    {"worker.version_listen", ""},
    {"ranks.metrics_listen", ""},
};

// Metrics and versions travel in the clear; docs/listeners.md says to keep them on private
// networks.
bool IsPublic(const Listener& listener) { return *listener.tls != '\0'; }

// Returns true if a Lathe answers probes on one of the addresses.
bool AnswersOnAPage(const CheckInput& input) {
  return std::any_of(std::begin(kListeners), std::end(kListeners), [&](const Listener& listener) {
    const absl::StatusOr<ListenAddress> address =
        ParseListenAddress(input.Option(listener.option), listener.option);
    return address.ok() && address->port != 0 && Accepts(*address) &&
           AnswersOk(address->Reachable(), "/livez");
  });
}

std::vector<Finding> CheckListeners(const CheckInput& input) {
  const bool is_running =
      (!input.DataDirPath().empty() && input.IsRunning()) || AnswersOnAPage(input);
  std::vector<Finding> findings;
  for (const Listener& listener : kListeners) {
    const std::string text = input.Option(listener.option);
    if (text.empty()) continue;
    const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(text, listener.option);
    if (!parsed.ok()) {
      findings.push_back({.state = CheckState::kError,
                          .found = std::string(parsed.status().message()),
                          .remedy = absl::StrCat("set ", listener.option, " to HOST:PORT")});
      continue;
    }
    ListenAddress address = *parsed;
    const absl::Status free = is_running ? absl::OkStatus() : ClaimPort(address);
    if (free.ok()) {
      findings.push_back({.found = absl::StrCat(listener.option, " = ", text,
                                                is_running ? ", in use by Lathe" : "")});
    } else {
      findings.push_back({.state = CheckState::kError,
                          .found = absl::StrCat(listener.option, ": ", free.message()),
                          .remedy = "ss -tlnp shows who listens there"});
    }
  }
  if (findings.empty()) return {{.state = CheckState::kSkipped, .found = "no listener on TCP"}};
  return findings;
}

std::vector<Finding> CheckListenersExposure(const CheckInput& input) {
  std::vector<Finding> findings;
  for (const Listener& listener : kListeners) {
    const std::string text = input.Option(listener.option);
    if (text.empty() || !IsPublic(listener)) continue;
    const std::string section = listener.tls;
    const Exposure exposure = {
        .option = listener.option,
        .address = text,
        .has_tls = !input.Option(section + ".tls_cert").empty(),
        .insecure_i_know = input.Option(section + ".insecure_i_know") == "true"};
    if (const absl::Status status = CheckExposure(exposure); !status.ok()) {
      findings.push_back({.state = CheckState::kError,
                          .found = std::string(status.message()),
                          .remedy = "lathe certs init makes certificates (docs/listeners.md)"});
    } else if (!IsLoopback(text) && !exposure.has_tls) {
      findings.push_back({.state = CheckState::kWarning,
                          .found = absl::StrCat(listener.option, " = ", text,
                                                " serves other machines in clear text"),
                          .expected = "TLS, here or in a proxy in front of it",
                          .remedy = "lathe certs init makes certificates (docs/listeners.md)"});
    }
  }
  if (findings.empty()) return {{.found = "no keys travel in clear text"}};
  return findings;
}

// Looks at the times and names of the certificate in a PEM file.
Finding CheckCertificate(const std::string& path) {
  const absl::StatusOr<std::string> pem = ReadTextFile(path);
  const absl::StatusOr<CertificatePtr> certificate =
      pem.ok() ? ReadCertificate(*pem) : absl::StatusOr<CertificatePtr>(pem.status());
  if (!certificate.ok()) {
    return {.state = CheckState::kError,
            .found = absl::StrCat(path, ": ", certificate.status().message()),
            .remedy = "name a PEM certificate"};
  }
  const absl::Time now = absl::Now();
  if (BeginOf(certificate->get()) > now) {
    return {.state = CheckState::kError,
            .found = absl::StrCat(path, " is not valid yet"),
            .remedy = "set the clock of this machine, or make a new certificate"};
  }
  const absl::Time end = EndOf(certificate->get());
  const std::string end_text = absl::FormatTime("%Y-%m-%d %H:%M", end, absl::UTCTimeZone());
  if (end < now) {
    return {.state = CheckState::kError,
            .found = absl::StrCat(path, " ended at ", end_text),
            .remedy = "make a new one (lathe certs renew); Lathe reads it without a restart"};
  }
  if (end < now + kFewDays) {
    return {.state = CheckState::kWarning,
            .found = absl::StrCat(path, " ends at ", end_text),
            .expected = "more than 14 days",
            .remedy = "make a new one (lathe certs renew); Lathe reads it without a restart"};
  }
  if (NamesOf(certificate->get()).empty()) {
    return {.state = CheckState::kWarning,
            .found = absl::StrCat(path, " has no alternative names"),
            .expected = "the names by which clients reach it, which they compare",
            .remedy = "make one with subjectAltName (lathe certs init)"};
  }
  return {.found = absl::StrCat(path, " ends at ", end_text)};
}

std::vector<Finding> CheckCertificates(const CheckInput& input) {
  std::vector<Finding> findings;
  for (const std::string section : {"up", "gateway", "engine"}) {
    const TlsFiles files = {.cert = input.Option(section + ".tls_cert"),
                            .key = input.Option(section + ".tls_key"),
                            .client_ca = input.Option(section + ".tls_client_ca")};
    if (!files.enabled()) continue;
    if (const absl::Status status = CheckTlsFiles(files); !status.ok()) {
      findings.push_back(
          {.state = CheckState::kError,
           .found = std::string(status.message()),
           .remedy = absl::StrCat("name a PEM certificate with ", section,
                                  ".tls_cert and its key with ", section, ".tls_key")});
      continue;
    }
    findings.push_back(CheckCertificate(files.cert));
  }
  const std::string client = absl::StrCat(input.Section(), ".engine_cert");
  if (const std::string path = input.Option(client); !path.empty()) {
    findings.push_back(CheckCertificate(path));
  }
  if (findings.empty()) return {{.state = CheckState::kSkipped, .found = "no certificate is set"}};
  return findings;
}

// Waits until `fd` is connected. Returns the error; 0: it is.
int FinishConnect(int fd) {
  pollfd waiting{.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&waiting, 1, kConnectMilliseconds) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

int Connect(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int error = connect(fd, address, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = FinishConnect(fd);
  close(fd);
  return error;
}

// Connects to "unix:PATH" or "HOST:PORT". Returns the reason of a failure; empty: it accepted.
std::string ConnectError(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) {
    const std::string path(absl::StripPrefix(address, "unix:"));
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    if (path.size() >= sizeof(name.sun_path)) return "the path is too long";
    std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
    const int error = Connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    return error == 0 ? "" : std::strerror(error);
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "it is not HOST:PORT";
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (code != 0) return gai_strerror(code);
  int error = EHOSTUNREACH;
  for (const addrinfo* each = found; each != nullptr && error != 0; each = each->ai_next) {
    error = Connect(each->ai_family, each->ai_addr, each->ai_addrlen);
  }
  freeaddrinfo(found);
  return error == 0 ? "" : std::strerror(error);
}

std::vector<Finding> CheckEngines(const CheckInput& input) {
  const std::vector<std::string> addresses = input.List(absl::StrCat(input.Section(), ".engine"));
  if (addresses.empty()) {
    return {{.state = CheckState::kSkipped, .found = "the engine is on this machine"}};
  }
  std::vector<Finding> findings;
  bool is_any_reached = false;
  for (const std::string& address : addresses) {
    const std::string error = ConnectError(address);
    is_any_reached = is_any_reached || error.empty();
    if (error.empty()) {
      findings.push_back({.found = absl::StrCat(address, " accepts connections")});
    } else {
      findings.push_back({.state = CheckState::kError,
                          .found = absl::StrCat(address, ": ", error),
                          .expected = "an engine that listens",
                          .remedy = "compare it with engine.grpc_listen (gateways) or "
                                    "engine.worker_listen (workers) there, and with firewalls"});
    }
  }
  for (Finding& finding : findings) {
    if (is_any_reached && finding.state == CheckState::kError) finding.state = CheckState::kWarning;
  }
  return findings;
}

}  // namespace

const std::vector<DoctorCheck>& NetworkChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "network.listeners", .why = "a port has one owner", .run = CheckListeners},
      {.name = "network.exposure",
       .why = "who reads a key has its rights",
       .roles = {Role::kUp, Role::kEngine, Role::kGateway},
       .run = CheckListenersExposure},
      {.name = "network.certificates",
       .why = "clients refuse a certificate that has ended",
       .run = CheckCertificates},
      {.name = "network.engines",
       .why = "gateways and workers serve nothing without an engine",
       .roles = {Role::kGateway, Role::kWorker, Role::kRanks},
       .asks_other_machines = true,
       .run = CheckEngines},
  };
  return checks;
}

}  // namespace lathe::cli

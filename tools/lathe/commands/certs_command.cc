#include "tools/lathe/commands/certs_command.h"

#include <sys/stat.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/config/option_set.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/certs/cert_folder.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

struct CertsOptions {
  std::string dir;
  std::vector<std::string> names;
  absl::Duration life;
  absl::Duration renew_before;
};

void AddCertsOptions(OptionSet& set, CertsOptions& options) {
  const CertFolderOptions defaults;
  set.Add(&options.dir, "certs.out", "", "folder of ca.crt, ca.key and NAME.crt, NAME.key",
          {.required = true});
  set.Add(&options.life, "certs.life", defaults.life, "life of a new certificate");
  set.Add(&options.renew_before, "certs.renew_before", defaults.renew_before,
          "a certificate that ends within this time is replaced");
}

absl::Status CheckLives(const CertsOptions& options) {
  if (options.renew_before < absl::ZeroDuration() || options.life <= options.renew_before) {
    return UsageError(absl::StrCat("life is ", absl::FormatDuration(options.life),
                                   ", expected more than renew_before, ",
                                   absl::FormatDuration(options.renew_before)));
  }
  if (options.life + options.renew_before > kMaxCertificateLife) {
    return UsageError(absl::StrCat(
        "life and renew_before are ", absl::FormatDuration(options.life + options.renew_before),
        " together, limit is ", absl::FormatDuration(kMaxCertificateLife)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CertFolder> OpenFolder(const CertsOptions& options) {
  RETURN_IF_ERROR(CheckLives(options));
  // Keys are their owner's only, also while they are written.
  umask(077);
  return CertFolder::Open({.dir = options.dir,
                           .life = options.life,
                           .renew_before = options.renew_before,
                           .now = absl::Now()});
}

void Print(const CertificateState& state) {
  std::printf("%s.crt %s, valid until %s\n", state.file.c_str(), state.is_new ? "issued" : "kept",
              absl::FormatTime("%Y-%m-%d", state.end, absl::UTCTimeZone()).c_str());
}

absl::Status EnsureAll(CertFolder& folder, const std::vector<CertificateRequest>& requests) {
  ASSIGN_OR_RETURN(const CertificateState authority, folder.EnsureAuthority());
  Print(authority);
  for (const CertificateRequest& request : requests) {
    ASSIGN_OR_RETURN(const CertificateState state, folder.Ensure(request));
    Print(state);
  }
  return absl::OkStatus();
}

absl::Status Init(int argc, const char* const* argv) {
  CertsOptions options;
  OptionSet set("lathe certs init",
                "Makes a private CA and a certificate for each --name, for servers and clients. "
                "Keeps what is\nthere and good, and replaces what ends soon or has other names.");
  AddCertsOptions(set, options);
  set.Add(&options.names, "certs.name", {},
          "a certificate: NAME, or FILE=NAME,NAME… with DNS names and IP addresses; give it once "
          "for each",
          {.required = true, .keeps_commas = true});
  RETURN_IF_ERROR(set.Parse(argc, argv));
  std::vector<CertificateRequest> requests;
  for (const std::string& name : options.names) {
    ASSIGN_OR_RETURN(requests.emplace_back(), ParseCertificateRequest(name));
  }
  ASSIGN_OR_RETURN(CertFolder folder, OpenFolder(options));
  return EnsureAll(folder, requests);
}

absl::Status Renew(int argc, const char* const* argv) {
  CertsOptions options;
  OptionSet set("lathe certs renew",
                "Replaces the certificates of a folder that end soon, with the names that they "
                "have.");
  AddCertsOptions(set, options);
  RETURN_IF_ERROR(set.Parse(argc, argv));
  ASSIGN_OR_RETURN(CertFolder folder, OpenFolder(options));
  ASSIGN_OR_RETURN(const std::vector<CertificateRequest> requests, folder.Requests());
  return EnsureAll(folder, requests);
}

}  // namespace

absl::Status CertsCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "init") return Init(argc - 1, argv + 1);
  if (action == "renew") return Renew(argc - 1, argv + 1);
  return UsageError("lathe certs needs one of init --out DIR --name NAME…, renew --out DIR");
}

}  // namespace lathe::cli

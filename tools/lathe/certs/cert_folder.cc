#include "tools/lathe/certs/cert_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kAuthority[] = "ca";
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 365 * 10);

absl::Status CannotUse(const fs::path& path, const absl::Status& why) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat(path.string(), " cannot be used: ", why.message())),
      "configuration");
}

absl::Status CannotMake(const fs::path& path, int error) {
  return WithDetail(
      absl::InternalError(absl::StrCat("cannot make ", path.string(), ": ", std::strerror(error))),
      "cannot_create");
}

absl::StatusOr<KeyPtr> LoadKey(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string pem, ReadTextFile(path));
  absl::StatusOr<KeyPtr> key = ReadKey(pem);
  if (!key.ok()) return CannotUse(path, key.status());
  return key;
}

absl::StatusOr<CertificatePtr> LoadCertificate(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string pem, ReadTextFile(path));
  absl::StatusOr<CertificatePtr> certificate = ReadCertificate(pem);
  if (!certificate.ok()) return CannotUse(path, certificate.status());
  return certificate;
}

}  // namespace

absl::StatusOr<CertificateRequest> ParseCertificateRequest(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  CertificateRequest request{.file = parts.first, .names = {}};
  const bool has_list = text.find('=') != std::string::npos;
  const std::vector<std::string> given = absl::StrSplit(has_list ? parts.second : parts.first, ',');
  for (const std::string& name : given) {
    absl::StatusOr<std::string> normal = NormalName(name);
    if (!normal.ok()) return UsageError(absl::StrCat("name ", normal.status().message()));
    if (std::count(request.names.begin(), request.names.end(), *normal) == 0) {
      request.names.push_back(*std::move(normal));
    }
  }
  const std::string& file = request.file;
  if (file.empty() || file == kAuthority || file.front() == '.' || file.front() == '*' ||
      file.find('/') != std::string::npos) {
    return UsageError(absl::StrCat("'", file, "' cannot be the name of a certificate's file"));
  }
  return request;
}

absl::StatusOr<CertFolder> CertFolder::Open(CertFolderOptions options) {
  std::error_code ignored;
  if (options.dir.has_parent_path()) fs::create_directories(options.dir.parent_path(), ignored);
  if (mkdir(options.dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return CannotMake(options.dir, errno);
  }
  const fs::path lock = options.dir / ".lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return CannotMake(lock, errno);
  while (flock(fd, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    close(fd);
    return CannotMake(lock, errno);
  }
  return CertFolder(std::move(options), fd);
}

CertFolder::CertFolder(CertFolder&& other) noexcept
    : options_(other.options_),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      authority_(std::move(other.authority_)),
      authority_key_(std::move(other.authority_key_)) {}

CertFolder::~CertFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

fs::path CertFolder::CertPath(const std::string& file) const {
  return options_.dir / absl::StrCat(file, ".crt");
}

fs::path CertFolder::KeyPath(const std::string& file) const {
  return options_.dir / absl::StrCat(file, ".key");
}

absl::Status CertFolder::Write(const std::string& file, EVP_PKEY* key, X509* certificate) const {
  ASSIGN_OR_RETURN(const std::string key_pem, ToPem(key));
  ASSIGN_OR_RETURN(const std::string pem, ToPem(certificate));
  RETURN_IF_ERROR(WriteFileAtomically(KeyPath(file), key_pem, 0600));
  return WriteFileAtomically(CertPath(file), pem, 0600);
}

absl::StatusOr<CertificateState> CertFolder::EnsureAuthority() {
  const bool has_certificate = fs::exists(CertPath(kAuthority));
  if (fs::exists(KeyPath(kAuthority))) {
    ASSIGN_OR_RETURN(authority_key_, LoadKey(KeyPath(kAuthority)));
  } else if (!has_certificate) {
    ASSIGN_OR_RETURN(authority_key_, MakeKey());
  }
  if (has_certificate) {
    ASSIGN_OR_RETURN(authority_, LoadCertificate(CertPath(kAuthority)));
    if (authority_key_ && !IsKeyOf(authority_.get(), authority_key_.get())) {
      return CannotUse(KeyPath(kAuthority),
                       absl::InvalidArgumentError("it is not the key of ca.crt"));
    }
    const absl::Time end = EndOf(authority_.get());
    const bool outlives = end >= options_.now + options_.life + options_.renew_before;
    if (outlives || !authority_key_) return CertificateState{.file = kAuthority, .end = end};
  }
  ASSIGN_OR_RETURN(authority_, MakeAuthority(authority_key_.get(), options_.now, kAuthorityLife));
  RETURN_IF_ERROR(Write(kAuthority, authority_key_.get(), authority_.get()));
  return CertificateState{.file = kAuthority, .end = EndOf(authority_.get()), .is_new = true};
}

bool CertFolder::IsGood(const CertificateRequest& request, absl::Time& end) const {
  const auto certificate = LoadCertificate(CertPath(request.file));
  const auto key = LoadKey(KeyPath(request.file));
  if (!certificate.ok() || !key.ok()) return false;
  end = EndOf(certificate->get());
  return end >= options_.now + options_.renew_before &&
         NamesOf(certificate->get()) == request.names && IsKeyOf(certificate->get(), key->get()) &&
         IsSignedBy(certificate->get(), authority_.get());
}

absl::StatusOr<CertificateState> CertFolder::Ensure(const CertificateRequest& request) {
  CertificateState state{.file = request.file};
  if (IsGood(request, state.end)) return state;
  if (!authority_key_) {
    return WithDetail(absl::NotFoundError(absl::StrCat(KeyPath(kAuthority).string(),
                                                       " is missing, so no certificate for ",
                                                       request.file, " can be issued")),
                      "configuration");
  }
  ASSIGN_OR_RETURN(const KeyPtr key, MakeKey());
  ASSIGN_OR_RETURN(const CertificatePtr certificate,
                   Issue({.certificate = authority_.get(), .key = authority_key_.get()}, key.get(),
                         request.names, options_.now, options_.life));
  RETURN_IF_ERROR(Write(request.file, key.get(), certificate.get()));
  state.end = EndOf(certificate.get());
  state.is_new = true;
  return state;
}

absl::StatusOr<std::vector<CertificateRequest>> CertFolder::Requests() const {
  std::vector<CertificateRequest> requests;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.dir, error)) {
    const std::string file = entry.path().stem().string();
    if (entry.path().extension() != ".crt" || file == kAuthority) continue;
    ASSIGN_OR_RETURN(const CertificatePtr certificate, LoadCertificate(entry.path()));
    requests.push_back({.file = file, .names = NamesOf(certificate.get())});
    if (!requests.back().names.empty()) continue;
    return CannotUse(entry.path(), absl::InvalidArgumentError("it has no names"));
  }
  std::sort(requests.begin(), requests.end(),
            [](const auto& one, const auto& other) { return one.file < other.file; });
  return requests;
}

}  // namespace lathe::cli

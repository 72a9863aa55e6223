#include "libs/common/listener/tls_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "libs/common/errors.h"
#include "libs/common/listener/testing/test_certificates.h"

namespace lathe {
namespace {

TEST_CASE("TlsFiles: a certificate with its key is loaded", "[listener]") {
  const TestCertificates certificates;
  CHECK(
      CheckTlsFiles({.cert = certificates.cert("server"), .key = certificates.key("server")}).ok());
  CHECK(CheckTlsFiles({.cert = certificates.cert("server"),
                       .key = certificates.key("server"),
                       .client_ca = certificates.cert("ca")})
            .ok());
  CHECK(CheckTlsFiles({}).ok());
}

TEST_CASE("TlsFiles: an error names the option of a missing or wrong file", "[listener]") {
  const TestCertificates certificates;
  const std::string cert = certificates.cert("server");
  const std::string key = certificates.key("server");
  CHECK(ErrorField(CheckTlsFiles({.cert = cert})) == "tls_key");
  CHECK(ErrorField(CheckTlsFiles({.key = key})) == "tls_cert");
  CHECK(ErrorField(CheckTlsFiles({.client_ca = cert})) == "tls_cert");
  CHECK(ErrorField(CheckTlsFiles({.cert = cert + ".absent", .key = key})) == "tls_cert");
  CHECK(ErrorField(CheckTlsFiles({.cert = cert, .key = cert})) == "tls_key");
  CHECK(ErrorField(CheckTlsFiles({.cert = cert, .key = key, .client_ca = key})) == "tls_client_ca");
  const absl::Status mismatch = CheckTlsFiles({.cert = cert, .key = certificates.key("client")});
  CHECK(mismatch.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ErrorField(mismatch) == "tls_key");
}

TEST_CASE("TlsFiles: the stamp changes with the files", "[listener]") {
  const TestCertificates certificates;
  const TlsFiles files{.cert = certificates.cert("server"), .key = certificates.key("server")};
  const std::string stamp = StampOf(files);
  CHECK(StampOf(files) == stamp);
  // Tools replace certificates by renaming another file.
  std::filesystem::copy_file(files.cert, files.cert + ".new");
  std::filesystem::rename(files.cert + ".new", files.cert);
  CHECK(StampOf(files) != stamp);
}

}  // namespace
}  // namespace lathe

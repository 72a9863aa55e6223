#include "libs/common/listener/validated_tls_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "libs/common/errors.h"
#include "libs/common/listener/testing/test_certificates.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Replace(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  fs::rename(path + ".new", path);
}

TEST_CASE("ValidatedTlsFiles: files that cannot be used leave the last good ones", "[listener]") {
  const TestCertificates certificates;
  const TlsFiles source{.cert = certificates.cert("server"),
                        .key = certificates.key("server"),
                        .client_ca = certificates.cert("ca")};
  const auto validated = *ValidatedTlsFiles::Open(source);
  const TlsFiles kept = validated->files();
  CHECK(CheckTlsFiles(kept).ok());
  const std::string before = Read(kept.cert);
  CHECK(*validated->Refresh() == false);

  // The key of another pair, as in the middle of a replacement of the files.
  Replace(source.key, Read(certificates.key("client")));
  CHECK(validated->Refresh().status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Read(kept.cert) == before);
  CHECK(*validated->Refresh() == false);  // reported once
  Replace(source.cert, "no certificate");
  CHECK_FALSE(validated->Refresh().ok());
  CHECK(Read(kept.key) == before);
  CHECK(CheckTlsFiles(kept).ok());

  Replace(source.cert, Read(certificates.cert("client")));
  CHECK(*validated->Refresh());
  CHECK(Read(kept.cert) != before);
  CHECK(CheckTlsFiles(validated->files()).ok());
  CHECK(validated->files().cert == kept.cert);
}

TEST_CASE("ValidatedTlsFiles: an error at the start names its cause", "[listener]") {
  const TestCertificates certificates;
  const auto open = ValidatedTlsFiles::Open(
      {.cert = certificates.cert("server") + ".absent", .key = certificates.key("server")});
  CHECK(ErrorField(open.status()) == "tls_cert");
}

}  // namespace
}  // namespace lathe

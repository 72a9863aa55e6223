#include "libs/common/listener/good_tls_files.h"

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

TEST_CASE("GoodTlsFiles: files that cannot be used leave the last good ones", "[listener]") {
  const TestCertificates certificates;
  const TlsFiles source{.cert = certificates.cert("server"),
                        .key = certificates.key("server"),
                        .client_ca = certificates.cert("ca")};
  const auto good = *GoodTlsFiles::Open(source);
  const TlsFiles kept = good->files();
  CHECK(CheckTlsFiles(kept).ok());
  const std::string before = Read(kept.cert);
  CHECK(*good->Refresh() == false);

  // The key of another pair, as in the middle of a replacement of the files.
  Replace(source.key, Read(certificates.key("client")));
  CHECK(good->Refresh().status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Read(kept.cert) == before);
  CHECK(*good->Refresh() == false);  // reported once
  Replace(source.cert, "no certificate");
  CHECK_FALSE(good->Refresh().ok());
  CHECK(Read(kept.key) == before);
  CHECK(CheckTlsFiles(kept).ok());

  Replace(source.cert, Read(certificates.cert("client")));
  CHECK(*good->Refresh());
  CHECK(Read(kept.cert) != before);
  CHECK(CheckTlsFiles(good->files()).ok());
  CHECK(good->files().cert == kept.cert);
}

TEST_CASE("GoodTlsFiles: what is wrong at the start is named", "[listener]") {
  const TestCertificates certificates;
  const auto open = GoodTlsFiles::Open(
      {.cert = certificates.cert("server") + ".absent", .key = certificates.key("server")});
  CHECK(ErrorField(open.status()) == "tls_cert");
}

}  // namespace
}  // namespace lathe

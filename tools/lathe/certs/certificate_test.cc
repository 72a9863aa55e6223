#include "tools/lathe/certs/certificate.h"

#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace lathe::cli {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

TEST_CASE("Names are DNS names and addresses, and nothing else", "[certs]") {
  CHECK(*NormalName("Engine-A.Lathe") == "engine-a.lathe");
  CHECK(*NormalName("10.0.0.2") == "10.0.0.2");
  CHECK(*NormalName("FD00:0::2") == "fd00::2");
  CHECK(*NormalName("*.engines.lathe.svc") == "*.engines.lathe.svc");
  const std::string wrong =
      GENERATE(as<std::string>{}, "", "a b", "a..b", "-a", "a-", "a,DNS:evil", "*", "*.engines",
               "a.*.b", "@section", "a/b", "ü", std::string(64, 'a'));
  CHECK(absl::IsInvalidArgument(NormalName(wrong).status()));
}

TEST_CASE("A certificate is the authority's, for servers and clients of its names", "[certs]") {
  const KeyPtr authority_key = *MakeKey();
  const CertificatePtr authority = *MakeAuthority(authority_key.get(), kNow, 100 * kDay);
  const KeyPtr key = *MakeKey();
  const std::vector<std::string> names = {"engine-a", "*.engines.lathe", "10.0.0.2", "fd00::2"};
  const CertificatePtr certificate =
      *Issue({.certificate = authority.get(), .key = authority_key.get()}, key.get(), names, kNow,
             10 * kDay);
  CHECK(NamesOf(certificate.get()) == names);
  CHECK(EndOf(certificate.get()) == kNow + 10 * kDay);
  CHECK(IsKeyOf(certificate.get(), key.get()));
  CHECK_FALSE(IsKeyOf(certificate.get(), authority_key.get()));
  CHECK(IsSignedBy(certificate.get(), authority.get()));
  CHECK(X509_check_ca(certificate.get()) == 0);
  CHECK(X509_check_ca(authority.get()) == 1);
  CHECK(X509_check_purpose(certificate.get(), X509_PURPOSE_SSL_SERVER, 0) == 1);
  CHECK(X509_check_purpose(certificate.get(), X509_PURPOSE_SSL_CLIENT, 0) == 1);
  CHECK(X509_check_host(certificate.get(), "b.engines.lathe", 0, 0, nullptr) == 1);
  CHECK(X509_check_ip_asc(certificate.get(), "fd00::2", 0) == 1);
  CHECK(X509_check_ip_asc(certificate.get(), "10.0.0.3", 0) == 0);
}

TEST_CASE("A name too long for a subject is only an alternative name", "[certs]") {
  const KeyPtr key = *MakeKey();
  const CertificatePtr authority = *MakeAuthority(key.get(), kNow, 100 * kDay);
  const std::string label(40, 'a');
  const std::string name = absl::StrCat(label, ".", label);
  const auto certificate =
      Issue({.certificate = authority.get(), .key = key.get()}, key.get(), {name}, kNow, kDay);
  REQUIRE(certificate.ok());
  CHECK(NamesOf(certificate->get()) == std::vector<std::string>{name});
}

TEST_CASE("Keys and certificates survive their files, and other text is refused", "[certs]") {
  const KeyPtr key = *MakeKey();
  const CertificatePtr certificate = *MakeAuthority(key.get(), kNow, kDay);
  const std::string key_pem = *ToPem(key.get()), pem = *ToPem(certificate.get());
  CHECK(IsKeyOf(ReadCertificate(pem)->get(), ReadKey(key_pem)->get()));
  CHECK(absl::IsInvalidArgument(ReadKey(pem).status()));
  CHECK(absl::IsInvalidArgument(ReadCertificate(key_pem).status()));
  CHECK(absl::IsInvalidArgument(ReadKey("").status()));
}

}  // namespace
}  // namespace lathe::cli

#include "tools/lathe/certs/certificate.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

// Certificates begin this much before now, because clocks of machines differ.
constexpr absl::Duration kBackdated = absl::Hours(1);
constexpr std::size_t kMaxName = 253;
constexpr std::size_t kMaxLabel = 63;
// RFC 5280 bounds a common name.
constexpr std::size_t kMaxCommonName = 64;
constexpr int kSerialBits = 127;

absl::Status Failed(const char* what) {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", reason == nullptr ? "unknown error" : reason));
}

struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, BioDeleter>;

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

// Returns the text of an IPv4 or IPv6 address given as 4 or 16 bytes.
std::string AddressText(const unsigned char* bytes, int length) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes, text, sizeof(text));
  return text;
}

bool IsAddress(const std::string& name, std::string& normal) {
  unsigned char bytes[16];
  for (const auto& [family, length] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    if (inet_pton(family, name.c_str(), bytes) != 1) continue;
    normal = AddressText(bytes, length);
    return true;
  }
  return false;
}

bool IsLabel(const std::string& label) {
  return !label.empty() && label.size() <= kMaxLabel && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char letter) {
           return absl::ascii_isalnum(static_cast<unsigned char>(letter)) || letter == '-' ||
                  letter == '_';
         });
}

bool IsDnsName(const std::string& name) {
  const std::vector<std::string> labels = absl::StrSplit(name, '.');
  const auto first =
      labels.size() > 2 && labels.front() == "*" ? std::next(labels.begin()) : labels.begin();
  return name.size() <= kMaxName && std::all_of(first, labels.end(), IsLabel);
}

bool AddExtension(X509* certificate, X509* authority, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, authority, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  const bool is_added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return is_added;
}

bool SetSerial(X509* certificate) {
  BIGNUM* const number = BN_new();
  const bool is_set = BN_rand(number, kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return is_set;
}

bool SetSubject(X509_NAME* subject, const std::string& common_name) {
  const auto add = [subject](const char* field, const std::string& value) {
    return X509_NAME_add_entry_by_txt(subject, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  return add("O", "Lathe") && (common_name.size() > kMaxCommonName || add("CN", common_name));
}

// Makes a certificate that lacks its extensions, its issuer's name and its signature.
CertificatePtr Blank(EVP_PKEY* key, const std::string& common_name, absl::Time now,
                     absl::Duration life) {
  CertificatePtr certificate(X509_new());
  X509* const raw = certificate.get();
  const bool is_made =
      X509_set_version(raw, X509_VERSION_3) == 1 && SetSerial(raw) &&
      ASN1_TIME_set(X509_getm_notBefore(raw), absl::ToTimeT(now - kBackdated)) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(raw), absl::ToTimeT(now + life)) != nullptr &&
      SetSubject(X509_get_subject_name(raw), common_name) && X509_set_pubkey(raw, key) == 1;
  if (!is_made) certificate.reset();
  return certificate;
}

std::string AlternativeNames(const std::vector<std::string>& names) {
  return absl::StrJoin(names, ",", [](std::string* text, const std::string& name) {
    std::string ignored;
    absl::StrAppend(text, IsAddress(name, ignored) ? "IP:" : "DNS:", name);
  });
}

}  // namespace

void KeyDeleter::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
void CertificateDeleter::operator()(X509* certificate) const { X509_free(certificate); }

absl::StatusOr<KeyPtr> MakeKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("no key can be made");
  return key;
}

absl::StatusOr<std::string> ToPem(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("the key cannot be written");
  }
  return Text(bio.get());
}

absl::StatusOr<std::string> ToPem(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) {
    return Failed("the certificate cannot be written");
  }
  return Text(bio.get());
}

absl::StatusOr<KeyPtr> ReadKey(const std::string& pem) {
  // An empty pass phrase keeps OpenSSL from asking the terminal for one.
  char none[] = "";
  KeyPtr key(PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, nullptr, none));
  if (key == nullptr) return Failed("it is not a private key without a pass phrase");
  return key;
}

absl::StatusOr<CertificatePtr> ReadCertificate(const std::string& pem) {
  CertificatePtr certificate(PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return Failed("it is not a certificate");
  return certificate;
}

absl::StatusOr<std::string> NormalName(const std::string& name) {
  std::string normal;
  if (IsAddress(name, normal)) return normal;
  if (IsDnsName(name)) return absl::AsciiStrToLower(name);
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no DNS name and no IP address"));
}

absl::StatusOr<CertificatePtr> MakeAuthority(EVP_PKEY* key, absl::Time now, absl::Duration life) {
  CertificatePtr certificate = Blank(key, "Lathe private CA", now, life);
  X509* const raw = certificate.get();
  const bool is_made =
      raw != nullptr && X509_set_issuer_name(raw, X509_get_subject_name(raw)) == 1 &&
      AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      AddExtension(raw, raw, NID_subject_key_identifier, "hash") &&
      X509_sign(raw, key, EVP_sha256()) > 0;
  if (!is_made) return Failed("the CA's certificate cannot be made");
  return certificate;
}

absl::StatusOr<CertificatePtr> Issue(const Issuer& issuer, EVP_PKEY* key,
                                     const std::vector<std::string>& names, absl::Time now,
                                     absl::Duration life) {
  CertificatePtr certificate = Blank(key, names.front(), now, life);
  X509* const raw = certificate.get();
  X509* const authority = issuer.certificate;
  const bool is_made =
      raw != nullptr && X509_set_issuer_name(raw, X509_get_subject_name(authority)) == 1 &&
      AddExtension(raw, authority, NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(raw, authority, NID_key_usage, "critical,digitalSignature") &&
      AddExtension(raw, authority, NID_ext_key_usage, "serverAuth,clientAuth") &&
      AddExtension(raw, authority, NID_subject_key_identifier, "hash") &&
      AddExtension(raw, authority, NID_authority_key_identifier, "keyid:always") &&
      AddExtension(raw, authority, NID_subject_alt_name, AlternativeNames(names)) &&
      X509_sign(raw, issuer.key, EVP_sha256()) > 0;
  if (!is_made) return Failed("the certificate cannot be made");
  return certificate;
}

std::vector<std::string> NamesOf(X509* certificate) {
  std::vector<std::string> names;
  auto* const found = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(found); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(found, i);
    const ASN1_STRING* const value = name->type == GEN_IPADD ? name->d.iPAddress : name->d.dNSName;
    const unsigned char* const bytes = ASN1_STRING_get0_data(value);
    const int length = ASN1_STRING_length(value);
    if (name->type == GEN_IPADD) names.push_back(AddressText(bytes, length));
    if (name->type == GEN_DNS) names.emplace_back(bytes, bytes + length);
  }
  GENERAL_NAMES_free(found);
  return names;
}

absl::Time EndOf(X509* certificate) {
  tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return absl::InfinitePast();
  return absl::FromTM(end, absl::UTCTimeZone());
}

bool IsKeyOf(X509* certificate, EVP_PKEY* key) {
  return X509_check_private_key(certificate, key) == 1;
}

bool IsSignedBy(X509* certificate, X509* authority) {
  return X509_verify(certificate, X509_get0_pubkey(authority)) == 1;
}

}  // namespace lathe::cli

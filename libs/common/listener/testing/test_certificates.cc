#include "libs/common/listener/testing/test_certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lathe {
namespace {

struct Deleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter>;
using CertificatePtr = std::unique_ptr<X509, Deleter>;

struct Pair {
  KeyPtr key;
  CertificatePtr certificate;
};

void Extend(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Makes a certificate signed by `authority`, or by itself if that is null.
Pair MakePair(const char* name, int serial, const Pair* authority) {
  Pair pair{KeyPtr(EVP_EC_gen("P-256")), CertificatePtr(X509_new())};
  X509* const certificate = pair.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, pair.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* const issuer = authority == nullptr ? certificate : authority->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  if (authority == nullptr) {
    Extend(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    Extend(certificate, issuer, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  }
  X509_sign(certificate, authority == nullptr ? pair.key.get() : authority->key.get(),
            EVP_sha256());
  return pair;
}

void WritePair(const TestCertificates& files, const std::string& name, const Pair& pair) {
  const std::unique_ptr<std::FILE, Deleter> cert(std::fopen(files.cert(name).c_str(), "w"));
  PEM_write_X509(cert.get(), pair.certificate.get());
  const std::unique_ptr<std::FILE, Deleter> key(std::fopen(files.key(name).c_str(), "w"));
  PEM_write_PrivateKey(key.get(), pair.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
}

}  // namespace

TestCertificates::TestCertificates() {
  std::string path = (std::filesystem::temp_directory_path() / "lathe-tls-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) std::abort();
  dir_ = path;
  const Pair authority = MakePair("ca", 1, nullptr);
  WritePair(*this, "ca", authority);
  WritePair(*this, "server", MakePair("server", 2, &authority));
  WritePair(*this, "client", MakePair("client", 3, &authority));
}

TestCertificates::~TestCertificates() {
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

}  // namespace lathe

// Certificates for tests, generated when needed.
#pragma once

#include <filesystem>
#include <string>

namespace lathe {

// A directory with PEM files: an authority `ca`, and `server` (for 127.0.0.1 and localhost) and
// `client`, which it signed. The certificates are valid for an hour. The destructor removes the
// directory.
class TestCertificates {
 public:
  TestCertificates();
  ~TestCertificates();
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  std::string cert(const std::string& name) const { return (dir_ / (name + ".crt")).string(); }
  std::string key(const std::string& name) const { return (dir_ / (name + ".key")).string(); }

 private:
  std::filesystem::path dir_;
};

}  // namespace lathe

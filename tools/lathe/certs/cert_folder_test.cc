#include "tools/lathe/certs/cert_folder.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "libs/common/errors.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kOneDay = absl::Hours(24);
const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

// Runs one command on the folder at the given day. Returns the files that it has written.
struct Folder {
  std::set<std::string> Init(int day, const std::vector<std::string>& names) {
    CertFolder folder =
        *CertFolder::Open({.dir = dir.path() / "tls", .now = kStart + day * kOneDay});
    std::set<std::string> written;
    const CertificateState authority = *folder.EnsureAuthority();
    if (authority.is_new) written.insert(authority.file);
    for (const std::string& name : names) {
      const CertificateState state = *folder.Ensure(*ParseCertificateRequest(name));
      if (state.is_new) written.insert(state.file);
    }
    return written;
  }
  std::string Text(const std::string& file) const {
    return *ReadTextFile(dir.path() / "tls" / file);
  }
  CertificatePtr Certificate(const std::string& file) const {
    return *ReadCertificate(Text(file + ".crt"));
  }

  TempDir dir;
};

using Files = std::set<std::string>;

TEST_CASE("A folder is made once, and a second command changes nothing", "[certs]") {
  Folder folder;
  CHECK(folder.Init(0, {"engine=engine-a,10.0.0.2", "worker"}) == Files{"ca", "engine", "worker"});
  const std::string before = folder.Text("engine.key") + folder.Text("ca.key");
  CHECK(folder.Init(1, {"engine=engine-a,10.0.0.2", "worker"}) == Files{});
  CHECK(folder.Text("engine.key") + folder.Text("ca.key") == before);
  for (const auto& entry : std::filesystem::directory_iterator(folder.dir.path() / "tls")) {
    struct stat found = {};
    stat(entry.path().c_str(), &found);
    CHECK((found.st_mode & 0777) == 0600);
  }
}

TEST_CASE("A certificate is replaced thirty days before its end, the CA long before its own",
          "[certs]") {
  Folder folder;
  folder.Init(0, {"engine"});
  CHECK(folder.Init(335, {"engine"}) == Files{});
  CHECK(folder.Init(336, {"engine"}) == Files{"engine"});
  const int late = 3650 - 365 - 29;
  const CertificatePtr old_authority = folder.Certificate("ca");
  CHECK(folder.Init(late, {"engine"}) == Files{"ca", "engine"});
  // The key is the same, so clients with the old CA's file accept the new certificate.
  CHECK(IsSignedBy(folder.Certificate("engine").get(), old_authority.get()));
  CHECK(EndOf(folder.Certificate("engine").get()) < EndOf(folder.Certificate("ca").get()));
}

TEST_CASE("A certificate with other names, or of another CA or key, is replaced", "[certs]") {
  Folder folder;
  folder.Init(0, {"engine=a,b", "worker"});
  CHECK(folder.Init(0, {"engine=a,b,a"}) == Files{});
  CHECK(folder.Init(0, {"engine=a"}) == Files{"engine"});
  std::filesystem::copy_file(folder.dir.path() / "tls/worker.key",
                             folder.dir.path() / "tls/engine.key",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(folder.Init(0, {"engine=a"}) == Files{"engine"});
  for (const char* file : {"ca.key", "ca.crt"}) {
    std::filesystem::remove(folder.dir.path() / "tls" / file);
  }
  CHECK(folder.Init(0, {"engine=a", "worker"}) == Files{"ca", "engine", "worker"});
}

TEST_CASE("A folder without the CA's key serves until it must issue", "[certs]") {
  Folder folder;
  folder.Init(0, {"engine"});
  std::filesystem::remove(folder.dir.path() / "tls/ca.key");
  CHECK(folder.Init(1, {"engine"}) == Files{});
  CertFolder open = *CertFolder::Open({.dir = folder.dir.path() / "tls", .now = kStart});
  REQUIRE(open.EnsureAuthority().ok());
  const absl::Status refused = open.Ensure(*ParseCertificateRequest("other")).status();
  CHECK(ErrorCode(refused) == "configuration");
  CHECK_THAT(std::string(refused.message()), Catch::Contains("ca.key is missing"));
}

TEST_CASE("A CA whose files do not belong together is never replaced", "[certs]") {
  Folder folder;
  folder.Init(0, {"engine"});
  const std::string other = folder.Text("engine.key");
  folder.dir.Write("tls/ca.key", other);
  CertFolder open = *CertFolder::Open({.dir = folder.dir.path() / "tls", .now = kStart});
  CHECK(ErrorCode(open.EnsureAuthority().status()) == "configuration");
  CHECK(folder.Text("ca.key") == other);
}

TEST_CASE("The requests of a folder are those that made it", "[certs]") {
  Folder folder;
  folder.Init(0, {"worker", "engine=engine-a,10.0.0.2"});
  CertFolder open = *CertFolder::Open({.dir = folder.dir.path() / "tls", .now = kStart});
  const auto requests = *open.Requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].file == "engine");
  CHECK(requests[0].names == std::vector<std::string>{"engine-a", "10.0.0.2"});
  CHECK(requests[1].file == "worker");
}

TEST_CASE("A file's name is no path and not the CA's", "[certs]") {
  CHECK(ParseCertificateRequest("engine=*.engines.lathe")->file == "engine");
  const std::string wrong =
      GENERATE("", "ca", "ca=a", "../a=b", ".a=b", "*.engines.lathe", "a=", "a=b,");
  CHECK(ErrorCode(ParseCertificateRequest(wrong).status()) == "usage");
}

}  // namespace
}  // namespace lathe::cli

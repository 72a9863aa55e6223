#include "libs/common/object_store/credentials.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace lathe {
namespace {

namespace fs = std::filesystem;

struct CredentialsFixture {
  CredentialsFixture() {
    std::string name = (fs::temp_directory_path() / "credentials.XXXXXX").string();
    root = mkdtemp(name.data());
    variables["HOME"] = root.string();
  }
  ~CredentialsFixture() { fs::remove_all(root); }

  std::string Write(const std::string& name, const std::string& text) const {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
    return (root / name).string();
  }
  absl::StatusOr<AwsKeys> Get() {
    AwsCredentials credentials(
        [this](const char* name) {
          const auto it = variables.find(name);
          return it == variables.end() ? nullptr : it->second.c_str();
        },
        "us-east-1");
    return credentials.Get();
  }

  fs::path root;
  std::map<std::string, std::string> variables;
};

TEST_CASE("Keys come from the environment or from files that it names", "[object_store]") {
  CredentialsFixture f;
  CHECK(absl::IsFailedPrecondition(f.Get().status()));
  f.variables["AWS_ACCESS_KEY_ID"] = "id";
  CHECK(absl::IsFailedPrecondition(f.Get().status()));  // half a pair
  f.variables["AWS_SECRET_ACCESS_KEY_FILE"] = f.Write("secret", "se/cret\n");
  REQUIRE(f.Get().ok());
  CHECK(f.Get()->secret_key == "se/cret");
  CHECK(f.Get()->session_token.empty());
  f.variables["AWS_SESSION_TOKEN"] = "token";
  CHECK(f.Get()->session_token == "token");
  f.variables["AWS_SECRET_ACCESS_KEY_FILE"] = "/nowhere";
  CHECK(absl::IsFailedPrecondition(f.Get().status()));
}

TEST_CASE("Keys come from a profile", "[object_store]") {
  CredentialsFixture f;
  f.Write(".aws/credentials",
          "# comment\n[default]\naws_access_key_id = one\naws_secret_access_key=a=b\n"
          "[other]\naws_access_key_id=two\naws_secret_access_key = c\naws_session_token=t\n");
  REQUIRE(f.Get().ok());
  CHECK(f.Get()->access_key == "one");
  CHECK(f.Get()->secret_key == "a=b");
  f.variables["AWS_PROFILE"] = "other";
  CHECK(f.Get()->access_key == "two");
  CHECK(f.Get()->session_token == "t");
  f.variables["AWS_PROFILE"] = "absent";
  CHECK(absl::IsFailedPrecondition(f.Get().status()));
}

}  // namespace
}  // namespace lathe

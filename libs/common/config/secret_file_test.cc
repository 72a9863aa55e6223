#include "libs/common/config/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace lathe {
namespace {

struct SecretFile {
  explicit SecretFile(const std::string& text) {
    close(mkstemp(path));
    std::ofstream(path) << text;
  }
  ~SecretFile() { unlink(path); }
  char path[32] = "/tmp/lathe-secret-XXXXXX";
};

TEST_CASE("A secret is the file's only line without white space around it", "[config]") {
  CHECK(*LoadSecretFile(SecretFile(" hush hush\r\n\n").path) == "hush hush");
  CHECK(LoadSecretFile(SecretFile(std::string(kMaxSecretBytes, 'a')).path)->size() ==
        static_cast<size_t>(kMaxSecretBytes));
}

TEST_CASE("Files without exactly one line, and too large ones, are refused by name", "[config]") {
  const std::string text = GENERATE(as<std::string>{}, "", " \n", "a\nb", std::string("a\0b", 3),
                                    std::string(kMaxSecretBytes + 1, 'a'));
  const SecretFile file(text);
  const absl::Status status = LoadSecretFile(file.path).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains(file.path));
}

TEST_CASE("What cannot be read is refused, and nothing waits for it", "[config]") {
  CHECK(absl::IsNotFound(LoadSecretFile("/no/such/file").status()));
  CHECK(absl::IsInvalidArgument(LoadSecretFile("/tmp").status()));
  const std::string fifo = std::string(SecretFile("").path) + ".fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(absl::IsInvalidArgument(LoadSecretFile(fifo).status()));
  unlink(fifo.c_str());
}

}  // namespace
}  // namespace lathe

// A folder that is gone at the end of the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lathe::cli {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/lathe-test-XXXXXX";
    path_ = std::filesystem::canonical(mkdtemp(name));
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Creates the folders above it too.
  std::filesystem::path Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lathe::cli

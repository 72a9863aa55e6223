// A temporary folder for a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lathe::cli {

// Creates a folder under /tmp. The destructor removes it with its contents.
class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/lathe-test-XXXXXX";
    path_ = std::filesystem::canonical(mkdtemp(name));
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes file `name` and creates its parent folders. Returns its path.
  std::filesystem::path Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lathe::cli

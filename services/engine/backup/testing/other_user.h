// A user whom permissions hold back. Root may read everything.
#pragma once

#include <unistd.h>

#include <exception>
#include <filesystem>
#include <stdexcept>

namespace lathe::engine {

// Gives a tree to that user and acts as the user until the end of the scope. Does nothing if the
// test is not run by root.
class OtherUser {
 public:
  explicit OtherUser(const std::filesystem::path& tree) {
    if (geteuid() != 0) return;
    Give(tree);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tree)) {
      Give(entry.path());
    }
    if (seteuid(kUser) != 0) throw std::runtime_error("seteuid failed");
    is_other_ = true;
  }
  OtherUser(const OtherUser&) = delete;
  ~OtherUser() {
    if (is_other_ && seteuid(0) != 0) std::terminate();
  }

 private:
  static constexpr uid_t kUser = 65534;

  static void Give(const std::filesystem::path& path) {
    if (lchown(path.c_str(), kUser, static_cast<gid_t>(-1)) != 0) {
      throw std::runtime_error("chown failed");
    }
  }

  bool is_other_ = false;
};

}  // namespace lathe::engine

// A file system for SQLite whose power can fail at any write.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace lathe::engine {

// Passes everything on to the default file system and remembers what each file held at its last
// sync. While it lives it is SQLite's default. Not thread-safe.
class PowerLossVfs {
 public:
  explicit PowerLossVfs(uint64_t seed);
  PowerLossVfs(const PowerLossVfs&) = delete;
  ~PowerLossVfs();

  // Called before each write, truncation and sync.
  void set_on_operation(std::function<void()> on_operation) {
    on_operation_ = std::move(on_operation);
  }

  // Copies the files into `dir` as a disk may have them after a loss of power now: what was synced,
  // and of each sector that was written since then the old or the new bytes, at random.
  void CopyAfterLoss(const std::filesystem::path& dir);

 private:
  struct File;

  static PowerLossVfs& Of(sqlite3_vfs* vfs);
  static const sqlite3_io_methods& Methods();
  static int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags,
                  int* out_flags);
  static int Delete(sqlite3_vfs* vfs, const char* path, int sync_dir);

  std::string AfterLoss(const std::string& path, const std::string& synced);

  sqlite3_vfs* const real_;
  sqlite3_vfs vfs_;
  std::function<void()> on_operation_;
  std::mt19937_64 random_;
  std::map<std::string, std::string> synced_;  // path to bytes
};

}  // namespace lathe::engine

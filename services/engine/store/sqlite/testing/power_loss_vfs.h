// A file system for SQLite that can simulate a loss of power at any write.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace lathe::engine {

// A shim over the default file system that records what each file held at its last sync. It is
// SQLite's default file system while it exists. Not thread-safe.
class PowerLossVfs {
 public:
  explicit PowerLossVfs(uint64_t seed);
  PowerLossVfs(const PowerLossVfs&) = delete;
  ~PowerLossVfs();

  // Called before each write, truncation and sync.
  void set_on_operation(std::function<void()> on_operation) {
    on_operation_ = std::move(on_operation);
  }

  // Copies the files into `dir` as a disk may hold them after a loss of power at this moment.
  // Synced data is intact. Each sector written since then has its old or its new bytes, at random.
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
  std::map<std::string, std::string> synced_;  // path to the bytes at the last sync
};

}  // namespace lathe::engine

// Local copies of checkpoints that are objects, shared by the processes of a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/object_store/checkpoint_objects.h"

namespace lathe {

// A copy is the folder `root`/DIR, verified when it was fetched. What is used least recently is
// removed above a bound, unless a process has it pinned. Thread-safe.
class CheckpointCache {
 public:
  // Keeps a copy while it lives.
  class Pin {
   public:
    Pin(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
    Pin(Pin&& other) noexcept;
    Pin& operator=(Pin&& other) noexcept;
    ~Pin();

    const std::filesystem::path& path() const { return path_; }
    // Gives the pin to the program that this process becomes. Returns the path.
    std::filesystem::path KeepAcrossExec();

   private:
    std::filesystem::path path_;
    int lock_ = -1;  // the open folder, with a shared lock
  };

  CheckpointCache(std::shared_ptr<CheckpointObjects> objects, std::filesystem::path root,
                  int64_t max_bytes);

  // Returns the copy of `dir`, which is fetched if there is none. One process of the machine
  // fetches, the others wait. Errors as CheckpointObjects::Fetch.
  absl::StatusOr<Pin> Open(const std::string& dir);
  // Removes a copy that is damaged, unless it is pinned.
  void Drop(const std::string& dir);
  // Removes the oldest copies above the bound, but never `kept`, which alone may exceed it.
  void Trim(const std::string& kept);

  CheckpointObjects& objects() { return *objects_; }

 private:
  absl::StatusOr<Pin> Find(const std::string& dir) const;
  absl::Status Fetch(const std::string& dir);
  // Returns false if the copy is pinned.
  bool Remove(const std::filesystem::path& path) const;

  const std::shared_ptr<CheckpointObjects> objects_;
  const std::filesystem::path root_;
  const int64_t max_bytes_;
};

}  // namespace lathe

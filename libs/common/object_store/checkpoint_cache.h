// Local copies of checkpoints that are objects, shared by the processes of a machine.
#pragma once

#include <atomic>
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
    // Returns false once another folder, or none, has its name.
    bool is_current() const;
    // Gives the pin to the program that this process becomes. Returns the path.
    std::filesystem::path KeepAcrossExec();

   private:
    std::filesystem::path path_;
    int lock_ = -1;  // the open folder, with a shared lock
  };

  // `progress` grows several times a second while another process fetches what Open wants.
  // `uploads` is the same place for those who publish, who may be more patient; null: `objects`.
  CheckpointCache(
      std::shared_ptr<CheckpointObjects> objects, std::filesystem::path root, int64_t max_bytes,
      std::shared_ptr<std::atomic<int64_t>> progress = std::make_shared<std::atomic<int64_t>>(0),
      std::shared_ptr<CheckpointObjects> uploads = nullptr);

  // Returns the copy of `dir`, which is fetched if there is none. One process of the machine
  // fetches, the others wait for half an hour at most. Errors as CheckpointObjects::Fetch.
  absl::StatusOr<Pin> Open(const std::string& dir);
  // Removes a copy that turned out to be damaged. Other processes may have it pinned; they find
  // files missing, and open it again. Does nothing if it has been replaced. Unavailable: it is
  // still there.
  absl::Status Drop(const Pin& damaged);
  // Removes the oldest copies until `coming_bytes` fit below the bound, but never `kept`, which
  // alone may exceed it.
  void Trim(const std::string& kept, int64_t coming_bytes = 0);

  CheckpointObjects& objects() { return *objects_; }
  CheckpointObjects& uploads() { return *uploads_; }
  std::atomic<int64_t>& progress() { return *progress_; }

 private:
  absl::StatusOr<Pin> Find(const std::string& dir) const;
  absl::Status Fetch(const std::string& dir);
  // Counts a wait. Returns false once the process is about to end.
  bool Wait() const;
  absl::Status FetchLocked(const std::string& dir);
  // Returns false if the copy is pinned.
  bool Remove(const std::filesystem::path& path) const;
  void RemoveEvenIfPinned(const std::filesystem::path& path) const;

  const std::shared_ptr<CheckpointObjects> objects_;
  const std::shared_ptr<CheckpointObjects> uploads_;
  const std::filesystem::path root_;
  const int64_t max_bytes_;
  const std::shared_ptr<std::atomic<int64_t>> progress_;
};

}  // namespace lathe

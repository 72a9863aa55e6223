// Sampler versions that other processes are to read. Free of torch and gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/executor/version_reader.h"

namespace lathe::worker {

struct ServedVersion {
  VersionHeader header;
  const void* data = nullptr;          // header.num_bytes, which nobody writes
  std::shared_ptr<const void> holder;  // of `data`
};

// The executor puts versions in, who serves them takes each as often as it was announced. What
// nobody comes for gives way to newer ones; the engine has fewer under way at a time. Thread-safe.
class ServedVersions {
 public:
  static constexpr size_t kMaxVersions = 8;

  // In place of an earlier publication; of the same one, so many reads more.
  void Put(const std::string& version_id, ServedVersion version, int64_t num_reads);
  // For one read, which may go on when the version is dropped. NotFound: it is not served, no more
  // reads were announced, or it has the weights of another publication than `seq_id`.
  absl::StatusOr<std::shared_ptr<const ServedVersion>> Take(const std::string& version_id,
                                                            int64_t seq_id);
  void Drop(const std::string& version_id);
  void Clear();

 private:
  struct Entry {
    std::string version_id;
    std::shared_ptr<const ServedVersion> version;
    int64_t num_reads = 0;
  };
  Entry* Find(const std::string& version_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mu_);  // oldest first
};

}  // namespace lathe::worker

// Sampler versions for other processes to read. Does not include torch or gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/executor/versions/version_reader.h"

namespace lathe::worker {

struct ServedVersion {
  VersionHeader header;
  const void* data = nullptr;          // header.num_bytes of immutable data
  std::shared_ptr<const void> holder;  // keeps `data` alive
};

// The executor puts versions in, each with a number of reads. The server takes each version at most
// that often. Above kMaxVersions, the oldest version is dropped. The engine has fewer transfers at
// a time. Thread-safe.
class ServedVersions {
 public:
  static constexpr size_t kMaxVersions = 8;

  // Replaces an earlier publication of the version. For the same publication, adds `num_reads`.
  void Put(const std::string& version_id, ServedVersion version, int64_t num_reads);
  // Takes a version for one read, which may continue after the version is dropped. NotFound: it is
  // not served, no more reads were announced, or it has the weights of another publication than
  // `seq_id`.
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

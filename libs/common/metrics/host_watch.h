// Watches room on disks, and the ends of certificates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/metrics/family_list.h"

namespace lathe {

// Looks at once and every 15 s, on threads of its own: a file system that hangs must not hold up a
// start, nor the page of metrics, which also answers probes. Thread-safe.
class HostWatch {
 public:
  // Keys are values of labels, from a closed set.
  struct Options {
    std::map<std::string, std::filesystem::path> directories;
    // PEM files by the option that names them. Entries with an empty path are left out.
    std::map<std::string, std::string> certificates;
  };

  // Does not wait for the first look. Until then there are no series.
  explicit HostWatch(Options options);
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  // Adds gauges whose names begin with `prefix`, such as "lathe_engine". What cannot be read has no
  // series.
  void AddTo(const std::string& prefix, FamilyList& list) const;

 private:
  struct Room {
    double free_bytes = 0;
    double bytes = 0;
  };

  void Look();

  const Options options_;
  mutable absl::Mutex mu_;
  std::map<std::string, Room> rooms_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, double> ends_ ABSL_GUARDED_BY(mu_);  // Unix time
  NamedThread first_look_;
  PeriodicTask task_;
};

}  // namespace lathe

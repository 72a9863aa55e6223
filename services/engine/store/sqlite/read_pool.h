// A pool of read-only connections for the threads that answer reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Thread-safe. Opens a connection when none is idle, and keeps at most kMaxIdle idle ones.
class ReadPool {
 public:
  explicit ReadPool(std::string path) : path_(std::move(path)) {}

  // Runs `read(connection)` on a connection that no other call uses. `read` returns a Status or
  // StatusOr.
  template <typename Read>
  auto Run(const Read& read) {
    return Guarded([&] {
      std::unique_ptr<Connection> connection = Take();
      auto result = read(*connection);
      Give(std::move(connection));
      return result;
    });
  }

 private:
  std::unique_ptr<Connection> Take();
  void Give(std::unique_ptr<Connection> connection);

  static constexpr size_t kMaxIdle = 4;

  const std::string path_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine

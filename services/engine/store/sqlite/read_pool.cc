#include "services/engine/store/sqlite/read_pool.h"

#include <utility>

namespace lathe::engine {

std::unique_ptr<Connection> ReadPool::Take() {
  {
    absl::MutexLock lock(&mu_);
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>(path_, SQLite::OPEN_READONLY);
}

void ReadPool::Give(std::unique_ptr<Connection> connection) {
  absl::MutexLock lock(&mu_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

}  // namespace lathe::engine

#include "services/engine/rpc/body_threads.h"

#include <optional>

namespace lathe::engine {
namespace {

// Number of threads, and so of bodies that can wait for the disk at the same time.
constexpr int kNumThreads = 4;
// Bound of the queue. It costs little, because gRPC holds each waiting message anyway.
constexpr size_t kMaxWaiting = 1024;

}  // namespace

BodyThreads::BodyThreads() : queue_(kMaxWaiting) {
  for (int i = 0; i < kNumThreads; ++i) threads_.emplace_back("engine-bodies", [this] { Run(); });
}

BodyThreads::~BodyThreads() { queue_.Close(); }

void BodyThreads::Run() {
  while (const std::optional<std::function<void()>> work = queue_.Pop()) (*work)();
}

}  // namespace lathe::engine

// How much training a worker is given at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lathe::engine {

// The training requests that are at one worker. It packs all it has anew between two passes, so
// what it has early it packs best; what is not there yet is served in fair-share order.
//
// Requests of at most `batch_tokens` are given up to two such batches: one that executes and one
// that is ready. A larger request executes for long beside them, so it takes nothing of that room:
// of those a worker has kMaxLarge, two of one tenant.
class TrainWindow {
 public:
  static constexpr int64_t kMaxBatches = 2;
  static constexpr int64_t kMaxLarge = 8;
  static constexpr int64_t kMaxLargeOfTenant = 2;

  explicit TrainWindow(int64_t batch_tokens) : batch_tokens_(batch_tokens) {}

  bool IsLarge(int64_t tokens) const { return tokens > batch_tokens_; }

  bool HasRoomFor(int64_t tokens) const;  // a request that is not large
  bool HasRoomForLarge() const { return num_large_ < kMaxLarge; }
  bool HasRoomForLargeOf(const std::string& tenant) const;

  // Nothing happens if it is here already.
  void Add(const std::string& request_id, const std::string& tenant, int64_t tokens);
  // Nothing happens if it is not here.
  void Remove(const std::string& request_id);
  void Clear();

 private:
  struct Entry {
    std::string tenant;
    int64_t tokens = 0;
  };

  const int64_t batch_tokens_;
  std::map<std::string, Entry> requests_;           // by id
  std::map<std::string, int64_t> large_of_tenant_;  // those with any
  int64_t num_large_ = 0;
  int64_t tokens_ = 0;  // of requests that are not large
};

}  // namespace lathe::engine

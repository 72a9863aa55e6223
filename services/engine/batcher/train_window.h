// Bound on the training work that a worker has at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lathe::engine {

// The training requests at one worker. The worker packs all of them anew between two passes, so it
// packs requests that it has early best. Requests that it does not have yet are served in
// fair-share order.
//
// The window has room for requests of at most `batch_tokens` up to two such batches: one that
// executes and one that is ready. Larger requests execute for long beside them and do not use this
// room. A worker has up to kMaxLarge of them, and up to kMaxLargeOfTenant of one tenant.
class TrainWindow {
 public:
  static constexpr int64_t kMaxBatches = 2;
  static constexpr int64_t kMaxLarge = 8;
  static constexpr int64_t kMaxLargeOfTenant = 2;

  explicit TrainWindow(int64_t batch_tokens) : batch_tokens_(batch_tokens) {}

  bool IsLarge(int64_t tokens) const { return tokens > batch_tokens_; }

  bool HasRoomFor(int64_t tokens) const;  // for a request that is not large
  bool HasRoomForLarge() const { return num_large_ < kMaxLarge; }
  bool HasRoomForLargeOf(const std::string& tenant) const;

  // Does nothing if the request is already in the window.
  void Add(const std::string& request_id, const std::string& tenant, int64_t tokens);
  // Does nothing if the request is not in the window.
  void Remove(const std::string& request_id);
  void Clear();

 private:
  struct Entry {
    std::string tenant;
    int64_t tokens = 0;
  };

  const int64_t batch_tokens_;
  std::map<std::string, Entry> requests_;           // by id
  std::map<std::string, int64_t> large_of_tenant_;  // tenants with any
  int64_t num_large_ = 0;
  int64_t tokens_ = 0;  // sum over requests that are not large
};

}  // namespace lathe::engine

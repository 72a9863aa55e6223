// An adapter whose weights are the history of the operations applied to it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lathe::engine {

using Window = std::map<int64_t, uint64_t>;  // seq -> content of its gradient

std::vector<int64_t> SeqsOf(const Window& window);

// Weights (or moments) as the steps that made them. Immutable and shared. Equal histories have
// equal hashes; different histories have different ones.
class Lineage {
 public:
  static std::shared_ptr<const Lineage> Create(const std::string& model_id, uint64_t seed);
  // `settings`: settings of the optimizer.
  static std::shared_ptr<const Lineage> Step(std::shared_ptr<const Lineage> before, int64_t seq,
                                             const Window& window, uint64_t settings);

  uint64_t hash() const { return hash_; }
  // One text for each operation: "create m 7", "step 4 [1,2,3]".
  std::vector<std::string> Words() const;

 private:
  std::shared_ptr<const Lineage> before_;
  int64_t seq_ = 0;
  Window window_;
  std::string origin_;
  uint64_t hash_ = 0;
};

using Weights = std::shared_ptr<const Lineage>;

// The state of one model on a worker.
struct CountingAdapter {
  Weights weights;
  Weights moments;  // null: no step yet
  int64_t applied_seq = 0;
  Window window;

  void Step(int64_t seq, uint64_t settings);
};

// Returns 0 for null.
uint64_t HashOf(const Weights& weights);
std::string Describe(const Weights& weights);

}  // namespace lathe::engine

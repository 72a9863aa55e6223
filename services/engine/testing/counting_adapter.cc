#include "services/engine/testing/counting_adapter.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine {

std::vector<int64_t> SeqsOf(const Window& window) {
  std::vector<int64_t> seqs;
  for (const auto& [seq, content] : window) seqs.push_back(seq);
  return seqs;
}

std::shared_ptr<const Lineage> Lineage::Create(const std::string& model_id, uint64_t seed) {
  auto made = std::make_shared<Lineage>();
  made->origin_ = absl::StrFormat("create %s %d", model_id, seed);
  made->hash_ = MixBytes(seed, model_id);
  return made;
}

std::shared_ptr<const Lineage> Lineage::Step(std::shared_ptr<const Lineage> before, int64_t seq,
                                             const Window& window, uint64_t settings) {
  auto made = std::make_shared<Lineage>();
  uint64_t hash = Mix(Mix(HashOf(before), static_cast<uint64_t>(seq)), settings);
  for (const auto& [part, content] : window) {
    hash = Mix(Mix(hash, static_cast<uint64_t>(part)), content);
  }
  made->before_ = std::move(before);
  made->seq_ = seq;
  made->window_ = window;
  made->hash_ = hash;
  return made;
}

std::vector<std::string> Lineage::Words() const {
  std::vector<std::string> words;
  if (before_ != nullptr) words = before_->Words();
  words.push_back(!origin_.empty()
                      ? origin_
                      : absl::StrFormat("step %d [%s]", seq_, absl::StrJoin(SeqsOf(window_), ",")));
  return words;
}

void CountingAdapter::Step(int64_t seq, uint64_t settings) {
  weights = Lineage::Step(weights, seq, window, settings);
  moments = Lineage::Step(moments, seq, window, settings);
  applied_seq = seq;
  window.clear();
}

uint64_t HashOf(const Weights& weights) { return weights == nullptr ? 0 : weights->hash(); }

std::string Describe(const Weights& weights) {
  return weights == nullptr ? "none" : absl::StrJoin(weights->Words(), "; ");
}

}  // namespace lathe::engine

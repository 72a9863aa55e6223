#include "services/worker/collectives/gather_texts.h"

#include <algorithm>

namespace lathe::worker {

std::vector<std::string> GatherTexts(const RankGroup& group, const CollectiveCall& call,
                                     const std::string& text, at::Device device) {
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor sizes =
      group.Gather(call, at::full({1}, size, at::kLong).to(device)).to(at::kCPU);
  const at::Tensor piece = at::zeros({sizes.max().item<int64_t>()}, at::kByte);
  std::copy(text.begin(), text.end(), piece.mutable_data_ptr<uint8_t>());
  const at::Tensor all = group.Gather(call, piece.to(device)).to(at::kCPU);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto* const from = all[rank].const_data_ptr<uint8_t>();
    texts.emplace_back(from, from + sizes[rank].item<int64_t>());
  }
  return texts;
}

}  // namespace lathe::worker

#include "services/worker/lora/adapter_gather.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

// Largest number of elements gathered at once: 32 MiB of each rank.
constexpr int64_t kBiteNumbers = int64_t{8} << 20;

// A matrix, and the offset of its shares in the target.
struct Item {
  AdapterMatrix matrix;
  int64_t num_shares = 1;
  int64_t target = 0;

  // Copies rank `tp_index`'s part into share `share`. `bite` is a piece of that rank's buffer that
  // starts at `bite_begin`.
  void Put(const at::Tensor& bite, int64_t bite_begin, int64_t tp_index, int64_t share,
           const at::Tensor& targets) const {
    AdapterMatrix of_rank = matrix;
    of_rank.features = matrix.FeaturesOf(tp_index);
    of_rank.offset -= bite_begin;
    const int64_t size = matrix.num_whole_elements();
    const at::Tensor whole = targets.narrow(0, target + share * size, size)
                                 .view({matrix.lora_rank(), matrix.whole_features});
    CopyRows(of_rank.FactorOf(bite),
             whole.narrow(1, of_rank.features.begin, of_rank.features.size));
  }
};

// Returns the items in the order of the buffer, so that neighbours can be gathered together.
std::vector<Item> ItemsOf(const ModelPart& model, const LoraSpec& lora, int64_t num_data_ranks,
                          bool has_shares) {
  std::vector<Item> items;
  int64_t target = 0;
  for (AdapterMatrix& matrix : AdapterLayout(model, lora)) {
    const int64_t num_shares = has_shares ? NumShares(matrix, num_data_ranks) : 1;
    const int64_t size = num_shares * matrix.num_whole_elements();
    items.push_back({std::move(matrix), num_shares, std::exchange(target, target + size)});
  }
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.matrix.offset < b.matrix.offset; });
  return items;
}

// Calls put(item, every rank's piece [world, …], start of the piece) for all items. `device` is the
// device of the tensors that `ranks` transfers.
template <typename Put>
void GatherItems(const at::Tensor& flat, const std::vector<Item>& items, const RankGroup& ranks,
                 at::Device device, const Put& put) {
  for (size_t first = 0; first < items.size();) {
    const int64_t begin = items[first].matrix.offset;
    const auto end_of = [&](size_t i) {
      return items[i].matrix.offset + items[i].matrix.num_elements();
    };
    size_t last = first + 1;
    while (last < items.size() && end_of(last) - begin <= kBiteNumbers) ++last;
    const at::Tensor bites =
        ranks.Gather("adapter parts", flat.narrow(0, begin, end_of(last - 1) - begin).to(device));
    if (ranks.rank() == 0) {
      for (size_t i = first; i < last; ++i) put(items[i], bites, begin);
    }
    first = last;
  }
}

}  // namespace

void GatherWhole(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora,
                 const RankGroup& tp, const at::Tensor& whole) {
  std::vector<Item> items = ItemsOf(model, lora, /*num_data_ranks=*/1, /*has_shares=*/false);
  // Rank 0 already has the matrices that every rank holds whole.
  const auto cut = std::find_if(items.begin(), items.end(), [&](const Item& item) {
    return tp.is_alone() || item.matrix.num_holders < tp.world();
  });
  if (tp.rank() == 0) {
    for (auto item = items.begin(); item != cut; ++item) item->Put(flat, 0, 0, 0, whole);
  }
  items.erase(items.begin(), cut);
  const auto put = [&](const Item& item, const at::Tensor& bites, int64_t begin) {
    for (int64_t rank = 0; rank < tp.world(); rank += item.matrix.num_holders) {
      item.Put(bites[rank], begin, rank, 0, whole);
    }
  };
  GatherItems(flat, items, tp, flat.device(), put);
}

at::Tensor PartOfWhole(const at::Tensor& whole, const ModelPart& model, const LoraSpec& lora) {
  if (model.place.size == 1) return whole;
  const at::Tensor flat = at::zeros({NumAdapterParameters(model, lora)}, at::kFloat);
  for (const Item& item : ItemsOf(model, lora, /*num_data_ranks=*/1, /*has_shares=*/false)) {
    const AdapterMatrix& matrix = item.matrix;
    const at::Tensor factor = whole.narrow(0, item.target, matrix.num_whole_elements())
                                  .view({matrix.lora_rank(), matrix.whole_features});
    CopyRows(factor.narrow(1, matrix.features.begin, matrix.features.size), matrix.FactorOf(flat));
  }
  return flat;
}

std::shared_ptr<const AdapterWeights> GatherWeights(std::shared_ptr<const AdapterWeights> weights,
                                                    const ModelPart& model, const RankGroup& tp) {
  if (tp.is_alone()) return weights;
  const ModelPart whole_model = WholeModel(model.whole);
  at::Tensor whole;
  if (tp.rank() == 0) {
    whole = at::empty({NumAdapterParameters(whole_model, weights->lora)}, at::kFloat);
  }
  GatherWhole(weights->tensors.flat, model, weights->lora, tp, whole);
  if (tp.rank() != 0) return nullptr;
  return MakeAdapterWeights(whole, whole_model, weights->lora);
}

int64_t NumShares(const AdapterMatrix& matrix, int64_t num_data_ranks) {
  return num_data_ranks * matrix.num_holders;
}

int64_t ShareIndex(const AdapterMatrix& matrix, int64_t tp_index, int64_t data_rank) {
  return data_rank * matrix.num_holders + tp_index % matrix.num_holders;
}

void GatherShares(const at::Tensor& gradient, const ModelPart& model, const LoraSpec& lora,
                  const RankGroups& ranks, const at::Tensor& shares) {
  const std::vector<Item> items = ItemsOf(model, lora, ranks.data.world(), /*has_shares=*/true);
  const auto put = [&](const Item& item, const at::Tensor& bites, int64_t begin) {
    for (int64_t rank = 0; rank < ranks.all.world(); ++rank) {
      const int64_t tp_index = rank % ranks.tp.world();
      const int64_t share = ShareIndex(item.matrix, tp_index, rank / ranks.tp.world());
      item.Put(bites[rank], begin, tp_index, share, shares);
    }
  };
  GatherItems(gradient, items, ranks.all, at::kCPU, put);
}

}  // namespace lathe::worker

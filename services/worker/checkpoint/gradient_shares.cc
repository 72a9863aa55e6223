#include "services/worker/checkpoint/gradient_shares.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::worker {
namespace {

std::string ShareName(const AdapterMatrix& matrix, int64_t share, int64_t num_shares) {
  const std::string name = absl::StrCat("gradient.", matrix.name());
  return num_shares == 1 ? name : absl::StrCat(name, ".part_", share);
}

// Returns the number of saved shares, at least 1, so that a missing one causes an error.
int64_t NumSaved(const std::set<std::string>& names, const AdapterMatrix& matrix) {
  int64_t num_shares = 0;
  while (names.contains(ShareName(matrix, num_shares, /*num_shares=*/2))) ++num_shares;
  return std::max<int64_t>(1, num_shares);
}

}  // namespace

TensorPlace PlaceOf(const AdapterMatrix& matrix, const at::Tensor& flat) {
  const at::Tensor factor = matrix.FactorOf(flat);
  return {.into = matrix.is_b ? factor.t() : factor,
          .dim = matrix.is_b ? 0 : 1,
          .begin = matrix.features.begin,
          .whole_size = matrix.whole_features};
}

at::Tensor MakeFlat(const ModelPart& model, const LoraSpec& lora) {
  const int64_t size = NumAdapterParameters(model, lora);
  return model.vocabulary.padding > 0 ? at::zeros({size}, at::kFloat)
                                      : at::empty({size}, at::kFloat);
}

std::vector<NamedTensor> NameShares(const at::Tensor& shares, const ModelPart& model,
                                    const LoraSpec& lora, int64_t num_data_ranks) {
  std::vector<NamedTensor> named;
  const std::vector<AdapterMatrix> parts = AdapterLayout(model, lora);
  std::vector<AdapterMatrix> wholes = AdapterLayout(WholeModel(model.whole), lora);
  int64_t offset = 0;
  for (size_t i = 0; i < wholes.size(); ++i) {
    const int64_t num_shares = NumShares(parts[i], num_data_ranks);
    for (int64_t share = 0; share < num_shares; ++share) {
      wholes[i].offset = std::exchange(offset, offset + wholes[i].num_elements());
      named.push_back({ShareName(wholes[i], share, num_shares), wholes[i].Of(shares)});
    }
  }
  return named;
}

SharesToRead::SharesToRead(const Manifest& manifest, const ModelPart& model,
                           const DataPlace& place) {
  std::set<std::string> names;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.file == kGradientFile) names.insert(tensor.name);
  }
  size_t num_flats = 1;
  for (const AdapterMatrix& matrix : AdapterLayout(model, manifest.lora)) {
    const int64_t num_saved = NumSaved(names, matrix);
    const int64_t own = ShareIndex(matrix, model.place.index, place.index);
    if (num_saved == NumShares(matrix, place.size)) {
      shares_.push_back({ShareName(matrix, own, num_saved), matrix});
    } else if (own == 0) {
      for (int64_t share = 0; share < num_saved; ++share) {
        shares_.push_back(
            {ShareName(matrix, share, num_saved), matrix, static_cast<size_t>(share)});
      }
      num_flats = std::max(num_flats, static_cast<size_t>(num_saved));
    }
  }
  const int64_t size = NumAdapterParameters(model, manifest.lora);
  while (flats_.size() < num_flats) flats_.push_back(at::zeros({size}, at::kFloat));
}

void SharesToRead::AddPlaces(TensorPlaces& places) const {
  for (const Share& share : shares_) {
    places[{kGradientFile, share.name}] = PlaceOf(share.matrix, flats_[share.flat]);
  }
}

at::Tensor SharesToRead::Sum() const {
  at::Tensor sum = flats_[0];
  for (size_t i = 1; i < flats_.size(); ++i) sum.add_(flats_[i]);
  return sum;
}

}  // namespace lathe::worker

// The gradient of an open window in a snapshot: the shares of the ranks that accumulated it.
#pragma once

#include <string>
#include <vector>

#include "services/worker/checkpoint/manifest.h"
#include "services/worker/checkpoint/verified_tensors.h"
#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/lora/adapter_gather.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline constexpr char kGradientFile[] = "gradient.safetensors";

// The data rank whose share of an open window's gradient is restored.
struct DataPlace {
  int64_t index = 0;
  int64_t size = 1;
};

// Returns the place in `flat` for a file's whole copy of `matrix`.
TensorPlace PlaceOf(const AdapterMatrix& matrix, const at::Tensor& flat);

// Returns a flat buffer to be filled through PlaceOf of all its matrices.
at::Tensor MakeFlat(const ModelPart& model, const LoraSpec& lora);

// Returns views of `shares`, a result of GatherShares on ranks like this one, with their names in
// files: "gradient.<matrix>", or "gradient.<matrix>.part_0" and so on if a matrix has several
// shares.
std::vector<NamedTensor> NameShares(const at::Tensor& shares, const ModelPart& model,
                                    const LoraSpec& lora, int64_t num_data_ranks);

// The shares in a file that a rank reads. If the file has as many shares of a matrix as there are
// ranks now, a rank reads its own. Otherwise the first rank reads all, adds them in order, and the
// others read none.
class SharesToRead {
 public:
  SharesToRead(const Manifest& manifest, const ModelPart& model, const DataPlace& place);

  void AddPlaces(TensorPlaces& places) const;
  // Returns the rank's gradient, after the places were filled.
  at::Tensor Sum() const;

 private:
  struct Share {
    std::string name;
    AdapterMatrix matrix;
    size_t flat = 0;  // index into flats_
  };
  std::vector<Share> shares_;
  std::vector<at::Tensor> flats_;  // [num_parameters] each; their sum is the gradient
};

}  // namespace lathe::worker

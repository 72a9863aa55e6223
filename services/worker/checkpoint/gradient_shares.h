// The gradient of an open window in a snapshot: shares of the ranks that accumulated it.
#pragma once

#include <string>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/checkpoint/manifest.h"
#include "services/worker/checkpoint/safetensors_writer.h"
#include "services/worker/checkpoint/verified_tensors.h"
#include "services/worker/lora/adapter_gather.h"

namespace lathe::worker {

inline constexpr char kGradientFile[] = "gradient.safetensors";

// Whose share of an open window's gradient an adapter is restored with.
struct DataPlace {
  int64_t index = 0;
  int64_t size = 1;
};

// Place of `matrix` in `flat` for what a file has of the whole one.
TensorPlace PlaceOf(const AdapterMatrix& matrix, const at::Tensor& flat);

// A flat buffer to be filled through PlaceOf of all its matrices.
at::Tensor MakeFlat(const ModelPart& model, const LoraSpec& lora);

// Views of `shares`, which is as GatherShares gives it on ranks like this one, by the names that
// files have: "gradient.<matrix>", or where there are several of a matrix "….part_0" and so on.
std::vector<NamedTensor> NameShares(const at::Tensor& shares, const ModelPart& model,
                                    const LoraSpec& lora, int64_t num_data_ranks);

// What a rank takes of the shares in a file: its own where the file has as many of a matrix as
// there are ranks now; else the first one takes their sum, in their order, and the others nothing.
class SharesToRead {
 public:
  SharesToRead(const Manifest& manifest, const ModelPart& model, const DataPlace& place);

  void AddPlaces(TensorPlaces& places) const;
  // The rank's gradient, once the places are filled.
  at::Tensor Sum() const;

 private:
  struct Share {
    std::string name;
    AdapterMatrix matrix;
    size_t flat = 0;  // index into flats_
  };
  std::vector<Share> shares_;
  std::vector<at::Tensor> flats_;  // [num_parameters] each, to be added up
};

}  // namespace lathe::worker

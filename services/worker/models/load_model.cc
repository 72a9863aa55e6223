#include "services/worker/models/load_model.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "libs/common/status_macros.h"
#include "services/worker/collectives/agreement.h"
#include "services/worker/models/decoder.h"
#include "services/worker/models/decoder_weights.h"
#include "services/worker/models/families/families.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

// One rank may read from memory while another reads over a network.
constexpr absl::Duration kLongestWaitForReaders = absl::Minutes(30);

absl::StatusOr<MatmulArithmetic> ChooseArithmetic(ComputeDtype compute_dtype, at::Device device,
                                                  at::ScalarType matrix_dtype) {
  const bool has_bf16 = !device.is_cpu() || CpuHasBf16();
  if (compute_dtype == ComputeDtype::kAuto) {
    return has_bf16 ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
  }
  if (compute_dtype == ComputeDtype::kFp32) {
    if (!device.is_cpu() && matrix_dtype == at::kBFloat16) {
      return absl::InvalidArgumentError(
          "compute_dtype is fp32, bf16 weights on a GPU are multiplied in bf16");
    }
    return MatmulArithmetic::kFp32;
  }
  if (!has_bf16) {
    return absl::InvalidArgumentError(
        "compute_dtype is bf16, this CPU does not multiply bf16 (AVX512-BF16)");
  }
  if (matrix_dtype != at::kBFloat16) {
    return absl::InvalidArgumentError("compute_dtype is bf16, the folder's weights are not");
  }
  return MatmulArithmetic::kBf16;
}

// The result of reading on one rank.
struct Reading {
  ModelPart part;
  DecoderWeights weights;
  HfTensors tensors;
  HfTensors::Digests digests;  // this rank's share, later those of all ranks
  std::string first_rows;      // digest of the tensors' first rows; with several ranks only
};

absl::StatusOr<DecoderSpec> ReadSpec(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(DecoderSpec spec, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckSupported(spec));
  return spec;
}

absl::StatusOr<Reading> Read(const std::filesystem::path& folder, at::Device device,
                             const LoadProgress& progress, ComputeDtype compute_dtype,
                             const RankGroup& tp, const RankGroup& fsdp) {
  ASSIGN_OR_RETURN(const DecoderSpec spec, ReadSpec(folder));
  ASSIGN_OR_RETURN(ModelPart part, ShardModel(spec, {.index = tp.rank(), .size = tp.world()}));
  // With several ranks, each reads about as many bytes for digests as for its part.
  const int num_readers = tp.world() * fsdp.world();
  const double share_of_parts = num_readers > 1 ? 0.5 : 1;
  const auto report = [progress, share_of_parts](double fraction) {
    if (progress) progress(fraction * share_of_parts);
  };
  ASSIGN_OR_RETURN(HfTensors tensors, HfTensors::Open(folder, report));
  ASSIGN_OR_RETURN(DecoderWeights weights, ReadDecoderWeights(part, tensors, device, fsdp));
  ASSIGN_OR_RETURN(weights.arithmetic,
                   ChooseArithmetic(compute_dtype, device, weights.embedding[0].dtype()));
  ASSIGN_OR_RETURN(
      HfTensors::Digests digests,
      tensors.DigestShare(fsdp.rank() * tp.world() + tp.rank(), num_readers, [&](double fraction) {
        if (progress) progress((1 + fraction) / 2);
      }));
  std::string first_rows;
  if (num_readers > 1) {
    ASSIGN_OR_RETURN(first_rows, tensors.FirstRowsDigest());
  }
  return Reading{std::move(part), std::move(weights), std::move(tensors), std::move(digests),
                 std::move(first_rows)};
}

// Returns a rank's result as JSON for the other ranks.
std::string Describe(const absl::StatusOr<Reading>& reading) {
  if (!reading.ok()) {
    return nlohmann::json{{"code", reading.status().code()},
                          {"message", std::string(reading.status().message())}}
        .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  }
  return nlohmann::json{{"code", absl::StatusCode::kOk},
                        {"config", CanonicalText(reading->part.whole)},
                        {"layout of tensors", reading->tensors.HeadersDigest()},
                        {"content of tensors", reading->first_rows},
                        {"digests", reading->digests}}
      .dump();
}

// All-gathers the ranks' results. Gives every rank of `group` all digests, or the same error.
absl::Status Agree(const absl::StatusOr<Reading>& reading, at::Device device,
                   const RankGroup& group, const char* axis, HfTensors::Digests& digests) {
  if (group.is_alone()) return reading.status();
  const std::vector<std::string> texts = GatherTexts(
      group, {"reading the base model", kLongestWaitForReaders}, Describe(reading), device);
  std::vector<nlohmann::json> ranks;
  for (const std::string& text : texts) ranks.push_back(nlohmann::json::parse(text));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto code = ranks[rank].at("code").get<absl::StatusCode>();
    if (code == absl::StatusCode::kOk) continue;
    const std::string message = ranks[rank].at("message").get<std::string>();
    return {code, absl::StrFormat("rank %d of %s: %s", rank, axis, message)};
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const char* what : {"config", "layout of tensors", "content of tensors"}) {
      if (ranks[rank].at(what) == ranks[0].at(what)) continue;
      return absl::FailedPreconditionError(
          absl::StrFormat("the model folder of rank %d of %s has another %s than that of rank 0",
                          rank, axis, what));
    }
    digests.merge(ranks[rank].at("digests").get<HfTensors::Digests>());
  }
  return absl::OkStatus();
}

// Repeats Agree over all axes whose ranks read parts of the tensors. A failed rank also calls it
// for the next axis, to pass its error on.
absl::Status AgreeOnReading(absl::StatusOr<Reading>& reading, at::Device device,
                            const RankGroup& tp, const RankGroup& fsdp) {
  for (const auto& [axis, group] : {std::pair("tp", &tp), std::pair("fsdp", &fsdp)}) {
    HfTensors::Digests digests;
    const absl::Status status = Agree(reading, device, *group, axis, digests);
    if (!status.ok()) {
      reading = status;
    } else {
      reading->digests.merge(std::move(digests));
    }
  }
  RETURN_IF_ERROR(reading.status());
  return reading->tensors.AddDigests(reading->digests);
}

}  // namespace

absl::StatusOr<ComputeDtype> ParseComputeDtype(const std::string& name) {
  if (name == "auto") return ComputeDtype::kAuto;
  if (name == "fp32") return ComputeDtype::kFp32;
  if (name == "bf16") return ComputeDtype::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("compute_dtype is ", name, ", want auto, fp32 or bf16"));
}

absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress, ComputeDtype compute_dtype,
                                      const RankGroup& tp, const RankGroup& fsdp) {
  // Turns an exception into a status, because the other ranks must receive it.
  absl::StatusOr<Reading> reading = Guarded("reading of the base model", [&] {
    return Read(folder, device, progress, compute_dtype, tp, fsdp);
  });
  RETURN_IF_ERROR(AgreeOnReading(reading, device, tp, fsdp));
  const std::string canonical = CanonicalText(reading->part.whole);
  return LoadedModel{
      .model = std::make_unique<Decoder>(std::move(reading->part), std::move(reading->weights), tp),
      .content_hash = reading->tensors.ContentHash(canonical)};
}

absl::StatusOr<ModelDescription> DescribeModel(const std::filesystem::path& folder) {
  return Guarded("reading of the base model", [&]() -> absl::StatusOr<ModelDescription> {
    ASSIGN_OR_RETURN(const DecoderSpec spec, ReadSpec(folder));
    ASSIGN_OR_RETURN(HfTensors tensors, HfTensors::Open(folder, /*progress=*/nullptr));
    RETURN_IF_ERROR(VisitTensors(spec, tensors));
    return ModelDescription{.spec = spec, .content_hash = tensors.ContentHash(CanonicalText(spec))};
  });
}

}  // namespace lathe::worker

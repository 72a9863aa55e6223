#include "services/worker/rpc/train_conversion.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/losses/registry.h"
#include "libs/common/status_macros.h"
#include "services/worker/rpc/tensor_conversion.h"
#include "services/worker/training/loss_datum.h"

namespace lathe::worker {

LoraSpec ToLoraSpec(const lathe::v1::LoraConfig& lora) {
  return {.rank = lora.rank(),
          .alpha = lora.alpha(),
          .seed = lora.seed(),
          .target_modules = {lora.target_modules().begin(), lora.target_modules().end()}};
}

lathe::v1::LoraConfig ToProto(const LoraSpec& spec) {
  lathe::v1::LoraConfig lora;
  lora.set_rank(spec.rank);
  lora.set_seed(spec.seed);
  lora.set_alpha(spec.alpha);
  for (const std::string& module : spec.target_modules) lora.add_target_modules(module);
  return lora;
}

namespace {

// Prefixes the message with its place: "datum 3: weights: …".
absl::Status At(const std::string& place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

absl::Status ReadTargets(const lathe::v1::Tensor& tensor, TrainDatum* datum) {
  ASSIGN_OR_RETURN(Matrix<int64_t> targets, ReadIntegers(tensor));
  const int64_t num_tokens = static_cast<int64_t>(datum->tokens.size());
  if (targets.rows != num_tokens || targets.cols < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shape is %d x %d for %d tokens", targets.rows, targets.cols, num_tokens));
  }
  datum->num_targets = targets.cols;
  datum->targets_2d = targets.is_2d;
  datum->targets = std::move(targets.values);
  return absl::OkStatus();
}

absl::Status ReadInput(const lathe::v1::Tensor& tensor, size_t size, std::vector<float>* out) {
  ASSIGN_OR_RETURN(Matrix<float> floats, ReadFloats(tensor));
  if (floats.values.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("length is %d, want %d", floats.values.size(), size));
  }
  *out = std::move(floats.values);
  return absl::OkStatus();
}

const lathe::v1::Tensor* FindInput(const lathe::v1::Datum& datum, const std::string& name) {
  for (const lathe::v1::NamedTensor& input : datum.loss_fn_inputs()) {
    if (input.name() == name) return &input.tensor();
  }
  return nullptr;
}

struct FloatInput {
  std::string name;
  std::vector<float>* values;
  bool required;
  size_t size;
};

// Returns 1 for each target that the datum's spans mark as sampled, else 0.
absl::StatusOr<std::vector<float>> ReadSampledMask(const lathe::v1::Datum& proto, size_t size) {
  std::vector<float> mask;
  for (const lathe::v1::ProvenanceSpan& span : proto.loss_fn_input_spans()) {
    const int64_t room = static_cast<int64_t>(size - mask.size());
    if (span.length() < 0 || span.length() > room) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a span has length %d, %d tokens remain", span.length(), room));
    }
    mask.insert(mask.end(), span.length(), span.sampled() ? 1.0f : 0.0f);
  }
  if (mask.size() == size) return mask;
  return absl::InvalidArgumentError(
      absl::StrFormat("spans cover %d of %d tokens", mask.size(), size));
}

// Returns the inputs that `loss` reads, and their destinations. Sizes are [N], or [N·K] for an
// input with one value per target.
std::vector<FloatInput> InputsOf(const LossSpec& loss, TrainDatum* datum) {
  const LossProgram& program = *loss.program;
  const size_t num_tokens = datum->tokens.size();
  const size_t num_entries = datum->targets.size();
  std::vector<FloatInput> inputs;
  if (program.inputs == LossInputs::kWeights) {
    datum->weights.assign(num_entries, 1.0f);
    inputs.push_back({"weights", &datum->weights, /*required=*/false, num_entries});
  } else {
    inputs.push_back({"logprobs", &datum->logprobs, /*required=*/true, num_tokens});
    inputs.push_back({"advantages", &datum->advantages, /*required=*/true, num_tokens});
  }
  if (program.clip.has_value()) {
    inputs.push_back({kClipLowThreshold, &datum->clip_low, /*required=*/false, num_tokens});
    inputs.push_back({kClipHighThreshold, &datum->clip_high, /*required=*/false, num_tokens});
  }
  if (program.mask == LossMask::kSequenceRatio) {
    inputs.push_back({kSequenceRatioMask, &datum->mask, /*required=*/true, num_tokens});
  }
  if (loss.kl_coef > 0) {
    inputs.push_back(
        {kReferenceLogprobs, &datum->reference_logprobs, /*required=*/true, num_entries});
  }
  return inputs;
}

absl::Status ReadLossInputs(const lathe::v1::Datum& proto, const LossSpec& loss,
                            TrainDatum* datum) {
  const lathe::v1::Tensor* targets = FindInput(proto, "target_tokens");
  if (targets == nullptr) return absl::InvalidArgumentError("target_tokens is missing");
  if (absl::Status status = ReadTargets(*targets, datum); !status.ok()) {
    return At("target_tokens", status);
  }
  if (loss.program->mask == LossMask::kSampled) {
    absl::StatusOr<std::vector<float>> mask = ReadSampledMask(proto, datum->tokens.size());
    if (!mask.ok()) return At("loss_fn_input_spans", mask.status());
    datum->mask = *std::move(mask);
  }
  for (const FloatInput& input : InputsOf(loss, datum)) {
    const lathe::v1::Tensor* tensor = FindInput(proto, input.name);
    if (tensor == nullptr && !input.required) continue;
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(input.name, " is missing"));
    }
    if (absl::Status status = ReadInput(*tensor, input.size, input.values); !status.ok()) {
      return At(input.name, status);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainDatum> ToTrainDatum(const lathe::v1::Datum& proto, const LossSpec& loss) {
  TrainDatum datum;
  ASSIGN_OR_RETURN(datum.tokens, ReadTokens(proto.model_input()));
  if (datum.tokens.empty())
    return absl::InvalidArgumentError("model_input has 0 tokens, minimum is 1");
  RETURN_IF_ERROR(ReadLossInputs(proto, loss, &datum));
  return datum;
}

absl::Status UnknownKey(const LossProgram& loss, const std::string& key) {
  return absl::InvalidArgumentError(absl::StrCat("loss_fn_config has '", key, "', which ",
                                                 std::string(loss.name), " does not take"));
}

absl::StatusOr<LossNormalization> ReadNormalization(const std::string& value) {
  if (value == "none") return LossNormalization::kNone;
  if (value == "tokens") return LossNormalization::kTokens;
  if (value == "datums") return LossNormalization::kDatums;
  return absl::InvalidArgumentError(
      absl::StrCat("normalization is '", value, "', allowed are none, tokens, datums"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadTokens(
    const google::protobuf::RepeatedPtrField<lathe::v1::Chunk>& chunks) {
  std::vector<int32_t> tokens;
  for (const lathe::v1::Chunk& chunk : chunks) {
    if (!chunk.has_tokens()) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk is of kind '", chunk.unsupported(), "', only tokens are supported"));
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> part, ReadPacked<int32_t>(chunk.tokens()));
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

absl::StatusOr<LossSpec> ToLossSpec(const lathe::v1::LossSpec& loss) {
  const LossProgram* const program = FindLoss(loss.name());
  if (program == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss_fn is '", loss.name(), "', not a known one"));
  }
  LossSpec spec = DefaultsOf(*program);
  for (const lathe::v1::NamedNumber& entry : loss.config()) {
    double* const number = FindNumber(spec, entry.name());
    if (number == nullptr) return UnknownKey(*program, entry.name());
    *number = entry.value();
  }
  for (const lathe::v1::NamedString& entry : loss.text_config()) {
    if (entry.name() != kNormalization) return UnknownKey(*program, entry.name());
    ASSIGN_OR_RETURN(spec.normalization, ReadNormalization(entry.value()));
  }
  return spec;
}

absl::StatusOr<TrainRequest> ToTrainRequest(const lathe::v1::TrainItem& item) {
  const lathe::v1::ForwardBackwardRequest& proto = item.request();
  TrainRequest request;
  request.request_id = item.request_id();
  request.model_id = proto.model_id();
  request.seq_id = proto.seq_id();
  request.forward_only = proto.forward_only();
  ASSIGN_OR_RETURN(request.loss, ToLossSpec(proto.loss()));
  request.data.reserve(proto.data_size());
  for (int i = 0; i < proto.data_size(); ++i) {
    absl::StatusOr<TrainDatum> datum = ToTrainDatum(proto.data(i), request.loss);
    if (!datum.ok()) return At(absl::StrCat("datum ", i), datum.status());
    request.data.push_back(*std::move(datum));
  }
  ScaleLosses(request);
  return request;
}

}  // namespace lathe::worker

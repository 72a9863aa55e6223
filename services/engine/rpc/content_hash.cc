#include "services/engine/rpc/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "libs/common/digest/sha256.h"

namespace lathe::engine {
namespace {

using google::protobuf::RepeatedPtrField;

// Prefix of every hash.
constexpr char kHashFormat[] = "1:";

// Hashes fields. Every value has its length or a fixed width, so that no two field lists collide.
class Hasher {
 public:
  explicit Hasher(std::string_view kind) { Add(kind); }

  Hasher& Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    hash_.Update(text);
    return *this;
  }
  Hasher& Add(const std::string& text) { return Add(std::string_view(text)); }
  Hasher& Add(int64_t value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    hash_.Update({bytes, sizeof(bytes)});
    return *this;
  }
  Hasher& Add(uint64_t value) { return Add(static_cast<int64_t>(value)); }
  Hasher& Add(int value) { return Add(static_cast<int64_t>(value)); }
  Hasher& Add(bool value) { return Add(static_cast<int64_t>(value)); }
  Hasher& Add(double value) { return Add(std::bit_cast<int64_t>(value)); }

  std::string Finish() { return kHashFormat + hash_.FinishHex(); }

 private:
  Sha256 hash_;
};

// Returns the entries of a repeated field sorted by name.
template <typename Named>
std::vector<const Named*> Sorted(const RepeatedPtrField<Named>& entries) {
  std::vector<const Named*> sorted;
  for (const Named& entry : entries) sorted.push_back(&entry);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Named* a, const Named* b) { return a->name() < b->name(); });
  return sorted;
}

template <typename Named>
void AddNamedValues(Hasher& hasher, const RepeatedPtrField<Named>& entries) {
  hasher.Add(entries.size());
  for (const Named* entry : Sorted(entries)) hasher.Add(entry->name()).Add(entry->value());
}

// Hashes all fields in the order of their numbers. A field that came after the first six is hashed
// by name, and only if it is set, so that hashes of older requests stay.
void AddAdamParams(Hasher& hasher, const v1::AdamParams& adam) {
  constexpr int kFirstFields = v1::AdamParams::kGradClipNormFieldNumber;
  const google::protobuf::Descriptor& type = *adam.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    const double value = adam.GetReflection()->GetDouble(adam, field);
    const bool is_later = field->number() > kFirstFields;
    if (is_later && value == 0) continue;
    if (is_later) hasher.Add(field->name());
    hasher.Add(value);
  }
}

void AddChunks(Hasher& hasher, const RepeatedPtrField<v1::Chunk>& chunks) {
  hasher.Add(chunks.size());
  for (const v1::Chunk& chunk : chunks) {
    hasher.Add(static_cast<int>(chunk.chunk_case()));
    hasher.Add(chunk.has_tokens() ? chunk.tokens() : chunk.unsupported());
  }
}

void AddTensor(Hasher& hasher, const v1::Tensor& tensor) {
  hasher.Add(static_cast<int>(tensor.dtype())).Add(tensor.shape_size());
  for (const int64_t dim : tensor.shape()) hasher.Add(dim);
  hasher.Add(static_cast<int>(tensor.encoding_case()));
  if (tensor.has_sparse_csr()) {
    const v1::SparseCsr& sparse = tensor.sparse_csr();
    hasher.Add(sparse.values()).Add(sparse.crow_indices()).Add(sparse.col_indices());
  } else {
    hasher.Add(tensor.dense());
  }
}

void AddDatum(Hasher& hasher, const v1::Datum& datum) {
  AddChunks(hasher, datum.model_input());
  hasher.Add(datum.loss_fn_inputs_size());
  for (const v1::NamedTensor* input : Sorted(datum.loss_fn_inputs())) {
    hasher.Add(input->name());
    AddTensor(hasher, input->tensor());
  }
}

bool HasSpans(const v1::ForwardBackwardRequest& request) {
  return std::any_of(request.data().begin(), request.data().end(), [](const v1::Datum& datum) {
    return !datum.model_input_spans().empty() || !datum.loss_fn_input_spans().empty();
  });
}

void AddSpans(Hasher& hasher, const RepeatedPtrField<v1::ProvenanceSpan>& spans) {
  hasher.Add(spans.size());
  for (const v1::ProvenanceSpan& span : spans) {
    hasher.Add(span.sequence_id()).Add(span.sampled()).Add(span.offset()).Add(span.length());
  }
}

void AddSamplingParams(Hasher& hasher, const v1::SamplingParams& params) {
  hasher.Add(params.has_max_tokens()).Add(params.max_tokens());
  hasher.Add(params.has_seed()).Add(params.seed());
  hasher.Add(params.temperature()).Add(params.top_k()).Add(params.top_p());
  hasher.Add(static_cast<int>(params.stop_case()));
  hasher.Add(params.stop_strings().values_size());
  for (const std::string& stop : params.stop_strings().values()) hasher.Add(stop);
  hasher.Add(params.stop_tokens().values_size());
  for (const int32_t stop : params.stop_tokens().values()) hasher.Add(stop);
}

// Hashes later fields by name, and only if they are set, so that hashes of older requests stay.
void AddLaterOptions(Hasher& hasher, const v1::SampleRequest& request) {
  if (request.params().min_p() != 0)
    hasher.Add(std::string_view("min_p")).Add(request.params().min_p());
  if (request.topk_sample_logprobs() != 0) {
    hasher.Add(std::string_view("topk_sample_logprobs")).Add(request.topk_sample_logprobs());
  }
  if (request.has_target_prompt_logprobs()) {
    hasher.Add(std::string_view("target_prompt_logprobs"));
    AddTensor(hasher, request.target_prompt_logprobs());
  }
  if (request.prompt_alt_tokens_k() != 0) {
    hasher.Add(std::string_view("prompt_alt_tokens_k")).Add(request.prompt_alt_tokens_k());
  }
  if (request.has_prompt_logprobs_last_n()) {
    hasher.Add(std::string_view("prompt_logprobs_last_n")).Add(request.prompt_logprobs_last_n());
  }
}

}  // namespace

std::string ContentHash(const v1::CreateModelRequest& request) {
  Hasher hasher("create_model");
  const v1::LoraConfig& lora = request.lora_config();
  hasher.Add(request.base_model()).Add(request.optimizer_type());
  hasher.Add(lora.rank()).Add(lora.has_seed()).Add(lora.seed());
  hasher.Add(lora.train_attn()).Add(lora.train_mlp()).Add(lora.train_unembed());
  hasher.Add(lora.has_alpha()).Add(lora.alpha());
  AddNamedValues(hasher, request.user_metadata());
  // Later field, hashed only if it has entries, so that hashes of older requests stay.
  for (const std::string& module : lora.target_modules()) hasher.Add(module);
  return hasher.Finish();
}

std::string ContentHash(const v1::UnloadModelRequest&) { return Hasher("unload_model").Finish(); }

std::string ContentHash(const v1::ForwardBackwardRequest& request) {
  Hasher hasher("forward_backward");
  hasher.Add(request.forward_only()).Add(request.loss().name());
  AddNamedValues(hasher, request.loss().config());
  AddNamedValues(hasher, request.loss().text_config());
  hasher.Add(request.data_size());
  for (const v1::Datum& datum : request.data()) AddDatum(hasher, datum);
  // Later fields are hashed only if they are set, so that hashes of older requests stay.
  if (HasSpans(request)) {
    hasher.Add(std::string_view("spans"));
    for (const v1::Datum& datum : request.data()) {
      AddSpans(hasher, datum.model_input_spans());
      AddSpans(hasher, datum.loss_fn_input_spans());
    }
  }
  if (!request.malformed().empty())
    hasher.Add(std::string_view("malformed")).Add(request.malformed());
  return hasher.Finish();
}

std::string ContentHash(const v1::OptimStepRequest& request) {
  Hasher hasher("optim_step");
  hasher.Add(request.has_adam_params()).Add(request.other_optimizer_type());
  AddAdamParams(hasher, request.adam_params());
  return hasher.Finish();
}

std::string ContentHash(const v1::SaveWeightsRequest& request) {
  Hasher hasher("save_weights");
  hasher.Add(request.name()).Add(request.has_ttl_seconds()).Add(request.ttl_seconds());
  hasher.Add(request.overwrite());
  AddNamedValues(hasher, request.user_metadata());
  return hasher.Finish();
}

std::string ContentHash(const v1::SaveWeightsForSamplerRequest& request) {
  Hasher hasher("save_weights_for_sampler");
  hasher.Add(request.has_name()).Add(request.name());
  hasher.Add(request.has_ttl_seconds()).Add(request.ttl_seconds());
  AddNamedValues(hasher, request.user_metadata());
  if (request.kind() == "inflight") hasher.Add(request.kind());
  return hasher.Finish();
}

std::string ContentHash(const v1::SaveWeightsExternalRequest& request) {
  Hasher hasher("save_weights_external");
  hasher.Add(request.name()).Add(request.has_ttl_seconds()).Add(request.ttl_seconds());
  hasher.Add(request.age_encryption_recipients_size());
  for (const std::string& recipient : request.age_encryption_recipients()) hasher.Add(recipient);
  return hasher.Finish();
}

std::string ContentHash(const v1::LoadWeightsRequest& request) {
  Hasher hasher("load_weights");
  hasher.Add(request.path()).Add(request.optimizer()).Add(request.optimizer_type());
  hasher.Add(request.base_model());
  AddNamedValues(hasher, request.user_metadata());
  return hasher.Finish();
}

std::string ContentHash(const v1::SampleRequest& request) {
  Hasher hasher("sample");
  AddChunks(hasher, request.prompt());
  hasher.Add(request.num_samples());
  AddSamplingParams(hasher, request.params());
  hasher.Add(request.prompt_logprobs()).Add(request.topk_prompt_logprobs());
  hasher.Add(request.unsupported_options_size());
  for (const std::string& option : request.unsupported_options()) hasher.Add(option);
  AddLaterOptions(hasher, request);
  return hasher.Finish();
}

}  // namespace lathe::engine

#include "services/api-gateway/wire/wire.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "services/api-gateway/wire/wire_check.h"

namespace lathe::gateway {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr auto kByName = [](const auto& a, const auto& b) { return a.name() < b.name(); };

template <typename Repeated>
void SortByName(Repeated* entries) {
  std::sort(entries->begin(), entries->end(), kByName);
}

// The functions below move strings out of `from`. They never move messages, because a message in an
// arena would be copied.
void FromTinker(tinker_public::Chunk& from, v1::Chunk* to) {
  switch (from.chunk_case()) {
    case tinker_public::Chunk::kEncodedText:
      to->set_tokens(std::move(*from.mutable_encoded_text()->mutable_tokens()));
      break;
    case tinker_public::Chunk::kImage:
      to->set_unsupported("image");
      break;
    case tinker_public::Chunk::kDmel:
      to->set_unsupported("dmel");
      break;
    case tinker_public::Chunk::CHUNK_NOT_SET:
      to->set_unsupported("unknown");
      break;
  }
}

void FromTinker(tinker_public::Tensor& from, v1::Tensor* to) {
  // Both enums have the same numbers. Unknown numbers are kept, and the engine refuses them.
  to->set_dtype(static_cast<v1::DType>(from.dtype()));
  to->mutable_shape()->CopyFrom(from.shape());
  if (from.has_dense()) {
    to->set_dense(std::move(*from.mutable_dense()));
  } else if (from.has_sparse_csr()) {
    tinker_public::SparseCsr& sparse = *from.mutable_sparse_csr();
    v1::SparseCsr* const result = to->mutable_sparse_csr();
    result->set_values(std::move(*sparse.mutable_values()));
    result->set_crow_indices(std::move(*sparse.mutable_crow_indices()));
    result->set_col_indices(std::move(*sparse.mutable_col_indices()));
  }
}

void FromTinker(const google::protobuf::RepeatedPtrField<tinker_public::ProvenanceSpan>& spans,
                google::protobuf::RepeatedPtrField<v1::ProvenanceSpan>* result) {
  for (const tinker_public::ProvenanceSpan& span : spans) {
    const auto add = [result](const auto& from) {
      v1::ProvenanceSpan* to = result->Add();
      if (!from.sequence_id().empty()) to->set_sequence_id(from.sequence_id());
      to->set_offset(from.offset());
      to->set_length(from.length());
      return to;
    };
    if (span.has_sampled_tokens()) {
      add(span.sampled_tokens())->set_sampled(true);
    } else {
      // A span of neither kind gets an empty sequence_id, which the engine refuses.
      add(span.prompt_tokens());
    }
  }
}

void FromTinker(tinker_public::Datum& datum, v1::Datum* result) {
  result->mutable_model_input()->Reserve(datum.model_input_size());
  for (tinker_public::Chunk& chunk : *datum.mutable_model_input()) {
    FromTinker(chunk, result->add_model_input());
  }
  for (auto& [name, tensor] : *datum.mutable_loss_fn_inputs()) {
    v1::NamedTensor* named = result->add_loss_fn_inputs();
    named->set_name(name);
    // An absent tensor costs nothing, and reads like an empty one.
    if (tensor.ByteSizeLong() > 0) FromTinker(tensor, named->mutable_tensor());
  }
  SortByName(result->mutable_loss_fn_inputs());
  FromTinker(datum.model_input_spans(), result->mutable_model_input_spans());
  FromTinker(datum.loss_fn_input_spans(), result->mutable_loss_fn_input_spans());
}

void AddNumber(const std::string& name, double value, v1::LossSpec* loss) {
  v1::NamedNumber* entry = loss->add_config();
  entry->set_name(name);
  entry->set_value(value);
}

void FromTinker(tinker_public::ForwardBackwardRequest& message, v1::LossSpec* loss) {
  loss->set_name(std::move(*message.mutable_loss_fn()));
  for (auto& [name, value] : *message.mutable_loss_fn_config_v2()) {
    if (value.has_text()) {
      v1::NamedString* entry = loss->add_text_config();
      entry->set_name(name);
      entry->set_value(std::move(*value.mutable_text()));
    } else {
      AddNumber(name, value.number(), loss);
    }
  }
  if (message.loss_fn_config_v2().empty()) {
    for (const auto& [name, value] : message.loss_fn_config()) AddNumber(name, value, loss);
  }
  SortByName(loss->mutable_config());
  SortByName(loss->mutable_text_config());
}

constexpr uint32_t TagOf(uint32_t field, uint32_t wire_type) { return field << 3 | wire_type; }
constexpr uint32_t kVarintType = 0, kBytesType = 2;
constexpr uint32_t kModelIdTag =
    TagOf(tinker_public::ForwardBackwardRequest::kModelIdFieldNumber, kBytesType);
constexpr uint32_t kSeqIdTag =
    TagOf(tinker_public::ForwardBackwardRequest::kSeqIdFieldNumber, kVarintType);
constexpr uint32_t kDataTag =
    TagOf(tinker_public::ForwardBackwardRequest::kDataFieldNumber, kBytesType);
// A longer model_id names no model.
constexpr uint32_t kMaxModelIdBytes = 4096;
// Room for the parsed form of a typical datum, whose strings lie elsewhere.
constexpr size_t kDatumArenaBytes = 8 << 10;

CodedInputStream StreamOf(std::string_view bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
}

// Reads the fields model_id and seq_id that come before the first damage.
void ReadIds(const std::string& body, v1::ForwardBackwardRequest* request) {
  CodedInputStream in = StreamOf(body);
  while (const uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    uint64_t seq_id = 0;
    if (tag == kSeqIdTag) {
      if (!in.ReadVarint64(&seq_id)) return;
      request->set_seq_id(static_cast<int32_t>(seq_id));
    } else if (tag == kModelIdTag) {
      if (!in.ReadVarint32(&length) || length > kMaxModelIdBytes) return;
      if (!in.ReadString(request->mutable_model_id(), static_cast<int>(length))) return;
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return;
    }
  }
}

// Parses a body that MeasureProto has accepted. Returns false if a string is not UTF-8.
bool ReadFields(const std::string& body, v1::ForwardBackwardRequest* request) {
  std::array<char, kDatumArenaBytes> block;
  google::protobuf::ArenaOptions options;
  options.initial_block = block.data();
  options.initial_block_size = block.size();
  google::protobuf::Arena arena(options);
  tinker_public::ForwardBackwardRequest others;
  const std::string_view bytes = body;
  CodedInputStream in = StreamOf(bytes);
  while (true) {
    const int begin = in.CurrentPosition();
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    if (tag != kDataTag) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      if (others.descriptor()->FindFieldByNumber(static_cast<int>(tag >> 3)) == nullptr) continue;
      CodedInputStream field = StreamOf(bytes.substr(begin, in.CurrentPosition() - begin));
      if (!others.MergePartialFromCodedStream(&field)) return false;
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return false;
    arena.Reset();
    auto* datum = google::protobuf::Arena::CreateMessage<tinker_public::Datum>(&arena);
    const char* const begin_of_datum = bytes.data() + in.CurrentPosition();
    if (!datum->ParseFromArray(begin_of_datum, static_cast<int>(length))) return false;
    FromTinker(*datum, request->add_data());
    if (!in.Skip(static_cast<int>(length))) return false;
  }
  request->set_model_id(std::move(*others.mutable_model_id()));
  request->set_seq_id(others.seq_id());
  request->set_forward_only(others.forward_only());
  FromTinker(others, request->mutable_loss());
  return true;
}

constexpr char kOutputType[] = "ArrayRecord";
constexpr char kLogprobs[] = "logprobs";

// Appends the byte offset `end` to the packed array `offsets`.
void AddOffset(int64_t end, std::string* offsets) {
  offsets->append(reinterpret_cast<const char*>(&end), sizeof(end));
}

tinker_public::BatchedTensor* StartRecord(int64_t num_targets,
                                          tinker_public::ForwardBackwardOutput* output) {
  tinker_public::ArrayRecord* record = output->add_loss_fn_outputs();
  record->set_type_tag(kOutputType);
  tinker_public::BatchedTensor& tensor = (*record->mutable_fields())[kLogprobs];
  tensor.set_dtype(tinker_public::DTYPE_FLOAT32);
  if (num_targets > 0) tensor.add_trailing_shape(num_targets);
  AddOffset(0, tensor.mutable_offsets());
  return &tensor;
}

tinker_public::TopkLogprobs ToTinker(v1::TopkLogprobs topk) {
  tinker_public::TopkLogprobs result;
  result.set_token_ids(std::move(*topk.mutable_token_ids()));
  result.set_logprobs(std::move(*topk.mutable_logprobs()));
  result.set_k(static_cast<uint32_t>(topk.k()));
  result.set_length(static_cast<uint32_t>(topk.length()));
  return result;
}

tinker_public::Tensor ToTinker(v1::Tensor tensor) {
  tinker_public::Tensor result;
  // Both enums have the same numbers.
  result.set_dtype(static_cast<tinker_public::DType>(tensor.dtype()));
  *result.mutable_shape() = std::move(*tensor.mutable_shape());
  if (!tensor.has_sparse_csr()) {
    result.set_dense(std::move(*tensor.mutable_dense()));
    return result;
  }
  v1::SparseCsr& from = *tensor.mutable_sparse_csr();
  tinker_public::SparseCsr* sparse = result.mutable_sparse_csr();
  sparse->set_values(std::move(*from.mutable_values()));
  sparse->set_crow_indices(std::move(*from.mutable_crow_indices()));
  sparse->set_col_indices(std::move(*from.mutable_col_indices()));
  return result;
}

}  // namespace

absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request,
                                     AdmitParts admit) {
  const google::protobuf::Descriptor& type = *tinker_public::ForwardBackwardRequest::descriptor();
  const absl::StatusOr<WireSize> size = MeasureProto(
      body, type,
      {.datums = type.FindFieldByNumber(tinker_public::ForwardBackwardRequest::kDataFieldNumber),
       .max_part_bytes = MaxPartBytes(static_cast<int64_t>(body.size()))});
  absl::Status status = size.ok() ? admit(size->PartBytes()) : size.status();
  if (status.ok() && !ReadFields(body, request)) {
    request->Clear();
    status = WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                            "protobuf body of %d bytes is not a valid %s: a string field is not "
                            "UTF-8",
                            body.size(), type.name())),
                        "bad_proto");
  }
  if (!status.ok()) ReadIds(body, request);
  return status;
}

tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result) {
  tinker_public::ForwardBackwardOutput output;
  output.set_loss_fn_output_type(kOutputType);
  tinker_public::BatchedTensor* tensor = nullptr;
  int64_t num_targets = 0;
  for (const v1::DatumOutput& datum : result.outputs()) {
    if (tensor == nullptr || datum.num_targets() != num_targets) {
      num_targets = datum.num_targets();
      tensor = StartRecord(num_targets, &output);
    }
    tensor->mutable_data()->append(datum.logprobs());
    AddOffset(static_cast<int64_t>(tensor->data().size()), tensor->mutable_offsets());
    auto* record = output.mutable_loss_fn_outputs(output.loss_fn_outputs_size() - 1);
    record->set_num_datums(record->num_datums() + 1);
  }
  for (const v1::NamedNumber& metric : result.metrics()) {
    if (std::isfinite(metric.value())) (*output.mutable_metrics())[metric.name()] = metric.value();
  }
  return output;
}

tinker_public::SampleResponse ToTinker(v1::SampleResult result) {
  tinker_public::SampleResponse response;
  for (v1::SampledSequence& sequence : *result.mutable_sequences()) {
    tinker_public::SampledSequence* to = response.add_sequences();
    to->set_stop_reason(sequence.stopped() ? tinker_public::STOP_REASON_STOP
                                           : tinker_public::STOP_REASON_LENGTH);
    to->set_tokens(std::move(*sequence.mutable_tokens()));
    to->set_logprobs(std::move(*sequence.mutable_logprobs()));
    if (sequence.has_topk_logprobs()) {
      *to->mutable_topk_sampled_logprobs() = ToTinker(std::move(*sequence.mutable_topk_logprobs()));
    }
  }
  if (!result.prompt_logprobs().empty()) {
    response.set_prompt_logprobs(std::move(*result.mutable_prompt_logprobs()));
  }
  if (result.has_topk_prompt_logprobs()) {
    *response.mutable_topk_prompt_logprobs() =
        ToTinker(std::move(*result.mutable_topk_prompt_logprobs()));
  }
  if (result.has_target_prompt_logprobs()) {
    *response.mutable_target_prompt_logprobs() =
        ToTinker(std::move(*result.mutable_target_prompt_logprobs()));
  }
  if (result.has_prompt_alt_tokens()) {
    v1::PromptAltTokens& drawn = *result.mutable_prompt_alt_tokens();
    tinker_public::PromptAltTokens* to = response.mutable_prompt_alt_tokens();
    *to->mutable_tokens() = ToTinker(std::move(*drawn.mutable_tokens()));
    *to->mutable_logprobs() = ToTinker(std::move(*drawn.mutable_logprobs()));
  }
  response.set_prompt_cache_hit_tokens(static_cast<int32_t>(result.prompt_cache_hit_tokens()));
  return response;
}

}  // namespace lathe::gateway

#include "services/api-gateway/json/training_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/request_bounds.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/list_scanner.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/sampling_json.h"
#include "services/api-gateway/json/tensor_json.h"

namespace lathe::gateway {
namespace {

using simdjson::dom::element;

// Limits on the JSON outside the data list and on one datum. A parser needs up to fourteen times
// the memory of its input. Both limits are far beyond what a model's context can use.
constexpr size_t kMaxRestBytes = 4 << 20;
constexpr size_t kMaxDatumBytes = 16 << 20;
// Nesting depth of a datum: root, input and list enclose it.
constexpr int kDatumDepth = 3;

void ReadSpans(LargeObject& in, std::string_view name,
               google::protobuf::RepeatedPtrField<v1::ProvenanceSpan>* spans) {
  if (!in.Has(name)) return;
  size_t index = 0;
  for (const element value : in.Array(name)) {
    LargeObject from(value, absl::StrCat(in.PointerTo(name), "/", index++), in.errors());
    const std::string type = from.String("type");
    if (type != "prompt_tokens" && type != "sampled_tokens") {
      in.errors().Fail(from.PointerTo("type"), "prompt_tokens or sampled_tokens");
      return;
    }
    v1::ProvenanceSpan* span = spans->Add();
    span->set_sampled(type == "sampled_tokens");
    span->set_sequence_id(from.String("sequence_id"));
    span->set_offset(from.IntOr("offset", 0));
    span->set_length(from.Int("length"));
  }
}

void ReadDatum(LargeObject in, v1::Datum* datum) {
  LargeObject input = in.Object("model_input");
  ReadChunks(input.Array("chunks"), input.PointerTo("chunks"), in.errors(),
             datum->mutable_model_input());
  LargeObject tensors = in.Object("loss_fn_inputs");
  if (!tensors.members()) return;
  for (const auto field : *tensors.members()) {
    v1::NamedTensor* named = datum->add_loss_fn_inputs();
    named->set_name(std::string(field.key));
    ReadTensor(LargeObject(field.value, tensors.PointerTo(field.key), in.errors()),
               named->mutable_tensor());
  }
  std::sort(datum->mutable_loss_fn_inputs()->begin(), datum->mutable_loss_fn_inputs()->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  ReadSpans(in, "model_input_spans", datum->mutable_model_input_spans());
  ReadSpans(in, "loss_fn_input_spans", datum->mutable_loss_fn_input_spans());
}

void ReadLoss(LargeObject& in, v1::LossSpec* loss) {
  loss->set_name(in.String("loss_fn"));
  if (!in.Has("loss_fn_config")) return;
  LargeObject config = in.Object("loss_fn_config");
  if (!config.members()) return;
  for (const auto field : *config.members()) {
    std::string_view text;
    double number = 0;
    if (field.value.get(number) == simdjson::SUCCESS) {
      v1::NamedNumber* entry = loss->add_config();
      entry->set_name(std::string(field.key));
      entry->set_value(number);
    } else if (field.value.get(text) == simdjson::SUCCESS) {
      v1::NamedString* entry = loss->add_text_config();
      entry->set_name(std::string(field.key));
      entry->set_value(std::string(text));
    } else {
      in.errors().Fail(config.PointerTo(field.key), "a number or a string");
    }
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name() < b.name(); };
  std::sort(loss->mutable_config()->begin(), loss->mutable_config()->end(), by_name);
  std::sort(loss->mutable_text_config()->begin(), loss->mutable_text_config()->end(), by_name);
}

absl::Status TooLarge(const std::string& what, size_t num_bytes, size_t limit) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "%s has %d bytes of JSON, limit is %d; protobuf takes a fraction of it",
                        what, num_bytes, limit)),
                    "body_too_large");
}

absl::Status TooManyDatums(const std::string& pointer) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "%s has more datums than the limit of %d", pointer, kMaxDatums)),
                    "too_many_datums", pointer);
}

// Returns the bytes that `datum` takes in memory.
int64_t MemoryOf(const v1::Datum& datum) {
  int64_t num_messages = 1 + 2 * datum.model_input_size() + 2 * datum.loss_fn_inputs_size() +
                         datum.model_input_spans_size() + datum.loss_fn_input_spans_size();
  return num_messages * kMessagePartBytes + static_cast<int64_t>(datum.ByteSizeLong());
}

// Returns the most bytes that the datums of a body may take. The gateway holds them twice when it
// hands them on.
int64_t MaxDataMemory(const std::string& body) {
  return (int64_t{32} << 20) + static_cast<int64_t>(body.size() / 2 * 3);
}

absl::Status TooMuchData(const std::string& pointer, const std::string& body) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s takes over %d bytes of memory, the limit for a body of %d bytes; protobuf takes less",
          pointer, MaxDataMemory(body), body.size())),
      "too_many_parts", pointer);
}

// Reads the elements of `list`. Errors in fields go to `errors`. After such an error the other
// elements are only skipped, because the text behind the list must still be read. Returns an error
// if a parsed element or the list itself is not JSON.
absl::Status ReadData(ListScanner& list, const std::string& body, const std::string& pointer,
                      LargeContext& errors, v1::ForwardBackwardRequest* request) {
  simdjson::dom::parser parser;
  size_t index = 0;
  int64_t memory = 0;
  while (const auto piece = list.Next()) {
    if (!errors.ok()) continue;
    if (index == kMaxDatums) {
      errors.Set(TooManyDatums(pointer));
      continue;
    }
    const std::string where = absl::StrCat(pointer, "/", index++);
    if (piece->size() > kMaxDatumBytes) {
      errors.Set(TooLarge(where, piece->size(), kMaxDatumBytes));
      continue;
    }
    v1::Datum* datum = request->add_data();
    const absl::Status status = ReadLargeJson(parser, *piece, kDatumDepth, errors,
                                              [&](element root, LargeContext& context) {
                                                datum->Clear();
                                                ReadDatum(LargeObject(root, where, context), datum);
                                              });
    if (ErrorCode(status) == "too_many_values") {
      errors.Set(status);
    } else if (!status.ok()) {
      return NotJson(body);
    }
    memory += MemoryOf(*datum);
    if (memory > MaxDataMemory(body)) errors.Set(TooMuchData(pointer, body));
  }
  return list.is_sound() ? absl::OkStatus() : NotJson(body);
}

void ReadRoot(const element root, const char* input_name, LargeContext& errors,
              v1::ForwardBackwardRequest* request) {
  LargeObject in(root, "", errors);
  request->set_model_id(in.String("model_id"));
  request->set_seq_id(in.IntOr("seq_id", 0));
  LargeObject input = in.Object(input_name);
  ReadLoss(input, request->mutable_loss());
  size_t index = 0;
  for (const element datum : input.Array("data")) {
    if (!errors.ok()) break;
    ReadDatum(LargeObject(datum, absl::StrCat(input.PointerTo("data"), "/", index++), errors),
              request->add_data());
  }
}

}  // namespace

absl::Status ForwardBackwardFromJson(const std::string& body, bool forward_only,
                                     v1::ForwardBackwardRequest* request) {
  const char* const input_name = forward_only ? "forward_input" : "forward_backward_input";
  request->set_forward_only(forward_only);
  auto list = ListScanner::Find(body, {input_name, "data"});
  LargeContext data_errors;
  if (list) {
    RETURN_IF_ERROR(
        ReadData(*list, body, absl::StrCat("/", input_name, "/data"), data_errors, request));
  }
  const size_t rest_bytes = list ? list->RestBytes() : body.size();
  if (rest_bytes > kMaxRestBytes) {
    RETURN_IF_ERROR(CheckJson(body));
    return TooLarge("the body without its data", rest_bytes, kMaxRestBytes);
  }
  const std::string rest = list ? list->Rest() : body;
  const int num_read = request->data_size();
  simdjson::dom::parser parser;
  LargeContext errors;
  const absl::Status status = ReadLargeJson(
      parser, rest, /*outer_depth=*/0, errors, [&](element root, LargeContext& context) {
        request->mutable_data()->DeleteSubrange(num_read, request->data_size() - num_read);
        request->clear_loss();
        ReadRoot(root, input_name, context, request);
      });
  if (ErrorCode(status) == "too_many_values") return status;
  if (!status.ok()) {
    // A body that is not JSON takes no place in the model's sequence.
    request->clear_model_id();
    request->clear_seq_id();
    return NotJson(body);
  }
  return errors.ok() ? data_errors.status() : errors.status();
}

}  // namespace lathe::gateway

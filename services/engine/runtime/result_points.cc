#include "services/engine/runtime/result_points.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/engine/core/state/plan.h"

namespace lathe::engine {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Calls visit(number, in) for each length-delimited field, which it must consume, and skips the
// others. So a result of megabytes costs as little as its numbers.
using VisitField = std::function<void(int number, CodedInputStream& in)>;

void ForFields(CodedInputStream& in, const VisitField& visit) {
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return;
      continue;
    }
    uint32_t size = 0;
    // A limit beyond the end of the bytes would count as the end.
    if (!in.ReadVarint32(&size) || static_cast<int64_t>(size) > in.BytesUntilLimit()) return;
    const CodedInputStream::Limit limit = in.PushLimit(static_cast<int>(size));
    visit(WireFormatLite::GetTagFieldNumber(tag), in);
    if (const int rest = in.BytesUntilLimit(); rest > 0 && !in.Skip(rest)) return;
    in.PopLimit(limit);
  }
}

// Adds numbers to an entry, with a prefix before the names of metrics.
class ResultReader {
 public:
  ResultReader(PointEntry& entry, std::string prefix) : entry_(entry), prefix_(std::move(prefix)) {}

  void Add(const std::string& name, double value) {
    if (std::isfinite(value)) entry_.points.push_back({.name = name, .value = value});
  }

  void AddMetric(CodedInputStream& in) {
    v1::NamedNumber metric;
    if (metric.MergePartialFromCodedStream(&in)) Add(prefix_ + metric.name(), metric.value());
  }

 private:
  PointEntry& entry_;
  const std::string prefix_;
};

CodedInputStream StreamOf(std::string_view bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
}

void AddTimes(const FinishedRequest& request, const std::string& operation, ResultReader& out) {
  if (request.accepted_at == 0 || request.dispatched_at == 0 || request.executed_at == 0) return;
  constexpr double kNano = 1e-9;
  const auto queued = static_cast<double>(request.dispatched_at - request.accepted_at);
  const auto executed = static_cast<double>(request.executed_at - request.dispatched_at);
  out.Add(operation + "/queue_seconds", queued * kNano);
  out.Add(operation + "/execute_seconds", executed * kNano);
}

void AddTraining(const FinishedRequest& request, std::string_view result, PointEntry& entry) {
  const bool is_forward = request.kind == OperationKind::kForward;
  const std::string operation(TraitsOf(request.kind).name);
  ResultReader out(entry, is_forward ? "forward/" : "");
  int64_t num_datums = 0;
  CodedInputStream stream = StreamOf(result);
  ForFields(stream, [&](int outcome, CodedInputStream& in) {
    if (outcome == v1::OperationResult::kForwardBackwardFieldNumber) {
      ForFields(in, [&](int number, CodedInputStream& part) {
        if (number == v1::ForwardBackwardResult::kOutputsFieldNumber) ++num_datums;
        if (number == v1::ForwardBackwardResult::kMetricsFieldNumber) out.AddMetric(part);
      });
    } else if (outcome == v1::OperationResult::kOptimStepFieldNumber) {
      ForFields(in, [&](int number, CodedInputStream& part) {
        if (number == v1::OptimStepResult::kMetricsFieldNumber) out.AddMetric(part);
      });
    }
  });
  if (request.kind != OperationKind::kOptimStep) {
    ResultReader sizes(entry, "");
    sizes.Add(operation + "/tokens", static_cast<double>(request.tokens));
    sizes.Add(operation + "/datums", static_cast<double>(num_datums));
  }
  ResultReader own(entry, "");
  if (request.learning_rate) own.Add(operation + "/learning_rate", *request.learning_rate);
  AddTimes(request, operation, own);
}

void AddSample(std::string_view result, PointEntry& entry) {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  CodedInputStream stream = StreamOf(result);
  ForFields(stream, [&](int outcome, CodedInputStream& in) {
    if (outcome != v1::OperationResult::kSampleFieldNumber) return;
    ForFields(in, [&](int number, CodedInputStream& sequence) {
      if (number != v1::SampleResult::kSequencesFieldNumber) return;
      ++num_sequences;
      ForFields(sequence, [&](int part, CodedInputStream& bytes) {
        if (part != v1::SampledSequence::kTokensFieldNumber) return;
        num_tokens += bytes.BytesUntilLimit() / static_cast<int>(sizeof(int32_t));
      });
    });
  });
  entry.points.push_back({.name = "sample/sequences", .value = static_cast<double>(num_sequences)});
  entry.points.push_back({.name = "sample/tokens", .value = static_cast<double>(num_tokens)});
}

}  // namespace

std::optional<double> LearningRateOf(const RequestRow& row) {
  if (row.kind != OperationKind::kOptimStep) return std::nullopt;
  const std::optional<Plan> plan = DecodePlan(row.plan);
  const auto* const args = plan ? std::get_if<OptimStepArgs>(&plan->args) : nullptr;
  v1::AdamParams adam;
  if (args == nullptr || plan->refused || !adam.ParseFromString(args->adam_params)) {
    return std::nullopt;
  }
  return adam.learning_rate();
}

PointEntryPtr PointsOfResult(const FinishedRequest& request, std::string_view result) {
  auto entry = std::make_shared<PointEntry>();
  entry->run_id = request.run_id;
  entry->tenant_id = request.tenant_id;
  entry->unix_ms = request.done_at / 1'000'000;
  switch (request.kind) {
    case OperationKind::kForward:
    case OperationKind::kForwardBackward:
      AddTraining(request, result, *entry);
      break;
    case OperationKind::kOptimStep:
      entry->kind = EntryKind::kOptimStep;
      AddTraining(request, result, *entry);
      break;
    case OperationKind::kSample:
      entry->kind = EntryKind::kCounts;
      AddSample(result, *entry);
      break;
    case OperationKind::kSaveWeights:
    case OperationKind::kSaveWeightsForSampler:
    case OperationKind::kSaveWeightsExternal:
      entry->kind = EntryKind::kCounts;
      entry->points.push_back(
          {.name = absl::StrCat(std::string(TraitsOf(request.kind).name), "/count"), .value = 1});
      break;
    case OperationKind::kCreateModel:
    case OperationKind::kUnloadModel:
    case OperationKind::kLoadWeights:
      return nullptr;
  }
  return entry;
}

}  // namespace lathe::engine

// Measures the gateway's codecs without sockets: request bodies to engine messages, and results
// back to bodies.
#include <benchmark/benchmark.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdlib>

#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/json/training_json.h"
#include "services/api-gateway/wire/wire.h"
#include "tests/bench/gateway/training_bodies.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kNumLogprobs = 600'000;  // 2.4 MB

void RequireOk(const absl::Status& status) {
  if (!status.ok()) std::abort();
}

// Serializes `request` as a gRPC stub does, and frees the buffer as gRPC does after writing it.
void HandOn(const v1::ForwardBackwardRequest& request) {
  grpc::ByteBuffer buffer;
  bool owns_buffer = false;
  if (!grpc::GenericSerialize<grpc::ProtoBufferWriter, v1::ForwardBackwardRequest>(request, &buffer,
                                                                                   &owns_buffer)
           .ok()) {
    std::abort();
  }
  benchmark::DoNotOptimize(buffer.Length());
}

template <typename Parse>
void ParseAndHandOn(benchmark::State& state, const std::string& body, Parse parse) {
  for (auto _ : state) {
    v1::ForwardBackwardRequest request;
    RequireOk(parse(body, &request));
    HandOn(request);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * body.size()));
}

void ProtobufParsedAndHandedOn(benchmark::State& state) {
  ParseAndHandOn(state, TrainingProtobuf({}),
                 [](const std::string& body, v1::ForwardBackwardRequest* request) {
                   return ForwardBackwardFromWire(body, request);
                 });
}
BENCHMARK(ProtobufParsedAndHandedOn)->Unit(benchmark::kMillisecond)->UseRealTime();

void ProtobufParsed(benchmark::State& state) {
  const std::string body = TrainingProtobuf({});
  for (auto _ : state) {
    v1::ForwardBackwardRequest request;
    RequireOk(ForwardBackwardFromWire(body, &request));
    benchmark::DoNotOptimize(request.data_size());
  }
}
BENCHMARK(ProtobufParsed)->Unit(benchmark::kMillisecond)->UseRealTime();

// Lower bound for any path that copies the body once.
void ProtobufBodyCopied(benchmark::State& state) {
  const std::string body = TrainingProtobuf({});
  for (auto _ : state) {
    std::string copy = body;
    benchmark::DoNotOptimize(copy.data());
  }
}
BENCHMARK(ProtobufBodyCopied)->Unit(benchmark::kMillisecond)->UseRealTime();

void JsonParsedAndHandedOn(benchmark::State& state) {
  ParseAndHandOn(state, TrainingJson({}), [](const std::string& body, auto* request) {
    return ForwardBackwardFromJson(body, /*forward_only=*/false, request);
  });
}
BENCHMARK(JsonParsedAndHandedOn)->Unit(benchmark::kMillisecond)->UseRealTime();

// `encode` consumes the result, so each iteration copies it outside the measured time.
template <typename Encode>
void EncodeLogprobs(benchmark::State& state, Encode encode) {
  const v1::ForwardBackwardResult original = LogprobsResult(kNumLogprobs, 1063);
  size_t num_bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    v1::ForwardBackwardResult result = original;
    state.ResumeTiming();
    const std::string body = encode(std::move(result));
    num_bytes = body.size();
    benchmark::DoNotOptimize(body.data());
  }
  state.counters["body_bytes"] = static_cast<double>(num_bytes);
}

void LogprobsAsProtobuf(benchmark::State& state) {
  EncodeLogprobs(state, [](v1::ForwardBackwardResult result) {
    return ToTinker(std::move(result)).SerializeAsString();
  });
}
BENCHMARK(LogprobsAsProtobuf)->Unit(benchmark::kMillisecond)->UseRealTime();

void LogprobsAsJson(benchmark::State& state) {
  EncodeLogprobs(state, [](v1::ForwardBackwardResult result) {
    v1::OperationResult operation;
    *operation.mutable_forward_backward() = std::move(result);
    return JsonText(ResultToJson(operation));
  });
}
BENCHMARK(LogprobsAsJson)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace lathe::gateway

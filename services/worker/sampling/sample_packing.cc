#include "services/worker/sampling/data_parallel_sampling.h"

#include <bit>
#include <optional>
#include <utility>

#include "services/worker/collectives/packing.h"

namespace lathe::worker {
namespace {

void Write(const TopkLogprobs& top, PackWriter& writer) {
  writer.Number(top.k);
  writer.Number(top.length);
  writer.Values(top.token_ids);
  writer.Values(top.logprobs);
}

void Read(PackReader& reader, TopkLogprobs& top) {
  top.k = reader.Number();
  top.length = reader.Number();
  top.token_ids = reader.Values<int32_t>();
  top.logprobs = reader.Values<float>();
}

void Write(const PromptTargetLogprobs& targets, PackWriter& writer) {
  writer.Values(targets.logprobs);
}

void Read(PackReader& reader, PromptTargetLogprobs& targets) {
  targets.logprobs = reader.Values<float>();
}

void Write(const PromptAltTokens& alt_tokens, PackWriter& writer) {
  writer.Number(alt_tokens.k);
  writer.Values(alt_tokens.tokens);
  writer.Values(alt_tokens.logprobs);
}

void Read(PackReader& reader, PromptAltTokens& alt_tokens) {
  alt_tokens.k = reader.Number();
  alt_tokens.tokens = reader.Values<int32_t>();
  alt_tokens.logprobs = reader.Values<float>();
}

template <typename T>
void Write(const std::optional<T>& value, PackWriter& writer) {
  writer.Number(value.has_value() ? 1 : 0);
  if (value.has_value()) Write(*value, writer);
}

template <typename T>
void Read(PackReader& reader, std::optional<T>& value) {
  if (reader.Number() != 0) Read(reader, value.emplace());
}

void Write(const SampledSequence& sequence, PackWriter& writer) {
  writer.Number(sequence.stopped ? 1 : 0);
  writer.Values(sequence.tokens);
  writer.Values(sequence.logprobs);
  writer.Values(sequence.weights_runs);
  Write(sequence.topk_logprobs, writer);
}

void Read(PackReader& reader, SampledSequence& sequence) {
  sequence.stopped = reader.Number() != 0;
  sequence.tokens = reader.Values<int32_t>();
  sequence.logprobs = reader.Values<float>();
  sequence.weights_runs = reader.Values<WeightsRun>();
  Read(reader, sequence.topk_logprobs);
}

void Write(const SampleOutput& output, PackWriter& writer) {
  writer.Number(static_cast<int64_t>(output.sequences.size()));
  for (const SampledSequence& sequence : output.sequences) Write(sequence, writer);
  writer.Values(output.prompt_logprobs);
  Write(output.topk_prompt_logprobs, writer);
  Write(output.target_prompt_logprobs, writer);
  Write(output.prompt_alt_tokens, writer);
  writer.Number(output.prompt_cache_hit_tokens);
}

void Read(PackReader& reader, SampleOutput& output) {
  const int64_t num_sequences = reader.Number();
  for (int64_t i = 0; i < num_sequences && !reader.is_damaged(); ++i) {
    Read(reader, output.sequences.emplace_back());
  }
  output.prompt_logprobs = reader.Values<float>();
  Read(reader, output.topk_prompt_logprobs);
  Read(reader, output.target_prompt_logprobs);
  Read(reader, output.prompt_alt_tokens);
  output.prompt_cache_hit_tokens = reader.Number();
}

void Write(const FinishedSample& sample, PackWriter& writer) {
  writer.Text(sample.request_id);
  writer.Number(static_cast<int64_t>(sample.output.status().code()));
  writer.Text(std::string(sample.output.status().message()));
  if (sample.output.ok()) Write(*sample.output, writer);
}

FinishedSample ReadFinished(PackReader& reader) {
  std::string request_id = reader.Text();
  const auto code = static_cast<absl::StatusCode>(reader.Number());
  const std::string message = reader.Text();
  if (code != absl::StatusCode::kOk) return {std::move(request_id), absl::Status(code, message)};
  SampleOutput output;
  Read(reader, output);
  return {std::move(request_id), std::move(output)};
}

void Write(const SampledToken& token, PackWriter& writer) {
  writer.Text(token.request_id);
  writer.Number(token.sample_index);
  writer.Number(token.token_index);
  writer.Number(token.token);
  writer.Number(std::bit_cast<int32_t>(token.logprob));
  writer.Number((token.finished ? 2 : 0) + (token.stopped ? 1 : 0));
}

SampledToken ReadToken(PackReader& reader) {
  SampledToken token;
  token.request_id = reader.Text();
  token.sample_index = reader.Number();
  token.token_index = reader.Number();
  token.token = static_cast<int32_t>(reader.Number());
  token.logprob = std::bit_cast<float>(static_cast<int32_t>(reader.Number()));
  const int64_t ends = reader.Number();
  token.finished = ends >= 2;
  token.stopped = ends % 2 == 1;
  return token;
}

}  // namespace

std::string Pack(const SampleUpdates& updates) {
  PackWriter writer;
  writer.Number(static_cast<int64_t>(updates.finished.size()));
  for (const FinishedSample& sample : updates.finished) Write(sample, writer);
  writer.Number(static_cast<int64_t>(updates.streamed.size()));
  for (const SampledToken& token : updates.streamed) Write(token, writer);
  writer.Number(static_cast<int64_t>(updates.ended.size()));
  for (const EndedSequences& ended : updates.ended) {
    writer.Text(ended.request_id);
    writer.Number(ended.num_ended);
  }
  return writer.Take();
}

absl::StatusOr<SampleUpdates> UnpackSampleUpdates(std::string_view bytes) {
  PackReader reader(bytes);
  SampleUpdates updates;
  const int64_t num_finished = reader.Number();
  for (int64_t i = 0; i < num_finished && !reader.is_damaged(); ++i) {
    updates.finished.push_back(ReadFinished(reader));
  }
  const int64_t num_streamed = reader.Number();
  for (int64_t i = 0; i < num_streamed && !reader.is_damaged(); ++i) {
    updates.streamed.push_back(ReadToken(reader));
  }
  const int64_t num_ended = reader.Number();
  for (int64_t i = 0; i < num_ended && !reader.is_damaged(); ++i) {
    std::string request_id = reader.Text();
    updates.ended.push_back({std::move(request_id), reader.Number()});
  }
  if (reader.is_damaged() || !reader.is_at_end()) {
    return absl::InternalError("the sampling results of a rank are damaged");
  }
  return updates;
}

}  // namespace lathe::worker

#include "services/worker/sampling/sampling_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/worker/sampling/cached_attention.h"
#include "services/worker/sampling/packed_rows.h"
#include "services/worker/sampling/prompt_scores.h"
#include "services/worker/sampling/sampler.h"

namespace lathe::worker {
namespace {

// All layers; [T, H] before the final norm.
at::Tensor RunLayers(const Model& model, const PackedRows& rows, AttentionContext& attention) {
  at::Tensor x = model.Embed(rows);
  for (int64_t layer = 0; layer < model.spec().num_layers; ++layer) {
    x = model.LayerForward(layer, x, rows, attention);
  }
  return x;
}

const AdapterWeights* AdapterOf(const ActiveRequest* request) { return request->adapter.get(); }

// Of the token that comes next. A sample's first one is drawn from the prompt's logits, which may
// be older than the weights.
void NoteWeights(ActiveSample& sample) {
  const ActiveRequest& request = *sample.request;
  const int64_t seq_id = sample.tokens.empty() ? request.next_logits_seq : request.inflight_seq;
  if (seq_id == 0) return;
  std::vector<WeightsRun>& runs = sample.weights_runs;
  if (runs.empty() || runs.back().seq_id != seq_id) runs.push_back({seq_id, 0});
  ++runs.back().num_tokens;
}

}  // namespace

SamplingEngine::SamplingEngine(const Model& model, const SamplingOptions& options,
                               const Tokenizer* tokenizer)
    : model_(model),
      options_(options),
      tokenizer_(tokenizer),
      cache_(model.spec(), options.kv_cache_bytes, model.attention_arithmetic()),
      batch_(cache_, {.max_running_samples = options.max_running_samples,
                      .max_prefill_tokens = options.max_prefill_tokens}) {}

absl::Status SamplingEngine::Add(SampleRequest request,
                                 std::shared_ptr<const AdapterWeights> adapter,
                                 int64_t inflight_seq) {
  if (static_cast<int64_t>(requests_.size()) >= options_.max_requests) {
    return absl::ResourceExhaustedError(absl::StrFormat("%d samples are queued, limit is %d",
                                                        requests_.size(), options_.max_requests));
  }
  if (!request.params.stop_strings.empty() && tokenizer_ == nullptr) {
    return absl::InvalidArgumentError("stop strings need the model's tokenizer.json");
  }
  const auto capacity = cache_.num_blocks() * KvCache::kBlockTokens;
  if (static_cast<int64_t>(request.prompt.size()) >= capacity) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "prompt has %d tokens, the kv cache holds %d", request.prompt.size(), capacity));
  }
  if (requests_.contains(request.request_id)) {
    return absl::AlreadyExistsError(absl::StrFormat("request %s is running", request.request_id));
  }
  auto active = std::make_unique<ActiveRequest>();
  active->request = std::move(request);
  active->adapter = std::move(adapter);
  active->inflight_seq = inflight_seq;
  PreparePromptScores(active->request, active->output);
  active->output.sequences.resize(active->request.num_samples);
  for (int64_t index = 0; index < active->request.num_samples; ++index) {
    active->samples.push_back(std::make_unique<ActiveSample>(ActiveSample{
        .request = active.get(),
        .index = index,
        .stop = StopMatcher(active->request.params, model_.spec().eos_token_ids, tokenizer_)}));
    if (const int64_t k = active->request.topk_sample_logprobs; k > 0) {
      active->samples.back()->top = TopkLogprobs{.k = k};
    }
  }
  batch_.Add(active.get());
  std::string id = active->request.request_id;
  requests_.emplace(std::move(id), std::move(active));
  return absl::OkStatus();
}

void SamplingEngine::MoveVersion(const std::string& version_id,
                                 std::shared_ptr<const AdapterWeights> adapter,
                                 int64_t inflight_seq) {
  for (const auto& [id, request] : requests_) {
    if (request->request.version_id != version_id) continue;
    request->adapter = adapter;
    request->inflight_seq = inflight_seq;
  }
}

void SamplingEngine::Cancel(const std::string& request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) return;
  batch_.Remove(found->second.get());
  requests_.erase(found);
}

void SamplingEngine::RunPass() {
  if (!batch_.PrefersPrefill() || !RunPrefill()) RunDecode();
  FailTooLarge();
  in_pass_.clear();
  counters_.preemptions = batch_.num_preemptions();
}

bool SamplingEngine::RunPrefill() {
  std::vector<PrefillChunk> chunks = batch_.NextPrefill();
  if (chunks.empty()) return false;
  GroupByAdapter(chunks, [](const PrefillChunk& chunk) { return AdapterOf(chunk.request); });
  PackedRowsBuilder builder;
  std::vector<CachedRows> cached;
  for (const PrefillChunk& chunk : chunks) {
    in_pass_.push_back(chunk.request->request.request_id);
    builder.BeginSequence(AdapterOf(chunk.request));
    for (int64_t position = chunk.begin; position < chunk.end; ++position) {
      builder.AddRow(chunk.token(position), position);
    }
    cached.push_back({.kv = &chunk.kv(), .num_rows = chunk.end - chunk.begin});
  }
  CachedAttention attention(cache_, cached, model_.device());
  const at::Tensor x = RunLayers(model_, builder.Build(model_.device()), attention);
  ++counters_.prefill_passes;
  counters_.prefill_tokens += builder.num_rows();

  std::vector<int64_t> last_rows;
  std::vector<const AdapterWeights*> last_adapters;
  int64_t begin = 0;
  for (const PrefillChunk& chunk : chunks) {
    const int64_t num_rows = chunk.end - chunk.begin;
    const bool is_prompt = chunk.sample == nullptr;
    // A prompt's last row predicts what is generated, not the prompt.
    const int64_t num_scored = is_prompt && chunk.is_last() ? num_rows - 1 : num_rows;
    if (is_prompt && num_scored > 0 && WantsPromptScores(chunk.request->request)) {
      ScorePrompt(model_, model_.FinalNorm(x.narrow(0, begin, num_scored)),
                  AdapterOf(chunk.request), chunk.request->request, chunk.begin,
                  options_.head_chunk_elements, chunk.request->output);
    }
    begin += num_rows;
    if (!chunk.is_last()) continue;
    last_rows.push_back(begin - 1);
    last_adapters.push_back(AdapterOf(chunk.request));
  }
  PendingDraws draws;
  if (!last_rows.empty()) {
    const at::Tensor rows = at::tensor(last_rows, at::kLong).to(model_.device());
    const at::Tensor logits =
        model_.Logits(model_.FinalNorm(x.index_select(0, rows)), SegmentsOf(last_adapters));
    int64_t row = 0;
    for (const PrefillChunk& chunk : chunks) {
      if (!chunk.is_last()) continue;
      const at::Tensor next_logits = logits.select(0, row++);
      if (chunk.sample == nullptr) {
        chunk.request->next_logits = next_logits;
        chunk.request->next_logits_seq = chunk.request->inflight_seq;
      } else {
        draws.Add(chunk.sample, next_logits);
      }
      batch_.PrefillDone(chunk);
    }
  }
  StartSamples(draws);
  DrawAll(draws);
  return true;
}

void SamplingEngine::RunDecode() {
  std::vector<ActiveSample*> samples = batch_.NextDecode();
  PendingDraws draws;
  if (!samples.empty()) {
    GroupByAdapter(samples, [](const ActiveSample* sample) { return AdapterOf(sample->request); });
    PackedRowsBuilder builder;
    std::vector<CachedRows> cached;
    for (const ActiveSample* sample : samples) {
      in_pass_.push_back(sample->request->request.request_id);
      builder.BeginSequence(AdapterOf(sample->request));
      builder.AddRow(sample->tokens.back(), sample->kv.length - 1);
      cached.push_back({.kv = &sample->kv, .num_rows = 1});
    }
    const PackedRows rows = builder.Build(model_.device());
    CachedAttention attention(cache_, cached, model_.device());
    const at::Tensor x = RunLayers(model_, rows, attention);
    const at::Tensor logits = model_.Logits(model_.FinalNorm(x), rows.segments);  // [n, V]
    ++counters_.decode_passes;
    draws = {.samples = std::move(samples), .logits = {logits}};
  }
  StartSamples(draws);
  DrawAll(draws);
}

void SamplingEngine::StartSamples(PendingDraws& draws) {
  for (ActiveSample* sample : batch_.StartSamples()) {
    ActiveRequest* request = sample->request;
    in_pass_.push_back(request->request.request_id);
    draws.Add(sample, request->next_logits);
    if (sample->index + 1 == request->request.num_samples) request->next_logits.reset();
  }
}

void SamplingEngine::DrawAll(const PendingDraws& pending) {
  if (pending.samples.empty()) return;
  const at::Tensor logits =
      pending.logits.size() == 1 ? pending.logits[0] : at::cat(pending.logits);
  const auto num_rows = static_cast<int64_t>(pending.samples.size());
  const int64_t chunk = std::max<int64_t>(1, options_.head_chunk_elements / logits.size(1));
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t n = std::min(chunk, num_rows - begin);
    std::vector<Draw> draws;
    for (int64_t row = begin; row < begin + n; ++row) {
      ActiveSample& sample = *pending.samples[row];
      draws.push_back(
          {.params = &sample.request->request.params,
           .sample_index = sample.index,
           .position = sample.request->prompt_length() + static_cast<int64_t>(sample.tokens.size()),
           .top = sample.top ? &*sample.top : nullptr});
    }
    const DrawnTokens drawn = DrawTokens(logits.narrow(0, begin, n), draws);
    for (int64_t i = 0; i < n; ++i) {
      Accept(pending.samples[begin + i], drawn.tokens[i], drawn.logprobs[i]);
    }
  }
}

void SamplingEngine::Accept(ActiveSample* sample, int32_t token, float logprob) {
  ++counters_.generated_tokens;
  NoteWeights(*sample);
  sample->tokens.push_back(token);
  sample->logprobs.push_back(logprob);
  ActiveRequest* request = sample->request;
  const bool is_stopped = sample->stop.Append(token);
  const bool is_full =
      static_cast<int64_t>(sample->tokens.size()) >= request->request.params.max_tokens;
  if (request->request.streamed) {
    streamed_.push_back({.request_id = request->request.request_id,
                         .sample_index = sample->index,
                         .token_index = static_cast<int64_t>(sample->tokens.size()) - 1,
                         .token = token,
                         .logprob = logprob,
                         .finished = is_stopped || is_full,
                         .stopped = is_stopped});
  }
  if (!is_stopped && !is_full) return;
  batch_.Finish(sample);
  request->output.sequences[sample->index] = {.stopped = is_stopped,
                                              .tokens = std::move(sample->tokens),
                                              .logprobs = std::move(sample->logprobs),
                                              .weights_runs = std::move(sample->weights_runs),
                                              .topk_logprobs = std::move(sample->top)};
  if (++request->num_finished == request->request.num_samples) Complete(request);
}

void SamplingEngine::Complete(ActiveRequest* request) {
  const auto is_finite = [](const SampledSequence& sequence) {
    return std::none_of(sequence.logprobs.begin(), sequence.logprobs.end(),
                        [](float logprob) { return std::isnan(logprob); });
  };
  const auto& sequences = request->output.sequences;
  if (!std::all_of(sequences.begin(), sequences.end(), is_finite)) {
    Fail(request, absl::FailedPreconditionError("the adapter's logits are not finite"));
    return;
  }
  finished_.push_back({request->request.request_id, std::move(request->output)});
  Cancel(finished_.back().request_id);
}

void SamplingEngine::Fail(ActiveRequest* request, const absl::Status& status) {
  finished_.push_back({request->request.request_id, status});
  Cancel(finished_.back().request_id);
}

void SamplingEngine::FailTooLarge() {
  const std::vector<ActiveRequest*> too_large = batch_.TakeTooLarge();
  for (ActiveRequest* request : too_large) {
    Fail(request, absl::ResourceExhaustedError(
                      absl::StrFormat("the sequence does not fit the kv cache of %d tokens",
                                      cache_.num_blocks() * KvCache::kBlockTokens)));
  }
}

void SamplingEngine::AbandonPass(const absl::Status& status) {
  for (const std::string& request_id : std::exchange(in_pass_, {})) {
    const auto found = requests_.find(request_id);
    if (found != requests_.end()) Fail(found->second.get(), status);
  }
}

std::vector<FinishedSample> SamplingEngine::TakeFinished() { return std::exchange(finished_, {}); }

std::vector<SampledToken> SamplingEngine::TakeStreamed() { return std::exchange(streamed_, {}); }

}  // namespace lathe::worker

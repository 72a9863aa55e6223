#include "services/worker/sampling/sampling_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/sampling/attention/cached_attention.h"
#include "services/worker/sampling/packed_rows_builder.h"
#include "services/worker/sampling/prompt_scores.h"
#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/sampling/sampler/vocabulary_shard.h"

namespace lathe::worker {
namespace {

const AdapterWeights* AdapterOf(const ActiveRequest* request) { return request->adapter.get(); }

// Records which weights give the sample's next token. The first token is drawn from the prompt's
// logits, which may come from older weights.
void RecordWeights(ActiveSample& sample) {
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
      cache_(model.part().local, options.kv_cache_bytes, model.attention_arithmetic()),
      graphs_(options.decode_graphs
                  ? DecodeGraphs::Create(model, cache_, options.max_running_samples)
                  : nullptr),
      batch_(cache_, counters_,
             {.max_running_samples = options.max_running_samples,
              .max_prefill_tokens = options.max_prefill_tokens,
              .max_prefill_tokens_beside_decode = options.max_prefill_tokens_beside_decode}) {}

absl::Status SamplingEngine::Check(const SampleRequest& request) const {
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
  return absl::OkStatus();
}

absl::Status SamplingEngine::Add(SampleRequest request,
                                 std::shared_ptr<const AdapterWeights> adapter,
                                 int64_t inflight_seq) {
  RETURN_IF_ERROR(Check(request));
  auto active = std::make_unique<ActiveRequest>();
  active->request = std::move(request);
  active->adapter = std::move(adapter);
  active->inflight_seq = inflight_seq;
  active->scope = ScopeOf(*active);
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
  if (active->request.streamed) streams_.insert(id);
  requests_.emplace(std::move(id), std::move(active));
  return absl::OkStatus();
}

void SamplingEngine::MoveVersion(const std::string& version_id,
                                 std::shared_ptr<const AdapterWeights> adapter,
                                 int64_t inflight_seq) {
  DropVersion(version_id);
  for (const auto& [id, request] : requests_) {
    if (request->request.version_id != version_id) continue;
    request->adapter = adapter;
    request->inflight_seq = inflight_seq;
    // A request that has begun keeps keys and values of the old weights, so they are not shared.
    const bool has_begun = !request->prompt_kv.blocks.empty() || request->num_started > 0;
    if (!has_begun) request->scope = ScopeOf(*request);
  }
}

void SamplingEngine::DropVersion(const std::string& version_id) {
  cache_.DropPrefixes(version_id);
  for (const auto& [id, request] : requests_) {
    if (request->request.version_id == version_id) request->scope.reset();
  }
}

std::optional<PrefixScope> SamplingEngine::ScopeOf(const ActiveRequest& active) const {
  const SampleRequest& request = active.request;
  if (!options_.prefix_cache || request.tenant_id.empty()) return std::nullopt;
  return PrefixScope{.tenant_id = request.tenant_id,
                     .version_id = request.version_id,
                     .inflight_seq = active.inflight_seq};
}

void SamplingEngine::Cancel(const std::string& request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) return;
  batch_.Remove(found->second.get());
  requests_.erase(found);
}

void SamplingEngine::Stream(const std::string& request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) return;
  found->second->request.streamed = true;
  for (const auto& sample : found->second->samples) sample->num_streamed = 0;
  streams_.insert(request_id);
}

void SamplingEngine::Report(const ActiveRequest& request) {
  int64_t most = kMaxStreamedTokens;
  for (const auto& sample : request.samples) most -= Report(*sample, most);
}

int64_t SamplingEngine::Report(ActiveSample& sample, int64_t most) {
  const SampledSequence& output = sample.request->output.sequences[sample.index];
  const bool is_finished = !output.tokens.empty();
  const std::vector<int32_t>& tokens = is_finished ? output.tokens : sample.tokens;
  const std::vector<float>& logprobs = is_finished ? output.logprobs : sample.logprobs;
  const int64_t begin = sample.num_streamed;
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  sample.num_streamed = std::min(num_tokens, begin + most);
  for (int64_t i = begin; i < sample.num_streamed; ++i) {
    const bool is_last = is_finished && i + 1 == num_tokens;
    streamed_.push_back({.request_id = sample.request->request.request_id,
                         .sample_index = sample.index,
                         .token_index = i,
                         .token = tokens[i],
                         .logprob = logprobs[i],
                         .finished = is_last,
                         .stopped = is_last && output.stopped});
  }
  return sample.num_streamed - begin;
}

void SamplingEngine::RunPass() {
  PendingSamples inputs;
  std::vector<SequenceRows> pass = batch_.NextPass();
  std::vector<ActiveRequest*> prompts;
  if (!pass.empty()) prompts = Compute(std::move(pass), inputs);
  StartSamples(inputs);
  // A request that waits for rows keeps its own logits, and not those of the whole pass.
  for (ActiveRequest* const request : prompts) {
    if (request->next_logits.defined()) request->next_logits = request->next_logits.clone();
  }
  SampleAll(inputs);
  FailTooLarge();
  in_pass_.clear();
}

std::vector<ActiveRequest*> SamplingEngine::Compute(std::vector<SequenceRows> pass,
                                                    PendingSamples& inputs) {
  GroupByAdapter(pass, [](const SequenceRows& rows) { return AdapterOf(rows.request); });
  for (const SequenceRows& rows : pass) in_pass_.push_back(rows.request->request.request_id);
  // [n, V], for the rows that are last in their sequences; undefined if there are none
  at::Tensor logits = LastLogitsByGraph(pass);
  if (!logits.defined()) logits = LastLogits(pass);
  RecordRows(pass);
  int64_t next_row = 0;
  std::vector<ActiveRequest*> prompts;
  for (const SequenceRows& rows : pass) {
    batch_.Computed(rows);
    if (!rows.is_last()) continue;
    const at::Tensor row = logits.select(0, next_row++);
    if (rows.sample != nullptr) {
      inputs.Add(rows.sample, row);
      continue;
    }
    prompts.push_back(rows.request);
    rows.request->next_logits = row;
    rows.request->next_logits_seq = rows.request->inflight_seq;
  }
  if (prompts.empty() && logits.defined()) inputs.logits = {logits};  // avoids a copy
  return prompts;
}

// LastLogits by a CUDA graph. Returns an undefined tensor if no graph fits: each sequence must be a
// sample that lacks one row.
at::Tensor SamplingEngine::LastLogitsByGraph(const std::vector<SequenceRows>& pass) {
  if (graphs_ == nullptr) return {};
  std::vector<DecodeRow> decode;
  for (const SequenceRows& rows : pass) {
    if (rows.sample == nullptr || rows.num_rows() != 1 || !rows.is_last()) return {};
    decode.push_back(
        {.kv = &rows.kv(), .token = rows.token(rows.begin), .adapter = AdapterOf(rows.request)});
  }
  return graphs_->Run(decode);
}

// Runs the pass and scores prompts. Returns logits [n, V] of the rows that are last in their
// sequences, undefined if there are none.
at::Tensor SamplingEngine::LastLogits(const std::vector<SequenceRows>& pass) {
  PackedRowsBuilder builder;
  std::vector<CachedRows> cached;
  std::vector<int64_t> last_rows;
  std::vector<const AdapterWeights*> last_adapters;
  for (const SequenceRows& rows : pass) {
    builder.BeginSequence(AdapterOf(rows.request));
    for (int64_t position = rows.begin; position < rows.end; ++position) {
      builder.AddRow(rows.token(position), position);
    }
    cached.push_back({.kv = &rows.kv(), .num_rows = rows.num_rows()});
    if (!rows.is_last()) continue;
    last_rows.push_back(builder.num_rows() - 1);
    last_adapters.push_back(AdapterOf(rows.request));
  }
  CachedAttention attention(cache_, cached, model_.device());
  const at::Tensor x = RunLayers(model_, builder.Build(model_.device()), attention);
  ScoreRows(pass, x);
  if (last_rows.empty()) return {};
  const bool is_all = static_cast<int64_t>(last_rows.size()) == x.size(0);
  const at::Tensor h =
      is_all ? x : x.index_select(0, at::tensor(last_rows, at::kLong).to(model_.device()));
  return model_.Logits(model_.FinalNorm(h), SegmentsOf(last_adapters));
}

void SamplingEngine::RecordRows(const std::vector<SequenceRows>& pass) {
  int64_t num_prefill_rows = 0;
  for (const SequenceRows& rows : pass) num_prefill_rows += rows.is_running ? 0 : rows.num_rows();
  counters_.prefill_tokens += num_prefill_rows;
  counters_.prefill_passes += num_prefill_rows > 0 ? 1 : 0;
  const auto is_running = [](const SequenceRows& rows) { return rows.is_running; };
  counters_.decode_passes += std::any_of(pass.begin(), pass.end(), is_running) ? 1 : 0;
}

// Scores prompt rows. x [T, H] holds the rows of `pass` in order, before the final norm.
void SamplingEngine::ScoreRows(const std::vector<SequenceRows>& pass, const at::Tensor& x) {
  int64_t begin = 0;
  for (const SequenceRows& rows : pass) {
    const int64_t first = std::exchange(begin, begin + rows.num_rows());
    if (rows.sample != nullptr || !WantsPromptScores(rows.request->request)) continue;
    // A prompt's last row predicts the first generated token, which is not scored here.
    const int64_t num_scored = rows.is_last() ? rows.num_rows() - 1 : rows.num_rows();
    if (num_scored == 0) continue;
    ScorePrompt(model_, model_.FinalNorm(x.narrow(0, first, num_scored)), AdapterOf(rows.request),
                rows.request->request, rows.begin, options_.head_chunk_elements,
                rows.request->output);
  }
}

void SamplingEngine::StartSamples(PendingSamples& inputs) {
  for (ActiveSample* sample : batch_.StartSamples()) {
    ActiveRequest* request = sample->request;
    in_pass_.push_back(request->request.request_id);
    inputs.Add(sample, request->next_logits);
    if (sample->index + 1 == request->request.num_samples) request->next_logits.reset();
  }
}

void SamplingEngine::SampleAll(const PendingSamples& pending) {
  if (pending.samples.empty()) return;
  const at::Tensor logits =
      pending.logits.size() == 1 ? pending.logits[0] : at::cat(pending.logits);
  const auto num_rows = static_cast<int64_t>(pending.samples.size());
  // Chunks are sized by the whole vocabulary, because some draws gather whole rows on each rank.
  const VocabularyShard vocabulary = VocabularyOf(model_);
  const int64_t chunk = std::max<int64_t>(1, options_.head_chunk_elements / vocabulary.whole_size);
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t n = std::min(chunk, num_rows - begin);
    std::vector<SampleInput> inputs;
    for (int64_t row = begin; row < begin + n; ++row) {
      ActiveSample& sample = *pending.samples[row];
      inputs.push_back(
          {.params = &sample.request->request.params,
           .sample_index = sample.index,
           .position = sample.request->prompt_length() + static_cast<int64_t>(sample.tokens.size()),
           .top = sample.top ? &*sample.top : nullptr});
    }
    const TokenSamples sampled = SampleTokens(logits.narrow(0, begin, n), inputs, vocabulary);
    for (int64_t i = 0; i < n; ++i) {
      Accept(pending.samples[begin + i], sampled.tokens[i], sampled.logprobs[i]);
    }
  }
}

void SamplingEngine::Accept(ActiveSample* sample, int32_t token, float logprob) {
  ++counters_.generated_tokens;
  RecordWeights(*sample);
  sample->tokens.push_back(token);
  sample->logprobs.push_back(logprob);
  ActiveRequest* request = sample->request;
  const bool is_stopped = sample->stop.Append(token);
  const bool is_full =
      static_cast<int64_t>(sample->tokens.size()) >= request->request.params.max_tokens;
  if (!is_stopped && !is_full) return;
  batch_.Finish(sample);
  request->output.sequences[sample->index] = {.stopped = is_stopped,
                                              .tokens = std::move(sample->tokens),
                                              .logprobs = std::move(sample->logprobs),
                                              .weights_runs = std::move(sample->weights_runs),
                                              .topk_logprobs = std::move(sample->top)};
  if (++request->num_finished == request->request.num_samples) {
    Complete(request);
  } else {
    ended_.insert(request->request.request_id);
  }
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
  if (request->request.streamed) Report(*request);
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
                      absl::StrFormat("%d prompt tokens + max_tokens %d exceed the kv cache of %d "
                                      "tokens",
                                      request->prompt_length(), request->request.params.max_tokens,
                                      cache_.num_blocks() * KvCache::kBlockTokens)));
  }
}

void SamplingEngine::AbandonPass(const absl::Status& status) {
  for (const std::string& request_id : std::exchange(in_pass_, {})) {
    const auto found = requests_.find(request_id);
    if (found != requests_.end()) Fail(found->second.get(), status);
  }
}

SamplingCounters SamplingEngine::counters() const {
  SamplingCounters counters = counters_;
  counters.kv_evictions = cache_.num_evictions();
  return counters;
}

KvUsage SamplingEngine::kv_usage() const {
  return {.num_blocks = cache_.num_blocks(),
          .num_used = cache_.num_blocks() - cache_.num_free_blocks(),
          .num_idle = cache_.num_idle_blocks()};
}

std::vector<FinishedSample> SamplingEngine::TakeFinished() { return std::exchange(finished_, {}); }

std::vector<EndedSequences> SamplingEngine::TakeEnded() {
  std::vector<EndedSequences> ended;
  for (const std::string& id : std::exchange(ended_, {})) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) ended.push_back({id, found->second->num_finished});
  }
  return ended;
}

std::vector<SampledToken> SamplingEngine::TakeStreamed() {
  std::erase_if(streams_, [this](const std::string& id) { return !requests_.contains(id); });
  for (const std::string& id : streams_) Report(*requests_.at(id));
  return std::exchange(streamed_, {});
}

}  // namespace lathe::worker

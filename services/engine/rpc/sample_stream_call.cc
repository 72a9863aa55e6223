#include "services/engine/rpc/sample_stream_call.h"

#include <cstddef>
#include <cstring>

#include "libs/common/rpc/status.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

// Tokens and logprobs are serialized as four bytes each.
constexpr size_t kValueBytes = 4;

template <typename Value>
void AppendValue(Value value, std::string& out) {
  static_assert(sizeof(Value) == kValueBytes);
  char bytes[kValueBytes];
  std::memcpy(bytes, &value, kValueBytes);
  out.append(bytes, kValueBytes);
}

v1::SampleStop StopOf(bool stopped) {
  return stopped ? v1::SAMPLE_STOP_STOPPED : v1::SAMPLE_STOP_LENGTH;
}

}  // namespace

SampleStreamCall* SampleStreamCall::Start(Runtime& runtime, SubmissionBuilder& builder,
                                          const absl::StatusOr<Caller>& caller,
                                          const v1::SampleRequest& request,
                                          const SpanContext& span) {
  std::shared_ptr<SampleStreamCall> call(new SampleStreamCall(runtime));
  call->self_ = call;
  if (!caller.ok()) {
    call->End(caller.status());
    return call.get();
  }
  call->tenant_id_ = caller->tenant_id;
  absl::StatusOr<Submit> submit = builder.Build(caller->tenant_id, request);
  if (!submit.ok()) {
    call->End(submit.status());
    return call.get();
  }
  runtime.Call(
      *std::move(submit), [call](const Answer& answer) { call->OnAnswer(answer); }, span);
  return call.get();
}

// Runs before the request is sent to a worker, so that the command asks it to report tokens.
void SampleStreamCall::OnAnswer(const Answer& answer) {
  if (answer.error) return End(ToStatus(*answer.error));
  const uint64_t stream_id =
      runtime_.streams().Add(answer.id, [weak = weak_from_this()](const StreamedToken& token) {
        if (const std::shared_ptr<SampleStreamCall> call = weak.lock()) call->OnToken(token);
      });
  bool has_left = false;
  {
    absl::MutexLock lock(&mu_);
    request_id_ = answer.id;
    stream_id_ = stream_id;
    samples_.resize(answer.sample_sequence_ids.size());
    has_left = ended_;
    if (!has_left) {
      v1::SampleAccepted* const accepted = message_.mutable_accepted();
      accepted->set_request_id(answer.id);
      accepted->mutable_sample_sequence_ids()->Assign(answer.sample_sequence_ids.begin(),
                                                      answer.sample_sequence_ids.end());
      is_writing_ = true;
      StartWrite(&message_);
    }
  }
  if (has_left) return Abandon();
  // A worker may run the sample already: for an earlier stream or engine, or without a stream.
  runtime_.ShowTokens(answer.id);
}

void SampleStreamCall::OnToken(const StreamedToken& token) {
  absl::MutexLock lock(&mu_);
  const bool is_known =
      token.sample_index >= 0 && token.sample_index < static_cast<int64_t>(samples_.size());
  if (!is_known || ended_ || has_result_) return;
  Unsent& sample = samples_[token.sample_index];
  // After a gap only the result can continue. A worker that starts again repeats earlier tokens.
  if (token.token_index != sample.next_index) return;
  AppendValue(token.token, sample.tokens);
  AppendValue(token.logprob, sample.logprobs);
  ++sample.next_index;
  if (token.finished) sample.stop = StopOf(token.stopped);
  WriteNextLocked();
}

void SampleStreamCall::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the client left"));
  bool is_first = false;
  {
    absl::MutexLock lock(&mu_);
    is_writing_ = false;
    is_first = !std::exchange(waits_for_result_, true);
    WriteNextLocked();
  }
  if (is_first) WaitForResult();
}

// Runs on gRPC's thread, because an existing result may have to be read from the store.
void SampleStreamCall::WaitForResult() {
  std::string request_id;
  {
    absl::MutexLock lock(&mu_);
    request_id = request_id_;
  }
  const absl::StatusOr<ResultHub::Waiting> waiting =
      runtime_.hub().Wait(tenant_id_, request_id, [weak = weak_from_this()](WaitEnd end) {
        const std::shared_ptr<SampleStreamCall> call = weak.lock();
        if (!call) return;
        if (end == WaitEnd::kReleased) {
          {
            absl::MutexLock lock(&call->mu_);
            call->keeps_request_ = true;
          }
          call->End(absl::UnavailableError("the engine is stopping"));
        } else {
          call->Conclude();
        }
      });
  if (waiting.status().code() == absl::StatusCode::kAlreadyExists) return Conclude();
  if (!waiting.ok()) {  // the engine stops
    {
      absl::MutexLock lock(&mu_);
      keeps_request_ = true;
    }
    return End(waiting.status());
  }
  absl::MutexLock lock(&mu_);
  wait_id_ = waiting->wait_id;
}

void SampleStreamCall::Conclude() {
  std::string request_id;
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    keeps_request_ = true;
    request_id = request_id_;
  }
  const absl::StatusOr<SharedBytes> bytes = runtime_.hub().Find(tenant_id_, request_id);
  if (!bytes.ok()) return End(bytes.status());
  v1::OperationResult result;
  if (*bytes == nullptr || !result.ParseFromString(**bytes)) {
    return End(absl::DataLossError("a stored result cannot be read"));
  }
  {
    absl::MutexLock lock(&mu_);
    has_found_result_ = true;
  }
  const absl::Status status = AddResult(result);
  if (!status.ok()) End(status);
}

absl::Status SampleStreamCall::AddResult(const v1::OperationResult& result) {
  if (result.has_error()) return FromErrorProto(result.error());
  absl::MutexLock lock(&mu_);
  const v1::SampleResult& sample_result = result.sample();
  if (sample_result.sequences_size() != static_cast<int>(samples_.size())) {
    return absl::DataLossError("a stored result has another number of samples");
  }
  for (size_t i = 0; i < samples_.size(); ++i) {
    const v1::SampledSequence& sequence = sample_result.sequences(static_cast<int>(i));
    Unsent& sample = samples_[i];
    const size_t begin = static_cast<size_t>(sample.next_index) * kValueBytes;
    if (begin < sequence.tokens().size()) {
      sample.tokens.append(sequence.tokens(), begin);
      sample.logprobs.append(sequence.logprobs(), begin);
      sample.next_index = static_cast<int64_t>(sequence.tokens().size() / kValueBytes);
    }
    sample.stop = StopOf(sequence.stopped());
  }
  result_end_.set_prompt_logprobs(sample_result.prompt_logprobs());
  if (sample_result.has_topk_prompt_logprobs()) {
    *result_end_.mutable_topk_prompt_logprobs() = sample_result.topk_prompt_logprobs();
  }
  if (sample_result.has_target_prompt_logprobs()) {
    *result_end_.mutable_target_prompt_logprobs() = sample_result.target_prompt_logprobs();
  }
  if (sample_result.has_prompt_alt_tokens()) {
    *result_end_.mutable_prompt_alt_tokens() = sample_result.prompt_alt_tokens();
  }
  for (const v1::SampledSequence& sequence : sample_result.sequences()) {
    if (!sequence.has_topk_logprobs()) break;
    *result_end_.add_topk_sample_logprobs() = sequence.topk_logprobs();
  }
  result_end_.set_prompt_cache_hit_tokens(sample_result.prompt_cache_hit_tokens());
  has_result_ = true;
  WriteNextLocked();
  return absl::OkStatus();
}

void SampleStreamCall::WriteNextLocked() {
  if (is_writing_ || ended_) return;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const Unsent& sample = samples_[i];
    const bool has_updates =
        !sample.is_ended && (!sample.tokens.empty() || sample.stop != v1::SAMPLE_STOP_UNSPECIFIED);
    if (!has_updates) continue;
    TakeTokensLocked(static_cast<int64_t>(i));
    is_writing_ = true;
    StartWrite(&message_);
    return;
  }
  if (!has_result_) return;
  *message_.mutable_end() = std::move(result_end_);
  ended_ = true;
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

void SampleStreamCall::TakeTokensLocked(int64_t sample_index) {
  Unsent& sample = samples_[sample_index];
  const auto num_tokens = static_cast<int64_t>(sample.tokens.size() / kValueBytes);
  v1::SampleTokens* const tokens = message_.mutable_tokens();
  tokens->set_sample_index(sample_index);
  tokens->set_token_index(sample.next_index - num_tokens);
  tokens->set_tokens(std::exchange(sample.tokens, {}));
  tokens->set_logprobs(std::exchange(sample.logprobs, {}));
  tokens->set_stop(sample.stop);
  sample.is_ended = sample.stop != v1::SAMPLE_STOP_UNSPECIFIED;
}

void SampleStreamCall::OnCancel() {
  {
    absl::MutexLock lock(&mu_);
    was_cancelled_ = true;
  }
  End(absl::CancelledError("the client left"));
}

void SampleStreamCall::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  Finish(ToGrpcStatus(status));
}

void SampleStreamCall::Abandon() {
  std::string request_id;
  uint64_t stream_id = 0;
  uint64_t wait_id = 0;
  bool keeps_request = false;
  {
    absl::MutexLock lock(&mu_);
    request_id = request_id_;
    stream_id = std::exchange(stream_id_, 0);
    wait_id = std::exchange(wait_id_, 0);
    keeps_request = keeps_request_;
  }
  if (wait_id != 0) runtime_.hub().Cancel(request_id, wait_id);
  if (stream_id == 0 || !runtime_.streams().Remove(request_id, stream_id)) return;
  if (!keeps_request)
    runtime_.Post(CancelSample{.tenant_id = tenant_id_, .request_id = request_id});
}

void SampleStreamCall::OnDone() {
  Abandon();
  std::string delivered_id;
  {
    absl::MutexLock lock(&mu_);
    if (has_found_result_ && !was_cancelled_) delivered_id = request_id_;
  }
  if (!delivered_id.empty()) runtime_.RecordDelivered(tenant_id_, delivered_id);
  self_.reset();
}

}  // namespace lathe::engine

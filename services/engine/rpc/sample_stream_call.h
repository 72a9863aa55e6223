// One SampleStream call: submits a sample and streams its tokens to the caller.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/streaming.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/submissions.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Tokens that arrive during a write are collected and sent as one message. A slow caller therefore
// gets larger messages, and the buffer never exceeds the result. Tokens that the worker did not
// report are taken from the result. Keeps itself alive until gRPC is done with it.
class SampleStreamCall final : public grpc::ServerWriteReactor<v1::SampleStreamResponse>,
                               public std::enable_shared_from_this<SampleStreamCall> {
 public:
  // `runtime` must outlive the call.
  static SampleStreamCall* Start(Runtime& runtime, SubmissionBuilder& builder,
                                 const absl::StatusOr<Caller>& caller,
                                 const v1::SampleRequest& request, const SpanContext& span = {});

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // State of one sample: its unwritten tokens and the next expected token.
  struct Unsent {
    std::string tokens;
    std::string logprobs;
    int64_t next_index = 0;  // of the token after those here
    v1::SampleStop stop = v1::SAMPLE_STOP_UNSPECIFIED;
    bool is_ended = false;  // true if the message with `stop` was written
  };

  explicit SampleStreamCall(Runtime& runtime) : runtime_(runtime) {}

  void OnAnswer(const Answer& answer);
  void OnToken(const StreamedToken& token);
  void WaitForResult();
  // Adds the parts of the result that the stream does not have yet.
  void Conclude();
  absl::Status AddResult(const v1::OperationResult& result);
  // Starts the next write, unless one is in progress.
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeTokensLocked(int64_t sample_index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const absl::Status& status);
  // Leaves the sample to other streams, or cancels it if there are none.
  void Abandon();

  Runtime& runtime_;
  std::string tenant_id_;
  std::shared_ptr<SampleStreamCall> self_;

  absl::Mutex mu_;
  std::string request_id_ ABSL_GUARDED_BY(mu_);
  uint64_t stream_id_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t wait_id_ ABSL_GUARDED_BY(mu_) = 0;
  v1::SampleStreamResponse message_ ABSL_GUARDED_BY(mu_);  // being written
  std::vector<Unsent> samples_ ABSL_GUARDED_BY(mu_);
  v1::SampleEnd result_end_ ABSL_GUARDED_BY(mu_);
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool waits_for_result_ ABSL_GUARDED_BY(mu_) = false;
  bool has_result_ ABSL_GUARDED_BY(mu_) = false;
  bool has_found_result_ ABSL_GUARDED_BY(mu_) = false;  // it follows, or its error
  bool was_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // True if the request continues without this stream: it is complete, or the engine stops.
  bool keeps_request_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine

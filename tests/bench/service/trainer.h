// A client that trains its own model step by step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/bench/service/http_session.h"

namespace lathe::bench {

// `base_model` is the served name. Not thread-safe.
class Trainer {
 public:
  Trainer(const asio::any_io_executor& executor, const Target& target, std::string base_model)
      : session_(executor, target), base_model_(std::move(base_model)) {}

  // Creates a session and a model in it. Call it before the other functions.
  asio::awaitable<void> Create();

  // Submits one optim_step and returns its request id. Without accumulated gradients it is a no-op
  // for the worker.
  asio::awaitable<std::string> SubmitStep();
  // Submits a forward_backward of one datum and returns its request id.
  asio::awaitable<std::string> SubmitDatum(int64_t num_tokens);
  // Submits a forward_backward and returns its request id. `body` is a serialized
  // tinker_public.ForwardBackwardRequest; this client's model and next seq override those in it.
  asio::awaitable<std::string> SubmitBody(std::string_view body);
  // Skips `count` seqs.
  void Skip(int64_t count) { seq_id_ += count; }

  // Polls until the result is available. Throws if it is an error.
  asio::awaitable<void> Await(const std::string& request_id, std::string_view accept = kJson);
  // Polls once. Returns false if the result is not available yet. Throws if it is an error.
  asio::awaitable<bool> Poll(const std::string& request_id, std::string_view accept = kJson);

  // Number of requests that it sent again, as the service was not ready for them.
  int64_t num_repeats() const { return session_.num_repeats(); }
  const std::string& model_id() const { return model_id_; }

 private:
  asio::awaitable<std::string> Submit(std::string_view path, std::string_view body,
                                      std::string_view content_type = kJson);

  HttpSession session_;
  const std::string base_model_;
  std::string model_id_;
  int64_t seq_id_ = 0;  // the last one used
};

}  // namespace lathe::bench

// One client that trains one model of its own, step by step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/bench/service/http_session.h"

namespace lathe::bench {

// Not thread-safe; `base_model` is the served name.
class Trainer {
 public:
  Trainer(asio::any_io_executor executor, const Target& target, std::string base_model)
      : session_(std::move(executor), target), base_model_(std::move(base_model)) {}

  // A session and a model in it; what follows needs them.
  asio::awaitable<void> Create();

  // Submits one optim_step; its request id. Nothing is accumulated, so a worker does nothing.
  asio::awaitable<std::string> SubmitStep();
  // One forward_backward of one datum.
  asio::awaitable<std::string> SubmitDatum(int64_t num_tokens);
  // A forward_backward whose serialized tinker_public.ForwardBackwardRequest lacks only the names
  // of model and seq.
  asio::awaitable<std::string> SubmitBody(std::string_view body);
  // Leaves out `count` seqs.
  void Skip(int64_t count) { seq_id_ += count; }

  // Polls until the result is there. Throws when it is an error.
  asio::awaitable<void> Await(const std::string& request_id, std::string_view accept = kJson);
  // One poll; false: not there yet.
  asio::awaitable<bool> Poll(const std::string& request_id, std::string_view accept = kJson);

  const std::string& model_id() const { return model_id_; }

 private:
  asio::awaitable<std::string> Submit(std::string_view path, std::string_view body,
                                      std::string_view content_type = kJson);

  HttpSession session_;
  const std::string base_model_;
  std::string model_id_;
  int64_t seq_id_ = 0;  // the last one
};

}  // namespace lathe::bench

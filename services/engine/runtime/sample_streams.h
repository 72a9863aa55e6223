// Streams the tokens of running samples to their readers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lathe::engine {

// One token, as the worker reported it.
struct StreamedToken {
  std::string request_id;
  int64_t sample_index = 0;
  int64_t token_index = 0;  // counted from the end of the prompt
  int32_t token = 0;
  float logprob = 0;
  bool finished = false;  // true for the sample's last token
  bool stopped = false;   // true for a last token that is a stop, not max_tokens
};

// Forwards tokens and stores none: a reader finds the missed ones in the result. Thread-safe.
// Callbacks run without locks, on the thread that pushes, and must not block. A callback may still
// run shortly after its Remove.
class SampleStreams {
 public:
  using Callback = std::function<void(const StreamedToken&)>;

  // Returns the stream's id, for Remove.
  uint64_t Add(const std::string& request_id, Callback callback);
  // Returns true if this was the last stream of the request.
  bool Remove(const std::string& request_id, uint64_t stream_id);

  // Returns true if the worker should report the request's tokens.
  bool IsWanted(const std::string& request_id);
  std::vector<std::string> WantedIds();
  void Push(const std::vector<StreamedToken>& tokens);

 private:
  absl::Mutex mu_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  // Callbacks by request id, then by stream id.
  std::map<std::string, std::map<uint64_t, Callback>> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine

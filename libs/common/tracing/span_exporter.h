// Sends spans to a collector over OTLP/HTTP.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/tracing/otlp_json.h"

namespace lathe {

// Owns one thread, which encodes and sends batches. A collector that is away, slow or refuses costs
// the callers of Record nothing: the spans that find the queue full are dropped and counted.
class SpanExporter {
 public:
  struct Options {
    std::string url;                   // of the collector's path for traces
    std::vector<std::string> headers;  // "Name: value"
    SpanResource resource;
    size_t max_waiting = 8192;
    size_t max_batch = 1024;
    // Longest time for which a span waits for others of its batch.
    absl::Duration period = absl::Seconds(2);
    absl::Duration call_timeout = absl::Seconds(5);
    // Pause after a failed attempt. It doubles each time.
    absl::Duration first_pause = absl::Seconds(1);
    absl::Duration longest_pause = absl::Seconds(30);
    // Time after which a batch that cannot be sent is dropped.
    absl::Duration batch_patience = absl::Minutes(1);
    // Time for the spans that still wait at the end. The destructor may take a second more.
    absl::Duration stop_patience = absl::Seconds(2);
  };

  struct Counts {
    int64_t num_sent = 0;
    int64_t num_dropped = 0;
  };

  explicit SpanExporter(Options options);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Thread-safe. Never waits for the collector.
  void Record(Span span);
  Counts counts() const { return {num_sent_, num_dropped_}; }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void Run();
  // Waits for a batch. Empty: the exporter stops, or no span came within the period.
  std::vector<Span> TakeBatch();
  void Send(const std::vector<Span>& batch);
  // Returns true if the batch is done with, and counts it.
  bool TrySend(const std::string& body, int64_t num_spans);
  // Waits before the next attempt. Returns false if there is to be none.
  bool Pause(absl::Duration pause);
  bool IsStopping();
  bool IsOver();
  // Logs the first failure of several, and their end.
  void NoteOutcome(const std::string& error);

  const Options options_;
  std::atomic<int64_t> num_sent_ = 0;
  std::atomic<int64_t> num_dropped_ = 0;
  bool is_failing_ = false;  // the thread's only

  // Uses the standard library, because absl's waits use the wall clock.
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Span> waiting_;  // guarded by mu_, like the next two
  bool is_stopping_ = false;
  SteadyTime over_at_;
  NamedThread thread_;
};

}  // namespace lathe

#include "libs/common/tracing/span_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/http_client/http_call.h"
#include "libs/common/logging/logging.h"
#include "libs/common/time/clock.h"

namespace lathe {
namespace {

// Statuses that OTLP allows to repeat.
bool MayRepeat(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

SpanExporter::SpanExporter(Options options)
    : options_(std::move(options)), thread_("traces", [this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mu_);
    is_stopping_ = true;
    over_at_ =
        std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(options_.stop_patience);
  }
  changed_.notify_all();
  thread_.Join();
}

void SpanExporter::Record(Span span) {
  bool is_batch = false;
  {
    const std::lock_guard lock(mu_);
    if (waiting_.size() >= options_.max_waiting) {
      ++num_dropped_;
      return;
    }
    waiting_.push_back(std::move(span));
    is_batch = waiting_.size() == options_.max_batch;
  }
  if (is_batch) changed_.notify_one();
}

void SpanExporter::Run() {
  while (true) {
    const std::vector<Span> batch = TakeBatch();
    if (!batch.empty()) {
      Send(batch);
    } else if (IsStopping()) {
      return;
    }
  }
}

std::vector<Span> SpanExporter::TakeBatch() {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, absl::ToChronoMilliseconds(options_.period),
                    [this] { return is_stopping_ || waiting_.size() >= options_.max_batch; });
  const size_t num_spans = std::min(waiting_.size(), options_.max_batch);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(num_spans);
  std::vector<Span> batch(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

void SpanExporter::Send(const std::vector<Span>& batch) {
  const auto num_spans = static_cast<int64_t>(batch.size());
  const std::string body = ToOtlpJson(options_.resource, batch);
  const absl::Time began_at = SteadyNow();
  absl::Duration pause = options_.first_pause;
  while (!IsOver() && SteadyNow() - began_at < options_.batch_patience) {
    if (TrySend(body, num_spans)) return;
    if (!Pause(pause)) break;
    pause = std::min(2 * pause, options_.longest_pause);
  }
  num_dropped_ += num_spans;
}

bool SpanExporter::TrySend(const std::string& body, int64_t num_spans) {
  std::vector<std::string> headers = options_.headers;
  headers.push_back("Content-Type: application/json");
  headers.push_back("Expect:");  // the collector need not agree to a body first
  const absl::StatusOr<HttpAnswer> answer =
      HttpExchange({.url = options_.url,
                    .headers = std::move(headers),
                    .body = body,
                    .timeout = options_.call_timeout,
                    .is_cancelled = [this] { return IsOver(); }});
  if (!answer.ok()) {
    if (!IsOver()) NoteOutcome(std::string(answer.status().message()));
    return false;
  }
  if (answer->status / 100 == 2) {
    NoteOutcome("");
    num_sent_ += num_spans;
    return true;
  }
  NoteOutcome(absl::StrCat(options_.url, " answered ", answer->status));
  if (MayRepeat(answer->status)) return false;
  num_dropped_ += num_spans;
  return true;
}

bool SpanExporter::Pause(absl::Duration pause) {
  std::unique_lock lock(mu_);
  return !changed_.wait_for(lock, absl::ToChronoMilliseconds(pause),
                            [this] { return is_stopping_; });
}

bool SpanExporter::IsStopping() {
  const std::lock_guard lock(mu_);
  return is_stopping_;
}

bool SpanExporter::IsOver() {
  const std::lock_guard lock(mu_);
  return is_stopping_ && std::chrono::steady_clock::now() >= over_at_;
}

void SpanExporter::NoteOutcome(const std::string& error) {
  const bool has_failed = !error.empty();
  if (has_failed == is_failing_) return;
  is_failing_ = has_failed;
  if (has_failed) {
    LogWarn("traces cannot be sent; spans beyond the queue are dropped", {{"error", error}});
  } else {
    LogInfo("traces are sent again");
  }
}

}  // namespace lathe

#include "services/api-gateway/json/trace_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {
namespace {

// Stage of a request. It ends at time `until`; 0: that time is not recorded.
struct Stage {
  const char* name;
  int64_t (v1::RequestSpan::*until)() const;
};
constexpr Stage kStages[] = {{"accept", &v1::RequestSpan::durable_unix_nanos},
                             {"queued", &v1::RequestSpan::dispatched_unix_nanos},
                             {"on worker", &v1::RequestSpan::executed_unix_nanos},
                             {"commit", &v1::RequestSpan::completed_unix_nanos},
                             {"deliver", &v1::RequestSpan::delivered_unix_nanos}};

// Calls visit(name, begin, end) for each stage of the request, and returns the last end. A stage
// without a recorded end merges with the next stage that has one, and keeps its name: a request
// that fails while it is queued has no later stage. An end is never before its begin, even if the
// wall clock was set back.
template <typename Visit>
int64_t ForStages(const v1::RequestSpan& span, int64_t read_at, const Visit& visit) {
  int64_t now = span.accepted_unix_nanos();
  const char* name = nullptr;
  const auto end_at = [&](int64_t until) {
    until = std::max(now, until);
    visit(name, now, until);
    now = until;
    name = nullptr;
  };
  for (const Stage& stage : kStages) {
    if (name == nullptr) name = stage.name;
    if (const int64_t until = (span.*stage.until)(); until != 0) end_at(until);
  }
  // A delivered request is at the end of its last stage, even if no time of completion is known.
  if (span.completed_unix_nanos() == 0 && name != nullptr) end_at(read_at);
  return now;
}

int64_t NanosOf(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000'000 + time.nanos();
}

std::string ProcessName(const std::string& owner_id) {
  const char* const kind = owner_id.find(":train:") != owner_id.npos    ? "model "
                           : owner_id.find(":sample:") != owner_id.npos ? "sampler "
                                                                        : "session ";
  return kind + owner_id;
}

Json ArgsOf(const v1::RequestSpan& span) {
  Json args = {{"request_id", span.request_id()},
               {"seq_id", span.seq_id()},
               {"tokens", span.tokens()},
               {"outcome", span.outcome().empty() ? "unfinished" : span.outcome()}};
  if (!span.group().empty()) args["group"] = span.group();
  if (span.num_dispatches() > 1) args["num_dispatches"] = span.num_dispatches();
  if (span.num_batch_requests() > 0) args["num_batch_requests"] = span.num_batch_requests();
  return args;
}

google::protobuf::Timestamp TimeOf(int64_t nanos) {
  google::protobuf::Timestamp time;
  time.set_seconds(nanos / 1'000'000'000);
  time.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  return time;
}

// Writes the text directly: a document of JSON objects would take twenty times its size.
class TraceWriter {
 public:
  explicit TraceWriter(const v1::OpenTraceResponse& trace)
      : trace_(trace), read_at_(NanosOf(trace.read_at())), origin_(NanosOf(trace.read_at())) {
    for (const v1::RequestSpan& span : trace.spans()) {
      origin_ = std::min(origin_, span.accepted_unix_nanos());
    }
  }

  std::string Write() {
    out_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    if (trace_.has_complete_since()) AddMissingNote();
    for (const v1::RequestSpan& span : trace_.spans()) AddRequest(span);
    absl::StrAppend(&out_, "\n],\"otherData\":", JsonText(OtherData()), "}\n");
    return std::move(out_);
  }

 private:
  std::string MissingNote() const {
    return absl::StrCat("requests accepted up to ", TimestampText(trace_.complete_since()),
                        " may be missing: the engine keeps the last ones of each session, and "
                        "none over a restart");
  }

  Json OtherData() const {
    Json data = {{"session_id", trace_.session_id()},
                 {"begins_at", TimestampText(TimeOf(origin_))},
                 {"read_at", TimestampText(trace_.read_at())},
                 {"num_requests", trace_.spans_size()}};
    if (trace_.has_complete_since()) data["missing"] = MissingNote();
    return data;
  }

  // Writes the fields that all events have.
  void BeginEvent(char phase, int64_t process, std::string_view name) {
    absl::StrAppend(&out_, is_first_ ? "\n" : ",\n", "{\"ph\":\"", std::string(1, phase),
                    "\",\"pid\":", process, ",\"tid\":", process,
                    ",\"name\":", JsonText(Json(name)));
    is_first_ = false;
  }
  // Writes the time since `origin_` in microseconds, with nanosecond digits.
  void AddTime(int64_t nanos) {
    const int64_t since = std::max<int64_t>(0, nanos - origin_);
    absl::StrAppendFormat(&out_, ",\"ts\":%d.%03d", since / 1000, since % 1000);
  }
  void EndEvent(const Json& args) {
    if (!args.empty()) absl::StrAppend(&out_, ",\"args\":", JsonText(args));
    out_ += "}";
  }

  void AddMissingNote() {
    BeginEvent('i', 0, MissingNote());
    AddTime(origin_);
    out_ += ",\"s\":\"g\"";
    EndEvent(Json::object());
  }

  int64_t ProcessOf(const std::string& owner_id) {
    const auto [entry, is_new] =
        processes_.try_emplace(owner_id, static_cast<int64_t>(processes_.size()) + 1);
    if (is_new) {
      BeginEvent('M', entry->second, "process_name");
      EndEvent({{"name", ProcessName(owner_id)}});
    }
    return entry->second;
  }

  void AddEdge(char phase, int64_t process, std::string_view name, int64_t nanos,
               const Json& args = Json::object()) {
    BeginEvent(phase, process, name);
    absl::StrAppend(&out_, ",\"cat\":\"request\",\"id\":", request_);
    AddTime(nanos);
    EndEvent(args);
  }

  void AddRequest(const v1::RequestSpan& span) {
    const int64_t process = ProcessOf(span.owner_id());
    ++request_;
    AddEdge('b', process, span.operation(), span.accepted_unix_nanos(), ArgsOf(span));
    const int64_t end = ForStages(span, read_at_, [&](const char* name, int64_t from, int64_t to) {
      AddEdge('b', process, name, from);
      AddEdge('e', process, name, to);
    });
    AddEdge('e', process, span.operation(), end);
  }

  const v1::OpenTraceResponse& trace_;
  const int64_t read_at_;
  int64_t origin_;
  std::string out_;
  bool is_first_ = true;
  int64_t request_ = 0;
  std::map<std::string, int64_t> processes_;
};

}  // namespace

std::string TraceToJson(const v1::OpenTraceResponse& trace) { return TraceWriter(trace).Write(); }

Json RunRequestsToJson(const v1::ListRunRequestsResponse& requests) {
  Json list = Json::array();
  for (const v1::RequestSpan& span : requests.requests()) {
    Json stages = Json::array();
    const int64_t end = ForStages(
        span, NanosOf(requests.read_at()), [&](const char* name, int64_t from, int64_t to) {
          stages.push_back({{"name", name}, {"seconds", static_cast<double>(to - from) * 1e-9}});
        });
    Json request = ArgsOf(span);
    request["operation"] = span.operation();
    request["accepted_at"] = TimestampText(TimeOf(span.accepted_unix_nanos()));
    request["seconds"] = static_cast<double>(end - span.accepted_unix_nanos()) * 1e-9;
    request["stages"] = std::move(stages);
    list.push_back(std::move(request));
  }
  Json json = {{"requests", std::move(list)}, {"complete_since", nullptr}};
  if (requests.has_complete_since()) {
    json["complete_since"] = TimestampText(requests.complete_since());
  }
  return json;
}

}  // namespace lathe::gateway

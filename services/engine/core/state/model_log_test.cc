#include "services/engine/core/state/model_log.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

using Seqs = std::vector<int64_t>;

LogEntry Gradient(int64_t tokens = 10) { return LoggedGradient{"r", "b", 100, tokens}; }
LogEntry Step(Seqs window) { return LoggedStep{"r", {}, std::move(window)}; }

// Text such as "g1,2 s3 l4 p5 clear".
std::string WordsOf(const absl::StatusOr<std::vector<ReplayOp>>& path) {
  if (!path.ok()) return std::string(path.status().message());
  std::string words;
  for (const ReplayOp& op : *path) {
    if (!words.empty()) words += ' ';
    if (op.kind == ReplayOp::Kind::kClear) words += "clear";
    if (op.kind == ReplayOp::Kind::kGradients) words += 'g';
    if (op.kind == ReplayOp::Kind::kStep) words += 's';
    if (op.kind == ReplayOp::Kind::kLoad) words += 'l';
    if (op.kind == ReplayOp::Kind::kPublish) words += 'p';
    for (size_t i = 0; i < op.seqs.size(); ++i) {
      words += (i == 0 ? "" : ",") + std::to_string(op.seqs[i]);
    }
  }
  return words;
}

// A log with two steps, a dropped gradient (5), a publication and an open gradient.
ModelLog Example() {
  ModelLog log;
  for (const int64_t seq : {1, 2, 4, 5, 7, 10}) log.Add(seq, Gradient());
  log.Add(3, Step({1, 2}));
  log.Add(8, Step({7}));
  log.Add(9, LoggedPublication{"r", "v", false});
  return log;
}

TEST_CASE("ModelLog: the path runs the applied operations in order", "[core]") {
  const ModelLog log = Example();
  CHECK(WordsOf(log.Path({}, {8, {10}}, {9}, 100)) == "g1,2 s3 g7 s8 p9 g10");
  CHECK(WordsOf(log.Path({}, {8, {}}, {}, 100)) == "g1,2 s3 g7 s8");
  CHECK(WordsOf(log.Path({3, {}}, {8, {10}}, {}, 100)) == "g7 s8 g10");
  CHECK(WordsOf(log.Path({8, {10}}, {8, {10}}, {9}, 100)) == "p9");
}

TEST_CASE("ModelLog: an accumulator is continued, or cleared when it was dropped", "[core]") {
  const ModelLog log = Example();
  CHECK(WordsOf(log.Path({0, {1}}, {8, {10}}, {}, 100)) == "g2 s3 g7 s8 g10");
  CHECK(WordsOf(log.Path({3, {4, 5}}, {8, {10}}, {}, 100)) == "clear g7 s8 g10");
  CHECK(WordsOf(log.Path({8, {9}}, {8, {}}, {}, 100)) == "clear");
}

TEST_CASE("ModelLog: gradients are cut by tokens, never to nothing", "[core]") {
  ModelLog log;
  for (const int64_t seq : {1, 2, 3}) log.Add(seq, Gradient(40));
  log.Add(4, Gradient(1000));
  CHECK(WordsOf(log.Path({}, {0, {1, 2, 3, 4}}, {}, 100)) == "g1,2 g3 g4");
}

TEST_CASE("ModelLog: a load is a step of the path", "[core]") {
  ModelLog log = Example();
  log.Add(11, LoggedLoad{"r", "dir", true});
  log.Add(12, Gradient());
  CHECK(WordsOf(log.Path({8, {10}}, {11, {12}}, {}, 100)) == "clear l11 g12");
  CHECK(log.Loads() == Seqs{11});
}

TEST_CASE("ModelLog: an error names the missing operation", "[core]") {
  ModelLog log = Example();
  CHECK(WordsOf(log.Path({}, {9, {}}, {}, 100)) == "operation seq 9 is not kept any more");
  CHECK(WordsOf(log.Path({8, {}}, {8, {6}}, {}, 100)) ==
        "forward_backward seq 6 is not kept any more");
}

TEST_CASE("ModelLog: a hole between operations is named", "[core]") {
  ModelLog log;
  for (const int64_t seq : {1, 3, 5}) log.Add(seq, Gradient());
  log.Add(2, LoggedStep{"r", {}, {1}, 0});
  log.Add(6, LoggedStep{"r", {}, {5}, 4});  // the step at 4 is missing
  CHECK(WordsOf(log.Path({}, {6, {}}, {}, 100)) == "operation seq 4 is not kept any more");
  CHECK(WordsOf(log.Path({2, {}}, {6, {}}, {}, 100)) == "operation seq 4 is not kept any more");
  CHECK(WordsOf(log.Path({4, {}}, {6, {}}, {}, 100)) == "g5 s6");
  log.Add(4, LoggedStep{"r", {}, {3}, 2});
  CHECK(WordsOf(log.Path({}, {6, {}}, {}, 100)) == "g1 s2 g3 s4 g5 s6");
}

TEST_CASE("ModelLog: the outcome of a step is read as it was written, or as older rows have it",
          "[core]") {
  for (const LoggedStep& step : {LoggedStep{"r", {}, {4, 5}, 3}, LoggedStep{"r", {}, {}, 0}}) {
    LoggedStep read;
    DecodeStepOutcome(EncodeStepOutcome(step), read);
    CHECK(read.window == step.window);
    CHECK(read.after_seq == step.after_seq);
  }
  LoggedStep old;
  DecodeStepOutcome("4,5", old);
  CHECK(old.window == Seqs{4, 5});
  CHECK(old.after_seq == -1);
}

TEST_CASE("ModelLog: a cut takes the entries that no later path needs", "[core]") {
  ModelLog log = Example();
  CHECK(log.bytes() == 600);
  CHECK(log.CutBefore({3, {7}}).size() == 4);  // seqs 1, 2, 3 and 7
  CHECK(log.bytes() == 300);
  CHECK(WordsOf(log.Path({3, {7}}, {8, {10}}, {}, 100)) == "s8 g10");
  CHECK(log.CutAll().size() == 5);
  CHECK(log.bytes() == 0);
}

}  // namespace
}  // namespace lathe::engine

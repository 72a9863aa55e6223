#include "libs/common/protocol.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe {
namespace {

absl::Status Check(ProtocolRange engine, ProtocolRange worker) {
  return CheckProtocol({.name = "the engine", .version = "1.0.0", .range = engine},
                       {.name = "the worker", .version = "2.0.0", .range = worker});
}

TEST_CASE("Protocol: a release works with itself, the one before and the one after", "[common]") {
  CHECK(RangeOf(1) == ProtocolRange{1, 1});
  CHECK(RangeOf(5) == ProtocolRange{4, 5});
  for (const int64_t engine : {1, 2, 5}) {
    for (const int64_t worker : {engine - 1, engine, engine + 1}) {
      if (worker < 1) continue;
      INFO(engine << " and " << worker);
      CHECK(Check(RangeOf(engine), RangeOf(worker)).ok());
    }
  }
}

TEST_CASE("Protocol: two releases apart, the older is named with both numbers", "[common]") {
  const absl::Status old_worker = Check(RangeOf(5), RangeOf(3));
  CHECK(old_worker.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ErrorCode(old_worker) == "protocol_mismatch");
  CHECK(std::string(old_worker.message()) ==
        "protocol 3 of the worker (version 2.0.0) is outside 4..5 of the engine (version 1.0.0): "
        "upgrade the worker");
  CHECK(std::string(Check(RangeOf(3), RangeOf(5)).message()) ==
        "protocol 3 of the engine (version 1.0.0) is outside 4..5 of the worker (version 2.0.0): "
        "upgrade the engine");
}

TEST_CASE("Protocol: a process that names no protocol is too old", "[common]") {
  CHECK_THAT(std::string(Check(RangeOf(1), {}).message()),
             Catch::StartsWith("protocol 0 of the worker"));
}

TEST_CASE("Protocol: ranges survive as text, and other text is none", "[common]") {
  CHECK(ParseProtocolRange(ToText({4, 5})) == ProtocolRange{4, 5});
  for (const char* const text : {"", "4", "4..", "..5", "5..4", "a..b", "4..5..6"}) {
    INFO(text);
    CHECK_FALSE(ParseProtocolRange(text));
  }
}

}  // namespace
}  // namespace lathe

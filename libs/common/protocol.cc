#include "libs/common/protocol.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"

// Protocol of the release that this tree becomes.
#ifndef LATHE_PROTOCOL
#define LATHE_PROTOCOL 1
#endif

namespace lathe {
namespace {

// No release before the first protocol can work with it.
constexpr int64_t kFirstProtocol = 1;

}  // namespace

ProtocolRange RangeOf(int64_t protocol) {
  return {.oldest = std::max(kFirstProtocol, protocol - 1), .newest = protocol};
}

ProtocolRange OwnProtocol() { return RangeOf(LATHE_PROTOCOL); }

absl::Status CheckProtocol(const ProtocolPeer& one, const ProtocolPeer& other) {
  const bool is_one_older = one.range.newest < other.range.newest;
  const ProtocolPeer& older = is_one_older ? one : other;
  const ProtocolPeer& newer = is_one_older ? other : one;
  if (older.range.newest >= newer.range.oldest) return absl::OkStatus();
  return WithDetail(
      absl::FailedPreconditionError(absl::StrFormat(
          "protocol %d of %s (version %s) is outside %s of %s (version %s): upgrade %s",
          older.range.newest, older.name, older.version, ToText(newer.range), newer.name,
          newer.version, older.name)),
      "protocol_mismatch");
}

std::string ToText(const ProtocolRange& range) {
  return absl::StrCat(range.oldest, "..", range.newest);
}

std::optional<ProtocolRange> ParseProtocolRange(std::string_view text) {
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(std::string(text), absl::MaxSplits("..", 1));
  ProtocolRange range;
  if (!absl::SimpleAtoi(ends.first, &range.oldest) ||
      !absl::SimpleAtoi(ends.second, &range.newest) || range.oldest > range.newest) {
    return std::nullopt;
  }
  return range;
}

}  // namespace lathe

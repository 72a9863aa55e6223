// Protocol numbers: which releases of Lathe's processes work together. Each release adds one to the
// number, and works with the release before it. So a service is upgraded process by process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lathe {

// Protocols that a process speaks, both ends included. A process of release 0.1.0 names none: {}.
struct ProtocolRange {
  int64_t oldest = 0;
  int64_t newest = 0;

  friend bool operator==(const ProtocolRange&, const ProtocolRange&) = default;
};

// Range of a release: its own protocol and the one before.
ProtocolRange RangeOf(int64_t protocol);

// Range of this build. The CMake variable LATHE_PROTOCOL replaces its number, so that two builds of
// one tree can stand for two releases.
ProtocolRange OwnProtocol();

// One of two processes that want to work together.
struct ProtocolPeer {
  std::string name;     // for people: "the worker"
  std::string version;  // its release, for people
  ProtocolRange range;
};

// Returns OK if the newer of the two speaks the protocol of the older. FailedPrecondition
// ("protocol_mismatch") otherwise; it names both numbers and the process to upgrade.
absl::Status CheckProtocol(const ProtocolPeer& one, const ProtocolPeer& other);

// Name of the gRPC metadata with which a gateway tells the engine its range, as text.
inline constexpr char kProtocolHeader[] = "lathe-protocol";

// Convert a range to text such as "4..5" and back. nullopt: the text is no range.
std::string ToText(const ProtocolRange& range);
std::optional<ProtocolRange> ParseProtocolRange(std::string_view text);

}  // namespace lathe

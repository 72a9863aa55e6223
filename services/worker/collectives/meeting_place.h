// Where rank 0 of a group waits for the others.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/worker/collectives/local_address.h"

namespace lathe::worker {

// A socket on `address`, the value of `flag`: a numeric one of this machine or the name of an
// interface. Empty: where the engine at `engine_address`, "unix:PATH" or "HOST:PORT", is reached
// from: loopback for one on this machine. InvalidArgument: not an address of this machine;
// FailedPrecondition: no route to the engine; Unavailable: a name that cannot be resolved.
absl::StatusOr<ListeningSocket> OpenMeetingPlace(const std::string& address,
                                                 const std::string& engine_address,
                                                 const std::string& flag = "--rendezvous");

}  // namespace lathe::worker

// The address at which the ranks of a group find rank 0, and the socket that rank 0 opens there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/collectives/rendezvous/local_address.h"

namespace lathe::worker {

// The engine sends it once all ranks of the group have attached.
struct RendezvousPoint {
  std::string session;  // identifies this set of processes; no other set uses it
  std::string address;  // numeric, of rank 0's store
  uint16_t port = 0;
};

// Listens on `address`, the value of `flag`: a numeric address of this machine or the name of an
// interface. If it is empty, it listens on the address from which this machine reaches the engine
// at `engine_address` ("unix:PATH" or "HOST:PORT"): loopback for a local engine. InvalidArgument:
// not an address of this machine. FailedPrecondition: no route to the engine. Unavailable: the
// engine's name cannot be resolved.
absl::StatusOr<ListeningSocket> OpenRendezvousSocket(const std::string& address,
                                                     const std::string& engine_address,
                                                     const std::string& flag = "--rendezvous");

}  // namespace lathe::worker

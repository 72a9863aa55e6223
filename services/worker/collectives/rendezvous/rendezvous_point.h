// The address where the ranks of a group find each other. Does not include torch.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::worker {

// The engine sends it once all ranks of the group have attached.
struct RendezvousPoint {
  std::string session;  // identifies this set of processes; no other set uses it
  std::string address;  // numeric, of rank 0's store
  uint16_t port = 0;
};

}  // namespace lathe::worker

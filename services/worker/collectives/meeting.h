// Where the ranks of a group find each other. Free of torch.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::worker {

// Told by the engine once every rank has come (Form).
struct Meeting {
  std::string session;  // of this set of processes: another one never meets under it
  std::string address;  // numeric, of rank 0's store
  uint16_t port = 0;
};

}  // namespace lathe::worker

// The object store of a process, as it tells another process.
#pragma once

#include <string>

namespace lathe {

// Where a process keeps checkpoints. Both fields are empty if that is the data directory.
struct CheckpointPlace {
  std::string address;   // "s3://bucket/prefix", for people
  std::string store_id;  // of the installation that owns the place; empty: unknown
};

}  // namespace lathe

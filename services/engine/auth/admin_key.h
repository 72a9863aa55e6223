// The first admin key of an engine that runs without `lathe up`.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/engine/auth/key_ring.h"

namespace lathe::engine {

// Returns InvalidArgument, which names the file and never the key, if the file is there and holds
// no API key. A missing file is no error.
absl::Status CheckAdminKeyFile(const std::string& path);

// Makes the key in the file a key with scope admin of tenant `default`, if it is not known yet. A
// key that was revoked or has expired stays so, and the log says so. If the file is missing and no
// admin key lives, makes one and writes it there first, with mode 0600. Never logs a key. Errors:
// those of CheckAdminKeyFile; InvalidArgument for a known key without scope admin; those of the
// store; Internal if the file cannot be written.
absl::Status EnsureAdminKey(KeyRing& keys, const std::string& path);

}  // namespace lathe::engine

// The engine's entries in a checkpoint's manifest.
#pragma once

#include <cstdint>
#include <string>

#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns a JSON object with owner, path, name, term and times, for people and for recovery without
// the store.
std::string ManifestJson(const CheckpointRow& row, int64_t term);
// Returns the JSON object for a snapshot or an unnamed version.
std::string ManifestJson(const std::string& tenant_id, int64_t term);

}  // namespace lathe::engine

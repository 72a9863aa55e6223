// The store that a setting names.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// `setting`: sqlite:PATH, postgres://… or postgresql://…; empty: sqlite:DATA_DIR/lathe.db. Another
// one is InvalidArgument, which does not repeat it: it may hold a password. Else as the store's
// Open.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& setting,
                                                 const std::filesystem::path& data_dir);

// Whether several processes can open the store that `setting` names: one of them leads.
bool IsSharedStore(const std::string& setting);

}  // namespace lathe::engine

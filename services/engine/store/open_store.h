// Opens the store that a setting names.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Opens the store of `setting`: sqlite:PATH, postgres://… or postgresql://…. An empty setting means
// sqlite:DATA_DIR/lathe.db. Returns InvalidArgument for any other text and does not repeat the
// text, which may hold a password. Other errors are those of the store's Open.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& setting,
                                                 const std::filesystem::path& data_dir);

// Returns true if several processes can open the store that `setting` names. One of them leads.
bool IsSharedStore(const std::string& setting);

}  // namespace lathe::engine

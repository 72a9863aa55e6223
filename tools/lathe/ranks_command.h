// `lathe ranks`: the parent of a group's ranks on a machine that is not the engine's.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Returns after a stop signal, the ranks having stopped. Errors as OptionSet::Parse, or
// configuration when the ranks or the options for the engine are none.
absl::Status RanksCommand(int argc, const char* const* argv);

}  // namespace lathe::cli

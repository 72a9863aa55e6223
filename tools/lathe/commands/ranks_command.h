// `lathe ranks`: the parent process of a group's ranks on a machine other than the engine's.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Returns after a stop signal, once the ranks have stopped: OK, or EndWith the code of
// ranks.stopped_exit_code. Errors: those of OptionSet::Parse;
// configuration for unusable options; the failure of a rank that rejects its options.
absl::Status RanksCommand(int argc, const char* const* argv);

}  // namespace lathe::cli

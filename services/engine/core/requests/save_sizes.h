// Expected sizes of the checkpoints that queued saves will write, so that a quota of stored bytes
// can count them before they exist.
#pragma once

#include <cstdint>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Kind of checkpoint that a save of this kind writes under a name.
CheckpointKind CheckpointKindOf(OperationKind save);

// Remembers the size of a complete checkpoint.
void RecordSize(State& s, const CheckpointRow& row);

// Returns the size of the newest checkpoint of the same shape. Without one, it scales one of the
// same base model and kind by the rank. Returns 0 for other requests than named saves, and while no
// such checkpoint was ever written.
int64_t ExpectedSize(const State& s, const Model& model, OperationKind kind, const Plan& plan);

}  // namespace lathe::engine

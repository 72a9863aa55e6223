// Abseil's mutexes without their debugging aids.
#pragma once

namespace lathe {

// Debian builds Abseil with deadlock detection on: each lock then updates one graph under one
// global lock (5 % of the engine's time; gRPC uses the same mutexes). Call first in main; tests
// keep it on.
void DisableMutexChecks();

}  // namespace lathe

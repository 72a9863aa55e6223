// What every thread of this process is doing, for a log.
#pragma once

#include <signal.h>

namespace lathe {

// The signal that asks a thread for its stack; threads leave it unblocked.
inline int StackSignal() { return SIGRTMIN; }

// Writes "thread TID NAME" and its stack, one frame a line, of every thread of this process to
// `fd`; at most a second each. A thread that blocks StackSignal() has no stack shown.
void WriteThreadStacks(int fd);

}  // namespace lathe

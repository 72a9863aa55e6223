// Writes the stacks of all threads of this process to a log.
#pragma once

#include <signal.h>

namespace lathe {

// Signal that makes a thread write its stack. Threads leave it unblocked.
inline int StackSignal() { return SIGRTMIN; }

// Writes for every thread of this process "thread TID NAME" and its stack to `fd`, one frame a
// line. Waits at most one second per thread. A thread that blocks StackSignal() shows no stack.
void WriteThreadStacks(int fd);

}  // namespace lathe

// Low priority for threads that work beside passes and must not slow them down. Does not include
// torch.
#pragma once

namespace lathe::worker {

// Lowers the calling thread's priority: it gets about a tenth of a core while passes use every
// core, and a whole core otherwise. `thread` is its name in the warning if the system refuses.
void YieldProcessor(const char* thread);
// Gives the calling thread's disk requests the lowest priority of their class.
void YieldDisk(const char* thread);

}  // namespace lathe::worker

// Threads that work beside passes without holding them up. Free of torch.
#pragma once

namespace lathe::worker {

// The calling thread gets about a tenth of a core while passes take every core, and all of one
// while they do not. `thread` is its name, for the log where the system refuses.
void YieldProcessor(const char* thread);
// Its turn at the disk comes behind everybody else's.
void YieldDisk(const char* thread);

}  // namespace lathe::worker

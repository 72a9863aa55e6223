#include "libs/common/concurrency/mutex_checks.h"

#include "absl/synchronization/mutex.h"

namespace lathe {

void DisableMutexChecks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace lathe

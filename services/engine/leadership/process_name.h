// Process names by which other processes on the same machine can check if a process still runs.
#pragma once

#include <string>

namespace lathe::engine {

// Returns HOST:PID:START:NAMESPACE:BOOT. The last three are the kernel's values.
std::string ThisProcess();

// Returns true if `process` is known to have ended: it ran under this kernel in this namespace, and
// no longer exists. Returns false for all others and for malformed names.
bool HasEnded(const std::string& process);

// Returns "process 12 on HOST", for people.
std::string DescribeProcess(const std::string& process);

}  // namespace lathe::engine

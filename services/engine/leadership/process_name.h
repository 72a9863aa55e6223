// Names of processes that tell, on their own machine, whether one still runs.
#pragma once

#include <string>

namespace lathe::engine {

// HOST:PID:START:NAMESPACE:BOOT, the last three as the kernel says them.
std::string ThisProcess();

// Whether `process` is known to have ended: it ran under this kernel, in this namespace, and is not
// there any more. False for all others, and for what is no such name.
bool HasEnded(const std::string& process);

// "process 12 on HOST", for people.
std::string DescribeProcess(const std::string& process);

}  // namespace lathe::engine

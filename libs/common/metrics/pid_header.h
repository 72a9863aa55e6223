// How a process's page names its process.
#pragma once

namespace lathe {

// Header of every answer of the page: the id of the process. `lathe drain` finds it by that on its
// own machine.
inline constexpr char kPidHeader[] = "Lathe-Pid";

}  // namespace lathe

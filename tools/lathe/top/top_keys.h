// Keys of `lathe top`.
#pragma once

#include "tools/lathe/terminal/screen.h"
#include "tools/lathe/top/top_frame.h"

namespace lathe::cli {

// Changes the view as the key asks. Returns false if the key ends the program.
bool ApplyKey(const KeyPress& press, TopView& view);

}  // namespace lathe::cli

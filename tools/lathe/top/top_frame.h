// One picture of `lathe top`, as lines.
#pragma once

#include <string>
#include <vector>

#include "tools/lathe/terminal/screen.h"
#include "tools/lathe/top/top_state.h"

namespace lathe::cli {

enum class TopOrder { kWaiting, kSeq, kName };

// Returns the order after `order`, round and round.
TopOrder NextOrder(TopOrder order);

struct TopView {
  // Rows 0: no limit but that of the number of runs. Columns 0: no limit.
  TerminalSize size;
  TopOrder order = TopOrder::kWaiting;
  // Text, in any case, that a group, tenant or run must have to be shown.
  std::string filter = "";
  bool is_typing = false;
  bool is_paused = false;
  bool is_help = false;
  // True if keys are read: then the last line names them.
  bool has_keys = false;
};

// Returns at most `size.rows` lines of at most `size.columns` columns. All text of others in them
// has passed SafeText.
std::vector<ScreenLine> TopFrame(const TopState& state, const TopView& view);

}  // namespace lathe::cli

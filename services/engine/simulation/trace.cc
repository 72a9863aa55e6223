#include "services/engine/simulation/trace.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace lathe::engine::simulation {

void Trace::AddLine(int64_t now, std::string line) {
  const int64_t microseconds = now / 1000;
  lines_.push_back(absl::StrFormat("%12.6f %s", static_cast<double>(microseconds) / 1e6, line));
  if (lines_.size() > max_lines_) lines_.pop_front();
}

}  // namespace lathe::engine::simulation

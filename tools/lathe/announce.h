// What `lathe up` says on standard output.
#pragma once

#include <string>

#include "tools/lathe/up_options.h"

namespace lathe::cli {

// Lines of a label and a text; on a terminal the loading line is rewritten in place.
class Announcer {
 public:
  Announcer();

  void Say(const std::string& label, const std::string& text);
  // `progress` as the worker puts it, e.g. "64 % of 1.2 GB". Repeats are not printed.
  void Loading(const std::string& progress);
  // URL, key file, logs and the next command.
  void Ready(const LaunchPlan& plan, bool is_new_key);

 private:
  void EndLoadingLine();

  const bool is_terminal_;
  bool has_loading_line_ = false;
  std::string last_progress_;
};

}  // namespace lathe::cli

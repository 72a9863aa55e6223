// Prints the progress of `lathe up` on standard output.
#pragma once

#include <string>

#include "tools/lathe/launch/up_options.h"

namespace lathe::cli {

// Prints lines of a label and a text. On a terminal, the loading line is rewritten in place.
class Announcer {
 public:
  Announcer();

  void Say(const std::string& label, const std::string& text);
  // `progress` is the worker's text, e.g. "64 % of 1.2 GB". A repeated text is not printed.
  void Loading(const std::string& progress);
  // Prints the URL, key file, a link that signs a browser in, metrics pages, log directory and a
  // command to try next. Empty `ticket`: no link.
  void Ready(const LaunchPlan& plan, bool is_new_key, const std::string& ticket);

 private:
  void EndLoadingLine();

  const bool is_terminal_;
  bool has_loading_line_ = false;
  std::string last_progress_;
};

}  // namespace lathe::cli

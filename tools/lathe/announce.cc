#include "tools/lathe/announce.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lathe::cli {
namespace {

// Quotes `text` as one word of a shell command, if it needs quotes.
std::string Quoted(const std::string& text) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace

Announcer::Announcer() : is_terminal_(isatty(STDOUT_FILENO) != 0) {}

void Announcer::Say(const std::string& label, const std::string& text) {
  EndLoadingLine();
  std::printf("%-8s %s\n", label.c_str(), text.c_str());
  std::fflush(stdout);
}

void Announcer::Loading(const std::string& progress) {
  if (progress == last_progress_) return;
  last_progress_ = progress;
  if (!is_terminal_) {
    Say("model", absl::StrCat("loading ", progress));
    return;
  }
  std::printf("\r\033[K%-8s loading %s", "model", progress.c_str());
  std::fflush(stdout);
  has_loading_line_ = true;
}

void Announcer::EndLoadingLine() {
  if (has_loading_line_) std::printf("\n");
  has_loading_line_ = false;
}

void Announcer::Ready(const LaunchPlan& plan, bool is_new_key, const std::string& ticket) {
  const std::string url = plan.listen.Url(plan.has_tls);
  const std::string key_file = plan.data_dir.admin_key().string();
  Say("ready", absl::StrCat("API ", url));
  Say("key", absl::StrCat(key_file, is_new_key ? " (new, mode 0600)" : " (kept, mode 0600)"));
  if (!ticket.empty()) {
    Say("browse", absl::StrCat(url, "/ui?ticket=", ticket,
                               " (works once, within a minute; later, sign in with the key)"));
  }
  if (plan.metrics) {
    const auto page = [](const ListenAddress& address) { return address.Url() + "/metrics"; };
    std::string pages = absl::StrCat("gateway ", page(plan.metrics->gateway), " engine ",
                                     page(plan.metrics->engine));
    size_t place = 0;
    for (const GroupPlan& group : plan.groups) {
      for (const std::string& worker : group.workers) {
        absl::StrAppend(&pages, " ", worker, " ", page(plan.metrics->workers[place++]));
      }
    }
    Say("metrics", pages);
  }
  Say("logs", plan.data_dir.logs().string());
  Say("next", absl::StrCat("export TINKER_BASE_URL=", url, " TINKER_API_KEY=$(cat ",
                           Quoted(key_file), ") && python examples/sft.py"));
}

}  // namespace lathe::cli

#include "tools/lathe/commands/probe_command.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/commands/probed_page.h"
#include "tools/lathe/launch/http_get.h"

namespace lathe::cli {
namespace {

constexpr char kProbeDescription[] =
    "Asks a process of this machine whether it is live (default), ready, serving or started. Exit "
    "code\n0: yes, 1: no. Without URL, the configuration says where the process has its page.";

// Longest part of an answer that the message of a failure shows.
constexpr std::size_t kMaxReason = 300;

struct Questions {
  bool live = false;
  bool ready = false;
  bool serving = false;
  bool startup = false;
};

absl::StatusOr<std::string> PathOf(const Questions& questions) {
  if (questions.live + questions.ready + questions.serving + questions.startup > 1) {
    return WithDetail(
        absl::InvalidArgumentError("expected only one of --live, --ready, --serving and --startup"),
        "usage");
  }
  if (questions.ready) return "/readyz";
  if (questions.serving) return "/readyz?standby=ok";
  if (questions.startup) return "/startupz";
  return "/livez";
}

absl::Status Unhealthy(const std::string& message) {
  return WithDetail(absl::UnavailableError(message), "unhealthy");
}

absl::Status Ask(const ProbeTarget& target, absl::Duration timeout) {
  const std::string url = absl::StrCat(target.address.Url(), target.path);
  const absl::StatusOr<HttpAnswer> answer = HttpGet(target.address, target.path, timeout);
  if (!answer.ok()) return Unhealthy(absl::StrCat(url, ": ", answer.status().message()));
  if (answer->status != 200) {
    const std::string reason = answer->body.substr(0, answer->body.find_first_of("\r\n"));
    return Unhealthy(
        absl::StrCat(url, " answered ", answer->status, ": ", reason.substr(0, kMaxReason)));
  }
  std::printf("%s: ok\n", url.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status ProbeCommand(int argc, const char* const* argv) {
  Questions questions;
  PageOptions pages;
  std::string program, url;
  absl::Duration timeout;
  OptionSet options("lathe probe", kProbeDescription);
  options.Add(&questions.live, "probe.live", false, "asks /livez: does the process work?");
  options.Add(&questions.ready, "probe.ready", false, "asks /readyz: can it take requests?");
  options.Add(&questions.serving, "probe.serving", false,
              "asks /readyz?standby=ok: is it ready, or a standby in good order?");
  options.Add(&questions.startup, "probe.startup", false,
              "asks /startupz: has it started, and does --live count from now on?");
  options.Add(&program, "probe.of", "",
              "gateway, engine, worker, up or ranks: the program whose page is asked, if the "
              "configuration has several",
              {.choices = {"gateway", "engine", "worker", "up", "ranks"}});
  options.Add(&timeout, "probe.timeout", absl::Seconds(2), "maximum time of the whole probe");
  AddPageOptions(options, pages);
  options.AddPositional(&url, "URL", "http://HOST:PORT of a page", /*required=*/false);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const std::string path, PathOf(questions));
  ProbeTarget target;
  if (url.empty()) {
    ASSIGN_OR_RETURN(target.address, FindPage(pages, program));
  } else {
    ASSIGN_OR_RETURN(target, ParseProbeUrl(url));
  }
  if (target.path.empty()) target.path = path;
  return Ask(target, timeout);
}

}  // namespace lathe::cli

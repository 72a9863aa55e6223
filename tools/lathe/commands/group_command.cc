#include "tools/lathe/commands/group_command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

// Waits until the model is on group `request.group()`. Fails if the model ends, if the migration is
// abandoned, or after `timeout`.
absl::Status AwaitMove(AdminClient& client, const v1::MoveModelRequest& request,
                       absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus());
    const auto model = std::find_if(
        status.models().begin(), status.models().end(),
        [&](const v1::ModelStatus& one) { return one.model_id() == request.model_id(); });
    const std::string name = absl::StrCat("model ", request.model_id());
    if (model == status.models().end()) {
      return absl::FailedPreconditionError(absl::StrCat(name, " has ended meanwhile"));
    }
    if (model->group() == request.group() && model->move_to().empty()) return absl::OkStatus();
    if (model->move_to() != request.group()) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " stays on group ", model->group(), ": group ", request.group(),
                       " cannot take it any more, or another request has replaced this one"));
    }
    if (absl::Now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat(name, " is still on group ", model->group(),
                       ": what it runs has not ended, or it is not on disk; it goes to ",
                       request.group(), " once that is so"));
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

// Waits until the group holds nothing. Fails if it is put back into service, or after `timeout`.
absl::Status AwaitDrained(AdminClient& client, const std::string& group, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus());
    const auto found =
        std::find_if(status.groups().begin(), status.groups().end(),
                     [&](const v1::GroupStatus& one) { return one.group() == group; });
    if (found == status.groups().end() || found->drain().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("group ", group, " was removed or put back into service meanwhile"));
    }
    if (found->drain() == "drained") return absl::OkStatus();
    if (absl::Now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("group ", group, " still has ",
                                                      found->drain_left(),
                                                      "; they leave it while its workers live"));
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

// The verbs that need only the group's name.
struct GroupVerb {
  std::string_view name;
  const char* program;
  const char* help;
  absl::Status (AdminClient::*call)(const std::string& group);
};

constexpr GroupVerb kGroupVerbs[] = {
    {"drain", "lathe group drain",
     "Takes a worker group out of service: others of its base model take over its models, samples "
     "and new models. --wait or `lathe status` says when it has nothing more.",
     &AdminClient::DrainGroup},
    {"resume", "lathe group resume", "Uses a worker group again that was drained.",
     &AdminClient::ResumeGroup},
    {"remove", "lathe group remove",
     "Forgets a worker group whose workers have ended for good. Other groups of its base model "
     "take over its models. Without one, the base model is served no longer and waiting requests "
     "for it fail; its models and checkpoints stay.",
     &AdminClient::RemoveGroup},
};

absl::Status Run(const GroupVerb& verb, int argc, const char* const* argv) {
  DataDirOptions data;
  std::string group;
  OptionSet options(verb.program, verb.help);
  AddDataDirOptions(options, data);
  absl::Duration wait;
  const bool is_drain = verb.name == "drain";
  if (is_drain) {
    options.Add(&wait, "group.wait", absl::ZeroDuration(),
                "maximum time to wait until the group holds nothing; 0s: does not wait");
  }
  options.AddPositional(&group, "GROUP", "as `lathe status` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  AdminClient client(OpenDataDir(data));
  RETURN_IF_ERROR((client.*verb.call)(group));
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  return AwaitDrained(client, group, wait);
}

}  // namespace

absl::Status MoveCommand(int argc, const char* const* argv) {
  DataDirOptions data;
  v1::MoveModelRequest request;
  std::string model_id, group;
  absl::Duration timeout;
  OptionSet options("lathe move",
                    "Migrates a model to another worker group and waits for it. The model's "
                    "running requests end first, and new requests wait.");
  AddDataDirOptions(options, data);
  options.Add(&group, "move.to", "", "destination group, as `lathe status` shows it");
  options.Add(&timeout, "move.timeout", absl::Minutes(2),
              "maximum time to wait; the migration continues after it");
  options.AddPositional(&model_id, "MODEL_ID", "as `lathe status` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  request.set_model_id(model_id);
  request.set_group(group);
  AdminClient client(OpenDataDir(data));
  RETURN_IF_ERROR(client.MoveModel(request));
  return AwaitMove(client, request, timeout);
}

absl::Status GroupCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  for (const GroupVerb& verb : kGroupVerbs) {
    if (verb.name == action) return Run(verb, argc - 1, argv + 1);
  }
  return WithDetail(absl::InvalidArgumentError(
                        "lathe group needs one of drain GROUP, resume GROUP, remove GROUP"),
                    "usage");
}

}  // namespace lathe::cli

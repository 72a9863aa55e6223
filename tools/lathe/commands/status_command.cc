#include "tools/lathe/commands/status_command.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <string>
#include <utility>

#include "libs/common/config/option_set.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

void PrintJson(const v1::GetStatusResponse& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  // Fails only for messages with unresolved Any fields; this one has none.
  if (google::protobuf::util::MessageToJsonString(status, &text, options).ok()) {
    std::printf("%s\n", text.c_str());
  }
}

const char* GroupActivity(const v1::GroupStatus& group) {
  if (group.role() == "train") return "trains";
  return group.role() == "sample" ? "samples" : "serves";
}

// Prints the mesh of a group with several ranks, and how many of the ranks are attached.
void PrintMesh(const v1::GroupStatus& group) {
  const int64_t world = group.dp() * group.fsdp() * group.tp();
  if (world < 2) return;
  std::printf("         dp %lld x fsdp %lld x tp %lld, %d of %lld ranks\n",
              static_cast<long long>(group.dp()), static_cast<long long>(group.fsdp()),
              static_cast<long long>(group.tp()), group.ranks_size(),
              static_cast<long long>(world));
}

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Prints a rank and how its memory is used.
void PrintRank(const std::string& group, const v1::RankStatus& rank) {
  std::printf("rank     %s/%lld on %s, pid %lld", group.c_str(),
              static_cast<long long>(rank.rank()), rank.device().c_str(),
              static_cast<long long>(rank.pid()));
  if (rank.has_memory()) {
    std::printf(", memory %.2f of %.2f GiB", Gib(rank.memory().used_bytes()),
                Gib(rank.memory().limit_bytes()));
  }
  const char* separator = ": ";
  for (const v1::MemoryShare& share : rank.memory().shares()) {
    std::printf("%s%s %.2f of %.2f", std::exchange(separator, ", "), share.owner().c_str(),
                Gib(share.used_bytes()), Gib(share.limit_bytes()));
  }
  std::printf("\n");
}

void PrintDrain(const v1::GroupStatus& group) {
  if (group.drain() == "drained") {
    std::printf("         drained: it has nothing any more and can be taken away\n");
  } else if (!group.drain().empty()) {
    std::printf("         draining, it still has %s\n", group.drain_left().c_str());
  }
}

void PrintTable(const v1::GetStatusResponse& status) {
  std::printf("engine   version %s, term %lld, %lld pending requests\n", status.version().c_str(),
              static_cast<long long>(status.term()),
              static_cast<long long>(status.pending_requests()));
  for (const v1::GroupStatus& group : status.groups()) {
    const std::string& detail = group.reason().empty() ? group.progress() : group.reason();
    std::printf("group    %s %s %s: %s%s%s, epoch %lld, %lld models\n", group.group().c_str(),
                GroupActivity(group), group.base_model().c_str(), group.state().c_str(),
                detail.empty() ? "" : " ", detail.c_str(), static_cast<long long>(group.epoch()),
                static_cast<long long>(group.models()));
    PrintMesh(group);
    for (const v1::RankStatus& rank : group.ranks()) PrintRank(group.group(), rank);
    PrintDrain(group);
  }
  for (const v1::ModelStatus& model : status.models()) {
    const std::string going = model.move_to().empty() ? "" : ", to move to " + model.move_to();
    std::printf("model    %s of %s: %s on %s%s, seq %lld, %lld pending%s\n",
                model.model_id().c_str(), model.tenant().c_str(), model.state().c_str(),
                model.group().empty() ? "no group" : model.group().c_str(), going.c_str(),
                static_cast<long long>(model.applied_seq()),
                static_cast<long long>(model.pending_requests()),
                model.unsaved() ? ", not saved" : "");
    if (!model.reason().empty()) std::printf("         %s\n", model.reason().c_str());
  }
}

}  // namespace

absl::Status StatusCommand(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string format;
  OptionSet options("lathe status", "Shows what a running Lathe holds.");
  AddDataDirOptions(options, data);
  options.Add(&format, "status.format", "table", "table or json", {.choices = {"table", "json"}});
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status, AdminClient(OpenDataDir(data)).GetStatus());
  format == "json" ? PrintJson(status) : PrintTable(status);
  return absl::OkStatus();
}

}  // namespace lathe::cli

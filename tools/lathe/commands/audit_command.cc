#include "tools/lathe/commands/audit_command.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/files/new_file.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

std::string LineOf(const v1::ExportedAuditEntry& exported) {
  const v1::AuditEntry& entry = exported.entry();
  const absl::Time at =
      absl::FromUnixSeconds(entry.at().seconds()) + absl::Nanoseconds(entry.at().nanos());
  Json details = Json::object();
  for (const v1::NamedString& detail : entry.details()) details[detail.name()] = detail.value();
  const Json line = {{"id", exported.id()},
                     {"at", absl::FormatTime(absl::RFC3339_full, at, absl::UTCTimeZone())},
                     {"tenant", exported.tenant()},
                     {"resource", exported.resource()},
                     {"event", entry.event()},
                     {"actor", entry.actor()},
                     {"object", entry.object()},
                     {"outcome", entry.outcome()},
                     {"details", details}};
  return ToJsonText(line) + "\n";
}

// Writes all entries to the file. Returns the pieces in which they came.
absl::StatusOr<std::vector<v1::PruneAuditRequest>> WriteEntries(AdminClient& client,
                                                                v1::ExportAuditRequest request,
                                                                NewFile& file) {
  std::vector<v1::PruneAuditRequest> pieces;
  while (true) {
    ASSIGN_OR_RETURN(const v1::ExportAuditResponse page, client.ExportAudit(request));
    if (!page.has_last_id()) return pieces;
    std::string lines;
    for (const v1::ExportedAuditEntry& entry : page.entries()) lines += LineOf(entry);
    RETURN_IF_ERROR(file.Write(lines));
    if (!page.entries().empty()) {
      v1::PruneAuditRequest& piece = pieces.emplace_back();
      *piece.mutable_before() = request.before();
      piece.set_after_id(request.after_id());
      piece.set_through_id(page.entries().rbegin()->id());
      piece.set_num_entries(page.entries_size());
    }
    request.set_after_id(page.last_id());
  }
}

absl::StatusOr<absl::Time> StartOf(const std::string& date) {
  absl::CivilDay day;
  if (date.size() == 10 && absl::ParseCivilTime(date, &day)) {
    return absl::FromCivil(day, absl::UTCTimeZone());
  }
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat("before is '", date, "', expected YYYY-MM-DD")),
      "usage");
}

absl::Status Export(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string before, out;
  bool prune = false;
  OptionSet options("lathe audit export",
                    "Writes the audit log of all tenants to a file, one JSON object a line.");
  AddDataDirOptions(options, data);
  options.Add(&before, "audit.before", "", "YYYY-MM-DD; entries before this day, in UTC",
              {.required = true});
  options.Add(&out, "audit.out", "", "file that is written; it must not exist yet",
              {.required = true});
  options.Add(&prune, "audit.prune", false,
              "deletes the entries from the database once the file is on disk");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const absl::Time start, StartOf(before));
  v1::ExportAuditRequest request;
  request.mutable_before()->set_seconds(absl::ToUnixSeconds(start));
  AdminClient client(OpenDataDir(data));
  NewFile file(out);
  RETURN_IF_ERROR(file.Open());
  ASSIGN_OR_RETURN(const std::vector<v1::PruneAuditRequest> pieces,
                   WriteEntries(client, request, file));
  RETURN_IF_ERROR(file.Sync());
  int64_t num_entries = 0;
  for (const v1::PruneAuditRequest& piece : pieces) {
    if (prune) RETURN_IF_ERROR(client.PruneAudit(piece));
    num_entries += piece.num_entries();
  }
  std::printf("%s %s entries\n", prune ? "exported and pruned" : "exported",
              absl::StrCat(num_entries).c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status AuditCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "export") return Export(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError("lathe audit needs export"), "usage");
}

}  // namespace lathe::cli

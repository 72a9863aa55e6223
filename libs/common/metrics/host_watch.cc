#include "libs/common/metrics/host_watch.h"

#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"

namespace lathe {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(15);

}  // namespace

HostWatch::HostWatch(Options options)
    : options_(std::move(options)),
      first_look_("host-watch", [this] { Look(); }),
      task_("host-watch", kPeriod, [this] { Look(); }) {}

void HostWatch::Look() {
  std::map<std::string, Room> rooms;
  for (const auto& [label, path] : options_.directories) {
    std::error_code error;
    // As for a process without privileges: the reserve of the file system is not free.
    const std::filesystem::space_info space = std::filesystem::space(path, error);
    if (error) continue;
    rooms[label] = {.free_bytes = static_cast<double>(space.available),
                    .bytes = static_cast<double>(space.capacity)};
  }
  std::map<std::string, double> ends;
  for (const auto& [label, path] : options_.certificates) {
    if (path.empty()) continue;
    const absl::StatusOr<absl::Time> end = EarliestEnd(path);
    if (end.ok()) ends[label] = static_cast<double>(absl::ToUnixSeconds(*end));
  }
  absl::MutexLock lock(&mu_);
  rooms_ = std::move(rooms);
  ends_ = std::move(ends);
}

void HostWatch::AddTo(const std::string& prefix, FamilyList& list) const {
  absl::MutexLock lock(&mu_);
  const auto add_rooms = [&](const char* name, const char* help, double Room::*value) {
    if (options_.directories.empty()) return;
    list.DeclareGauge(prefix + name, help);
    for (const auto& [label, room] : rooms_) {
      list.AddGauge(prefix + name, help, room.*value, {{"directory", label}});
    }
  };
  add_rooms("_disk_free_bytes", "room that a process can use on a directory's file system",
            &Room::free_bytes);
  add_rooms("_disk_bytes", "size of that file system", &Room::bytes);
  const std::string name = prefix + "_certificate_expiry_timestamp_seconds";
  const char* const help = "end of the first certificate of a file, Unix time";
  list.DeclareGauge(name, help);
  for (const auto& [label, end] : ends_) list.AddGauge(name, help, end, {{"certificate", label}});
}

}  // namespace lathe

#include "services/engine/series/point_batch.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/series/packing.h"

namespace lathe::engine {
namespace {

// First number of a batch. A later form gets another one.
constexpr uint64_t kFormat = 1;

}  // namespace

std::string PackBatch(std::span<const PointEntryPtr> entries) {
  std::string bytes;
  Packer packer(bytes);
  packer.Varint(kFormat);
  packer.Varint(entries.size());
  for (const PointEntryPtr& entry : entries) {
    packer.Text(entry->run_id);
    packer.Text(entry->tenant_id);
    packer.Varint(static_cast<uint64_t>(entry->kind));
    packer.Signed(entry->unix_ms);
    packer.Varint(entry->points.size());
    for (const NamedPoint& point : entry->points) {
      packer.Text(point.name);
      packer.Double(point.value);
      if (entry->kind != EntryKind::kUsers) continue;
      packer.Signed(point.step);
      packer.Signed(point.unix_ms);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<PointEntryPtr>> UnpackBatch(std::string_view bytes) {
  Unpacker unpacker(bytes);
  if (const uint64_t format = unpacker.Varint(); format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrFormat("a batch of metrics has format %d, this engine reads %d", format, kFormat));
  }
  std::vector<PointEntryPtr> entries;
  const uint64_t num_entries = unpacker.Varint();
  for (uint64_t i = 0; i < num_entries && unpacker.ok(); ++i) {
    auto entry = std::make_shared<PointEntry>();
    entry->run_id = unpacker.Text();
    entry->tenant_id = unpacker.Text();
    entry->kind = static_cast<EntryKind>(unpacker.Varint());
    entry->unix_ms = unpacker.Signed();
    const uint64_t num_points = unpacker.Varint();
    for (uint64_t j = 0; j < num_points && unpacker.ok(); ++j) {
      NamedPoint& point = entry->points.emplace_back();
      point.name = unpacker.Text();
      point.value = unpacker.Double();
      if (entry->kind != EntryKind::kUsers) continue;
      point.step = unpacker.Signed();
      point.unix_ms = unpacker.Signed();
    }
    entries.push_back(std::move(entry));
  }
  if (!unpacker.ok() || !unpacker.at_end()) {
    return absl::DataLossError("a batch of metrics is damaged");
  }
  return entries;
}

}  // namespace lathe::engine

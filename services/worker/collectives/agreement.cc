#include "services/worker/collectives/agreement.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_format.h"

namespace lathe::worker {

namespace {

constexpr int64_t kMaxMessage = 1000;

at::Tensor Number(int64_t value) { return at::full({1}, value, at::kLong); }

// Identifies the machine's current boot. Containers see the id of their host.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

absl::Status AgreeOnStatus(const RankGroup& ranks, std::string_view name, const absl::Status& own) {
  if (ranks.is_alone()) return own;
  // The record is one byte for the code, then the message up to a zero byte.
  at::Tensor record = at::zeros({1 + kMaxMessage + 1}, at::kByte);
  auto* const bytes = record.mutable_data_ptr<uint8_t>();
  bytes[0] = static_cast<uint8_t>(own.code());
  const size_t size = std::min<size_t>(own.message().size(), kMaxMessage);
  std::memcpy(bytes + 1, own.message().data(), size);
  const at::Tensor records = ranks.Gather(name, record);
  for (int rank = 0; rank < ranks.world(); ++rank) {
    const at::Tensor row = records[rank];
    const auto* const theirs = row.const_data_ptr<uint8_t>();
    if (theirs[0] == 0) continue;
    const auto* const message = reinterpret_cast<const char*>(theirs + 1);
    absl::Status agreed(static_cast<absl::StatusCode>(theirs[0]),
                        absl::StrFormat("rank %d: %s", rank, message));
    if (rank == ranks.rank()) {
      own.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
        agreed.SetPayload(url, payload);
      });
    }
    return agreed;
  }
  return absl::OkStatus();
}

int64_t AgreeOnLeast(const RankGroup& ranks, std::string_view name, int64_t own) {
  return ranks.Gather(name, Number(own)).min().item<int64_t>();
}

int64_t TakeFirst(const RankGroup& ranks, std::string_view name, int64_t own) {
  const at::Tensor number = Number(own);
  ranks.Broadcast(name, 0, number);
  return number.item<int64_t>();
}

int64_t NumRanksHere(const RankGroup& ranks, std::string_view name) {
  const auto machine = static_cast<int64_t>(std::hash<std::string>()(BootId()));
  return ranks.Gather(name, Number(machine)).eq(machine).sum().item<int64_t>();
}

std::vector<std::string> GatherTexts(const RankGroup& group, const CollectiveCall& call,
                                     const std::string& text, at::Device device) {
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor sizes =
      group.Gather(call, at::full({1}, size, at::kLong).to(device)).to(at::kCPU);
  const at::Tensor piece = at::zeros({sizes.max().item<int64_t>()}, at::kByte);
  std::copy(text.begin(), text.end(), piece.mutable_data_ptr<uint8_t>());
  const at::Tensor all = group.Gather(call, piece.to(device)).to(at::kCPU);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto* const from = all[rank].const_data_ptr<uint8_t>();
    texts.emplace_back(from, from + sizes[rank].item<int64_t>());
  }
  return texts;
}

}  // namespace lathe::worker

#include "libs/common/launch/launch_place.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr int64_t kMaxWorld = 4096;

struct Variables {
  const char* rank;
  const char* world;       // nullptr: no variable gives it
  const char* local_rank;  // nullptr: one rank per machine
};
constexpr Variables kLaunchers[] = {{"LATHE_POD_INDEX", "LATHE_POD_COUNT", nullptr},
                                    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                    {"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", nullptr},
                                    {"JOB_COMPLETION_INDEX", nullptr, nullptr}};

// Parses `text` as a number in [first, last].
absl::StatusOr<int64_t> Number(const char* name, const char* text, int64_t first, int64_t last) {
  int64_t number = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &number) && number >= first && number <= last) {
    return number;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is '%s', want %d to %d", name, text == nullptr ? "" : text, first, last));
}

}  // namespace

absl::StatusOr<std::optional<LaunchPlace>> FindLaunchPlace(
    const std::function<const char*(const char*)>& get_env) {
  for (const Variables& names : kLaunchers) {
    const char* const rank = get_env(names.rank);
    if (rank == nullptr) continue;
    LaunchPlace place;
    place.world = 0;
    if (names.world != nullptr) {
      if (get_env(names.world) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s is %s, and %s is missing", names.rank, rank, names.world));
      }
      ASSIGN_OR_RETURN(place.world, Number(names.world, get_env(names.world), 1, kMaxWorld));
    }
    const int64_t last = (place.world > 0 ? place.world : kMaxWorld) - 1;
    ASSIGN_OR_RETURN(place.rank, Number(names.rank, rank, 0, last));
    if (names.local_rank != nullptr && get_env(names.local_rank) != nullptr) {
      ASSIGN_OR_RETURN(place.local_rank,
                       Number(names.local_rank, get_env(names.local_rank), 0, place.rank));
      place.has_local_rank = true;
    }
    return place;
  }
  return std::nullopt;
}

}  // namespace lathe

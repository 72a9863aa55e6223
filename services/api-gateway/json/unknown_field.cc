#include "services/api-gateway/json/unknown_field.h"

#include <algorithm>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/config/nearest_key.h"
#include "libs/common/logging/logging.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

constexpr size_t kMaxNames = 500;
constexpr size_t kMaxNameBytes = 100;
// Member in which the SDK's requests name their kind. The route implies the kind already.
constexpr std::string_view kKindName = "type";

// Names logged so far, by any reader of the process. Each name is logged once.
struct RecordedNames {
  absl::Mutex mu;
  std::set<std::string> names ABSL_GUARDED_BY(mu);
};

RecordedNames& Recorded() {
  static auto* const recorded = new RecordedNames;
  return *recorded;
}

bool IsIndex(absl::string_view segment) {
  return !segment.empty() &&
         std::all_of(segment.begin(), segment.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the field's pointer with `*` for list indexes, so that all elements share one name.
std::string NameOf(std::string_view pointer, std::string_view name) {
  std::vector<absl::string_view> segments = absl::StrSplit(AbslView(pointer), '/');
  for (absl::string_view& segment : segments) {
    if (IsIndex(segment)) segment = "*";
  }
  return absl::StrCat(absl::StrJoin(segments, "/"), "/", AbslView(name.substr(0, kMaxNameBytes)));
}

}  // namespace

bool RecordUnknownField(std::string_view pointer, std::string_view name,
                        const std::vector<std::string_view>& known) {
  if (pointer.empty() && name == kKindName) return false;
  const std::string full_name = NameOf(pointer, name);
  {
    RecordedNames& recorded = Recorded();
    absl::MutexLock lock(&recorded.mu);
    if (recorded.names.size() >= kMaxNames || !recorded.names.insert(full_name).second)
      return false;
  }
  const std::string nearest =
      NearestKey(std::string(name.substr(0, kMaxNameBytes)), {known.begin(), known.end()});
  LogWarn("a field that this version does not know was left out",
          {{"field", full_name}, {"nearest", nearest}});
  return true;
}

}  // namespace lathe::gateway

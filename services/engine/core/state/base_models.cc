#include "services/engine/core/state/base_models.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {
namespace {

bool IsServed(const State& s, const std::string& base_model) {
  return s.base_models.count(base_model) > 0 &&
         std::any_of(s.groups.begin(), s.groups.end(),
                     [&](const auto& entry) { return entry.second.row.base_model == base_model; });
}

}  // namespace

std::optional<ErrorInfo> UnknownBaseModel(const State& s, const std::string& base_model) {
  if (IsServed(s, base_model)) return std::nullopt;
  std::string served;
  for (const auto& [name, row] : s.base_models) {
    if (IsServed(s, name)) served += (served.empty() ? "" : ", ") + name;
  }
  ErrorInfo error = NotFound("base_model", base_model);
  error.code = "unknown_base_model";
  error.field = "base_model";
  error.message += absl::StrFormat("; served: %s", served.empty() ? "none yet" : served);
  return error;
}

}  // namespace lathe::engine

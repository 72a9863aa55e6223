#include "services/engine/store/describe_store.h"

#include "absl/strings/strip.h"
#include "services/engine/store/open_store.h"

namespace lathe::engine {

absl::StatusOr<StoreDescription> DescribeStore(const std::string& setting,
                                               const std::filesystem::path& data_dir,
                                               bool is_deep) {
  if (IsSharedStore(setting)) return DescribePostgres(setting);
  absl::string_view path = setting;
  if (setting.empty()) return DescribeSqlite(data_dir / "lathe.db", is_deep);
  if (absl::ConsumePrefix(&path, "sqlite:") && !path.empty()) {
    return DescribeSqlite(std::string(path), is_deep);
  }
  return OpenStore(setting, data_dir).status();
}

}  // namespace lathe::engine

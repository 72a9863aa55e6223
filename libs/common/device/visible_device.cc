#include "libs/common/device/visible_device.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lathe {

std::string VisibleDevice(int place) {
  const char* const visible = std::getenv(kVisibleDevices);
  if (visible == nullptr) return absl::StrCat(place);
  const std::vector<std::string> devices = absl::StrSplit(visible, ',');
  return place < static_cast<int>(devices.size()) ? devices[place] : "";
}

}  // namespace lathe

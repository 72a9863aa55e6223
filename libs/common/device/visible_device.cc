#include "libs/common/device/visible_device.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"

namespace lathe {

std::string VisibleDevice(int place) {
  const char* const visible = std::getenv(kVisibleDevices);
  if (visible == nullptr) return absl::StrCat(place);
  const std::vector<std::string> devices = absl::StrSplit(visible, ',');
  return place < static_cast<int>(devices.size()) ? devices[place] : "";
}

int NumVisibleDevices(const std::filesystem::path& dev) {
  if (const char* const visible = std::getenv(kVisibleDevices); visible != nullptr) {
    // CUDA ignores everything from the first invalid entry on.
    const std::vector<std::string> devices = absl::StrSplit(visible, ',');
    const auto end = std::find_if(devices.begin(), devices.end(), [](const std::string& device) {
      return device.empty() || device[0] == '-';
    });
    return static_cast<int>(end - devices.begin());
  }
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dev, error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const bool is_gpu =
        absl::StartsWith(name, "nvidia") && absl::SimpleAtoi(name.substr(6), &number);
    if (is_gpu) ++count;
  }
  return count;
}

absl::Status CheckVisibleDevices(int num_ranks, const std::string& device) {
  const int count = NumVisibleDevices();
  if (device == "cpu" || count == 0 || num_ranks <= count) return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                        "device is ", device, ": ", num_ranks, " ranks on this machine need a GPU ",
                        "each, ", count, " are available; --device cpu runs all of them on CPUs")),
                    "configuration", "device");
}

}  // namespace lathe

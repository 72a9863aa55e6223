#include "libs/common/device/visible_device.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lathe {
namespace {

// Sets the variable for the lifetime of this object.
class Visible {
 public:
  explicit Visible(const char* devices) {
    if (devices == nullptr) {
      unsetenv(kVisibleDevices);
    } else {
      setenv(kVisibleDevices, devices, 1);
    }
  }
  Visible(const Visible&) = delete;
  ~Visible() { unsetenv(kVisibleDevices); }
};

TEST_CASE("VisibleDevice: each place has one of those that are visible", "[device]") {
  {
    const Visible all(nullptr);
    CHECK(VisibleDevice(3) == "3");
  }
  const Visible visible("4,6");
  CHECK(VisibleDevice(0) == "4");
  CHECK(VisibleDevice(1) == "6");
  CHECK(VisibleDevice(2) == "");
}

TEST_CASE("NumVisibleDevices: entries of the variable, else the driver's devices", "[device]") {
  const auto dev =
      std::filesystem::temp_directory_path() / ("lathe_devices_" + std::to_string(getpid()));
  std::filesystem::create_directories(dev);
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(dev / name) << "";
  }
  {
    const Visible visible(nullptr);
    CHECK(NumVisibleDevices(dev) == 2);
    CHECK(NumVisibleDevices(dev / "none") == 0);
  }
  for (const auto& [devices, count] :
       {std::pair("4,6,7", 3), std::pair("GPU-1", 1), std::pair("", 0), std::pair("0,-1,2", 1)}) {
    const Visible visible(devices);
    CHECK(NumVisibleDevices(dev) == count);
  }
  std::filesystem::remove_all(dev);
}

TEST_CASE("CheckVisibleDevices: a GPU for each rank, or none at all", "[device]") {
  const Visible visible("0,1");
  CHECK(CheckVisibleDevices(2, "auto").ok());
  CHECK(CheckVisibleDevices(3, "cpu").ok());
  CHECK(CheckVisibleDevices(3, "auto").message() ==
        "device is auto: 3 ranks on this machine need a GPU each, 2 are available; --device cpu "
        "runs all of them on CPUs");
  const Visible none("");
  CHECK(CheckVisibleDevices(3, "auto").ok());
}

}  // namespace
}  // namespace lathe

// Every fail point there is; tests/fault/test_fail_point_list.py compares it with the code.
#pragma once

#include <span>
#include <string_view>

namespace lathe {

struct FailPointInfo {
  // PROCESS.SUBJECT.PLACE; PROCESS is engine, worker or gateway.
  std::string_view name;
  // What has and has not happened there.
  std::string_view place;
  bool can_error = false;
  // What comes next can be left out, as a defect would: tests of the fault tests plant it.
  bool can_skip = false;
};

std::span<const FailPointInfo> FailPointList();

}  // namespace lathe

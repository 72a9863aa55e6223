// The list of all fail points. tests/fault/test_fail_point_list.py compares it with the code.
#pragma once

#include <span>
#include <string_view>

namespace lathe {

struct FailPointInfo {
  // Name in the form PROCESS.SUBJECT.PLACE; PROCESS is engine, worker or gateway.
  std::string_view name;
  // Description: the steps that are done and not done at that point.
  std::string_view place;
  // True if the point can return an error.
  bool can_error = false;
  // True if the next step can be skipped, as a defect would. Tests of the fault tests use it.
  bool can_skip = false;
};

std::span<const FailPointInfo> FailPointList();

}  // namespace lathe

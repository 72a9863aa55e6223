#include "libs/common/config/option_value.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lathe {
namespace {

absl::Status Not(const std::string& text, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not ", what));
}

struct Setter {
  const std::string& text;

  absl::Status operator()(std::string* target) const {
    *target = text;
    return absl::OkStatus();
  }
  absl::Status operator()(int* target) const {
    return absl::SimpleAtoi(text, target) ? absl::OkStatus() : Not(text, "a 32-bit integer");
  }
  absl::Status operator()(int64_t* target) const {
    return absl::SimpleAtoi(text, target) ? absl::OkStatus() : Not(text, "an integer");
  }
  absl::Status operator()(double* target) const {
    return absl::SimpleAtod(text, target) ? absl::OkStatus() : Not(text, "a number");
  }
  absl::Status operator()(bool* target) const {
    return absl::SimpleAtob(text, target) ? absl::OkStatus() : Not(text, "true or false");
  }
  absl::Status operator()(absl::Duration* target) const {
    return absl::ParseDuration(text, target)
               ? absl::OkStatus()
               : Not(text, "a duration with unit, such as 200ms or 1.5s");
  }
  absl::Status operator()(std::vector<std::string>* target) const {
    *target = absl::StrSplit(text, ',', absl::SkipEmpty());
    return absl::OkStatus();
  }
};

struct Writer {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const int* value) const { return absl::StrCat(*value); }
  std::string operator()(const int64_t* value) const { return absl::StrCat(*value); }
  std::string operator()(const double* value) const { return absl::StrCat(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const absl::Duration* value) const { return absl::FormatDuration(*value); }
  std::string operator()(const std::vector<std::string>* value) const {
    return absl::StrJoin(*value, ",");
  }
};

}  // namespace

absl::Status SetOption(const OptionTarget& target, const std::vector<std::string>& values) {
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&target);
      list != nullptr && values.size() != 1) {
    **list = values;
    return absl::OkStatus();
  }
  if (values.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("has ", values.size(), " values, expected 1"));
  }
  return std::visit(Setter{values.front()}, target);
}

std::string OptionText(const OptionTarget& target) { return std::visit(Writer{}, target); }

}  // namespace lathe

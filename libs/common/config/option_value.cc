#include "libs/common/config/option_value.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/status_macros.h"

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
};

template <typename T>
absl::Status SetList(std::vector<T>& target, std::vector<std::string> items, bool keeps_commas) {
  if (items.size() == 1 && !keeps_commas) {
    const std::string text = items.front();
    items = absl::StrSplit(text, ',', absl::SkipEmpty());
  }
  std::vector<T> list(items.size());
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Setter{items[i]}(&list[i]));
  target = std::move(list);
  return absl::OkStatus();
}

// Sets a list from any number of values, and any other variable from one.
struct AnySetter {
  const std::vector<std::string>& values;
  bool keeps_commas;

  template <typename T>
  absl::Status operator()(T* target) const {
    if (values.size() == 1) return Setter{values.front()}(target);
    return absl::InvalidArgumentError(absl::StrCat("has ", values.size(), " values, expected 1"));
  }
  template <typename T>
  absl::Status operator()(std::vector<T>* target) const {
    return SetList(*target, values, keeps_commas);
  }
};

struct Writer {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const int* value) const { return absl::StrCat(*value); }
  std::string operator()(const int64_t* value) const { return absl::StrCat(*value); }
  std::string operator()(const double* value) const { return absl::StrCat(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const absl::Duration* value) const { return absl::FormatDuration(*value); }
  template <typename T>
  std::string operator()(const std::vector<T>* value) const {
    return absl::StrJoin(*value, ",");
  }
};

}  // namespace

bool IsList(const OptionTarget& target) {
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<int>*>(target) ||
         std::holds_alternative<std::vector<double>*>(target);
}

absl::Status SetOption(const OptionTarget& target, const std::vector<std::string>& values,
                       bool keeps_commas) {
  return std::visit(AnySetter{values, keeps_commas}, target);
}

std::string OptionText(const OptionTarget& target) { return std::visit(Writer{}, target); }

}  // namespace lathe

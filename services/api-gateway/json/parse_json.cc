#include "services/api-gateway/json/parse_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/json/list_scanner.h"

namespace lathe::gateway {
namespace {

absl::Status Bad(std::string_view word, std::string message, std::string_view pointer = "") {
  return WithDetail(absl::InvalidArgumentError(message), word, pointer);
}

absl::Status BadJson(std::string_view text, size_t position) {
  // nlohmann counts characters read, so the last one read is the offending one.
  const size_t offset = std::min(position > 0 ? position - 1 : 0, text.size());
  const std::string_view before = text.substr(0, offset);
  const size_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t column = offset - (before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1);
  const std::string where =
      absl::StrFormat("line %d, column %d (byte %d)", line, column + 1, offset);
  // Python's json module writes these words by default.
  for (const char* const name : {"NaN", "Infinity"}) {
    if (absl::StartsWith(AbslView(text.substr(offset)), name)) {
      return Bad("bad_number", absl::StrFormat("%s is not a JSON number: %s", name, where));
    }
  }
  return Bad("bad_json", "body is not JSON: " + where);
}

absl::Status TooDeep() {
  return Bad("too_deep", absl::StrFormat("JSON nested deeper than %d", kMaxJsonDepth));
}

// Checks what nlohmann does not: depth, duplicate keys and integers beyond 64 bits.
class StrictHandler : public nlohmann::json_sax<Json> {
 public:
  explicit StrictHandler(std::string_view text) : text_(text) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(int64_t) override { return Value(); }
  bool number_unsigned(uint64_t) override { return Value(); }
  bool number_float(double, const std::string& token) override {
    if (!Value()) return false;
    if (token.find_first_of(".eE") == token.npos) {
      return Fail(Bad("bad_number", "integer beyond 64 bits at " + Pointer(), Pointer()));
    }
    return true;
  }
  bool string(std::string&) override { return Value(); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return Open(/*is_object=*/true); }
  bool end_object() override {
    levels_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return Open(/*is_object=*/false); }
  bool end_array() override {
    levels_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    levels_.back().name = name;
    if (!levels_.back().keys.insert(name).second) {
      return Fail(Bad("duplicate_key", "key given twice at " + Pointer(), Pointer()));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id != kOutOfRange) return Fail(BadJson(text_, position));
    Value();
    return Fail(
        Bad("bad_number", "number beyond double precision's range at " + Pointer(), Pointer()));
  }

 private:
  struct Level {
    bool is_object = false;
    // Name or index of the current member or element.
    std::string name;
    int64_t index = -1;
    std::set<std::string> keys;
  };

  bool Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }
  // Called before every value.
  bool Value() {
    if (!levels_.empty() && !levels_.back().is_object) ++levels_.back().index;
    return true;
  }
  bool Open(bool is_object) {
    Value();
    if (levels_.size() >= kMaxJsonDepth) {
      return Fail(TooDeep());
    }
    levels_.emplace_back();
    levels_.back().is_object = is_object;
    return true;
  }
  std::string Pointer() const {
    std::string pointer;
    for (const Level& level : levels_) {
      absl::StrAppend(&pointer, "/");
      if (level.is_object) {
        absl::StrAppend(&pointer, level.name.substr(0, 100));
      } else {
        absl::StrAppend(&pointer, level.index);
      }
    }
    return pointer;
  }

  const std::string_view text_;
  std::vector<Level> levels_;
  absl::Status status_;
};

}  // namespace

absl::Status TooManyValues() {
  return Bad("too_many_values",
             absl::StrFormat("JSON has more than the limit of %d values", kMaxJsonValues));
}

absl::Status CheckJsonSize(std::string_view text, int outer_depth) {
  size_t num_values = 0;
  int depth = outer_depth;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = SkipJsonString(text, at);
      continue;
    }
    ++at;
    if (c == ']' || c == '}') --depth;
    const bool opens = c == '[' || c == '{';
    if (opens && ++depth > kMaxJsonDepth) return TooDeep();
    if ((opens || c == ',' || c == ':') && ++num_values > kMaxJsonValues) return TooManyValues();
  }
  return absl::OkStatus();
}

absl::Status CheckJson(std::string_view text) {
  StrictHandler handler(text);
  const bool is_good = Json::sax_parse(text.begin(), text.end(), &handler);
  if (is_good) return absl::OkStatus();
  return handler.status().ok() ? BadJson(text, text.size()) : handler.status();
}

absl::Status NotJson(std::string_view text) {
  const absl::Status where = CheckJson(text);
  return where.ok() ? Bad("bad_json", "body is not JSON") : where;
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lathe::gateway

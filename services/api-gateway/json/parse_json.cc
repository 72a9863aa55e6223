#include "services/api-gateway/json/parse_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"

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

// Checks what nlohmann does not: depth, duplicate keys and integers beyond 64 bits. Builds the
// document if `is_building`.
class StrictHandler : public nlohmann::json_sax<Json> {
 public:
  StrictHandler(std::string_view text, bool is_building)
      : text_(text), is_building_(is_building), builder_(document_, /*allow_exceptions=*/false) {}

  const absl::Status& status() const { return status_; }
  Json TakeDocument() { return std::move(document_); }

  bool null() override { return Value() && (!is_building_ || builder_.null()); }
  bool boolean(bool value) override {
    return Value() && (!is_building_ || builder_.boolean(value));
  }
  bool number_integer(int64_t value) override {
    return Value() && (!is_building_ || builder_.number_integer(value));
  }
  bool number_unsigned(uint64_t value) override {
    return Value() && (!is_building_ || builder_.number_unsigned(value));
  }
  bool number_float(double value, const std::string& token) override {
    if (!Value()) return false;
    if (token.find_first_of(".eE") == token.npos) {
      return Fail(Bad("bad_number", "integer beyond 64 bits at " + Pointer(), Pointer()));
    }
    return !is_building_ || builder_.number_float(value, token);
  }
  bool string(std::string& value) override {
    return Value() && (!is_building_ || builder_.string(value));
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t size) override {
    return Open(/*is_object=*/true) && (!is_building_ || builder_.start_object(size));
  }
  bool end_object() override {
    levels_.pop_back();
    return !is_building_ || builder_.end_object();
  }
  bool start_array(size_t size) override {
    return Open(/*is_object=*/false) && (!is_building_ || builder_.start_array(size));
  }
  bool end_array() override {
    levels_.pop_back();
    return !is_building_ || builder_.end_array();
  }
  bool key(std::string& name) override {
    levels_.back().name = name;
    if (!levels_.back().keys.insert(name).second) {
      return Fail(Bad("duplicate_key", "key given twice at " + Pointer(), Pointer()));
    }
    return !is_building_ || builder_.key(name);
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    return Fail(
        error.id == kOutOfRange
            ? Bad("bad_number", "number beyond double precision's range at " + Pointer(), Pointer())
            : BadJson(text_, position));
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
      return Fail(Bad("too_deep", absl::StrFormat("JSON nested deeper than %d", kMaxJsonDepth)));
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
  const bool is_building_;
  Json document_;
  nlohmann::detail::json_sax_dom_parser<Json> builder_;
  std::vector<Level> levels_;
  absl::Status status_;
};

absl::Status Run(std::string_view text, StrictHandler& handler) {
  const bool is_good = Json::sax_parse(text.begin(), text.end(), &handler);
  if (is_good) return absl::OkStatus();
  return handler.status().ok() ? BadJson(text, text.size()) : handler.status();
}

}  // namespace

absl::StatusOr<Json> ParseJsonBody(std::string_view text) {
  StrictHandler handler(text, /*is_building=*/true);
  if (absl::Status status = Run(text, handler); !status.ok()) return status;
  return handler.TakeDocument();
}

absl::Status ExplainBadJson(std::string_view text) {
  StrictHandler handler(text, /*is_building=*/false);
  return Run(text, handler);
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lathe::gateway

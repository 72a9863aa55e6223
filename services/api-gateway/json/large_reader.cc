#include "services/api-gateway/json/large_reader.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/unknown_field.h"

namespace lathe::gateway {
namespace {

using simdjson::dom::element;

// Bytes of a faulty value that an error shows.
constexpr size_t kMaxShownBytes = 40;

std::string Indexed(const std::string& pointer, size_t index) {
  return absl::StrCat(pointer, "/", index);
}

// Parses a constant document, which lives as long as `parser`. It replaces default-constructed
// simdjson values, which must not be used.
element Constant(std::string_view text, simdjson::dom::parser& parser) {
  return parser.parse(simdjson::padded_string(text)).value_unsafe();
}

element EmptyElement() {
  static simdjson::dom::parser parser;
  static const element empty = Constant("{}", parser);
  return empty;
}

simdjson::dom::array EmptyArray() {
  static simdjson::dom::parser parser;
  static const element empty = Constant("[]", parser);
  return empty.get_array().value_unsafe();
}

const char* TypeName(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "array";
    case simdjson::dom::element_type::OBJECT:
      return "object";
    case simdjson::dom::element_type::STRING:
      return "string";
    case simdjson::dom::element_type::BOOL:
      return "boolean";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "number";
  }
}

absl::Status TooManyNumbers(const std::string& pointer, size_t count, size_t limit) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "field %s has %d numbers, limit is %d", pointer, count, limit)),
                    "invalid_field", pointer);
}

// Explains why `list`, which was not cut out, is not a list of numbers. An empty list is one.
void FailOnElement(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                   std::string_view expected) {
  size_t index = 0;
  for (const element value : list) {
    if (!value.is_number()) {
      return errors.Fail(Indexed(pointer, index),
                         absl::StrCat(AbslView(expected), ", got ", TypeName(value)));
    }
    ++index;
  }
}

template <typename T>
std::string Pack(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                 std::string_view expected, size_t max_count) {
  std::string packed;
  if (!errors.IsCut(list)) {
    FailOnElement(list, pointer, errors, expected);
    return packed;
  }
  const std::string_view text = errors.Take(list);
  // n numbers take at least 2 n - 1 bytes, so shorter texts need no counting.
  if (const size_t most = text.size() / 2 + 1; most > max_count) {
    const size_t count = CountNumbers(text);
    if (count > max_count) {
      errors.Set(TooManyNumbers(pointer, count, max_count));
      return packed;
    }
  }
  if (const auto fault = PackNumbers<T>(text, &packed)) {
    errors.Fail(Indexed(pointer, fault->index),
                absl::StrCat(AbslView(expected), ", got ",
                             AbslView(fault->text.substr(0, kMaxShownBytes))));
  }
  return packed;
}

}  // namespace

// A list that was cut out holds only its index. Any other list that begins with a number has more
// elements.
bool LargeContext::IsCut(simdjson::dom::array list) const {
  return lists_ != nullptr && list.size() == 1 && list.at(0).is<int64_t>();
}

std::string_view LargeContext::Take(simdjson::dom::array list) {
  return lists_->Take(static_cast<size_t>(list.at(0).get_int64().value_unsafe()));
}

void LargeContext::Set(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void LargeContext::Fail(const std::string& pointer, std::string_view expected) {
  Set(WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                     "%s: expected %s", pointer.empty() ? std::string("body") : "field " + pointer,
                     AbslView(expected))),
                 "invalid_field", pointer));
}

LargeObject::LargeObject(element value, std::string pointer, LargeContext& errors)
    : pointer_(std::move(pointer)), errors_(errors) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    errors_.Fail(pointer_, absl::StrCat("an object, got ", TypeName(value)));
    return;
  }
  object_ = object;
  absl::InlinedVector<std::string_view, 16> few;
  absl::flat_hash_set<std::string_view> names;
  for (const auto field : object) {
    // A few names are compared faster than they are hashed.
    if (few.size() < 16) {
      const bool is_new = std::find(few.begin(), few.end(), field.key) == few.end();
      few.push_back(field.key);
      if (is_new) continue;
    } else if (std::find(few.begin(), few.end(), field.key) == few.end() &&
               names.insert(field.key).second) {
      continue;
    }
    const std::string where = PointerTo(field.key.substr(0, 100));
    errors_.Set(WithDetail(absl::InvalidArgumentError("key given twice at " + where),
                           "duplicate_key", where));
  }
}

LargeObject::~LargeObject() {
  if (!object_ || takes_any_name_ || !errors_.ok()) return;
  for (const auto field : *object_) {
    if (std::find(asked_names_.begin(), asked_names_.end(), field.key) != asked_names_.end())
      continue;
    RecordUnknownField(pointer_, field.key, {asked_names_.begin(), asked_names_.end()});
  }
}

std::optional<element> LargeObject::Find(std::string_view name) const {
  if (std::find(asked_names_.begin(), asked_names_.end(), name) == asked_names_.end()) {
    asked_names_.push_back(name);
  }
  element value;
  if (!object_ || object_->at_key(name).get(value) != simdjson::SUCCESS || value.is_null()) {
    return std::nullopt;
  }
  return value;
}

std::string LargeObject::PointerTo(std::string_view name) const {
  return absl::StrCat(pointer_, "/", AbslView(name));
}

std::optional<element> LargeObject::Take(std::string_view name) {
  asked_names_.push_back(name);
  element value;
  if (!object_ || object_->at_key(name).get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

void LargeObject::FailType(std::string_view name, std::string_view expected, element value) {
  errors_.Fail(PointerTo(name), absl::StrCat(AbslView(expected), ", got ", TypeName(value)));
}

simdjson::dom::array LargeObject::Array(std::string_view name) {
  const auto value = Find(name);
  if (value && value->is_array()) return value->get_array().value_unsafe();
  errors_.Fail(PointerTo(name), "a list");
  return EmptyArray();
}

LargeObject LargeObject::Object(std::string_view name) {
  if (!Has(name)) errors_.Fail(PointerTo(name), "an object, but it is missing");
  return ObjectOrEmpty(name);
}

LargeObject LargeObject::ObjectOrEmpty(std::string_view name) {
  return LargeObject(Find(name).value_or(EmptyElement()), PointerTo(name), errors_);
}

std::string LargeObject::String(std::string_view name) {
  if (!Has(name)) errors_.Fail(PointerTo(name), "a string, but it is missing");
  return StringOr(name, "");
}

int64_t LargeObject::Int(std::string_view name) {
  if (!Has(name)) errors_.Fail(PointerTo(name), "an integer, but it is missing");
  return IntOr(name, 0);
}

std::string LargeObject::StringOf(std::string_view name, element value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) FailType(name, "a string", value);
  return std::string(text);
}

int64_t LargeObject::IntOf(std::string_view name, element value) {
  int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS) FailType(name, "a 64-bit integer", value);
  return number;
}

uint64_t LargeObject::SeedOf(std::string_view name, element value) {
  uint64_t number = 0;
  if (value.get(number) == simdjson::SUCCESS) return number;
  return static_cast<uint64_t>(IntOf(name, value));
}

double LargeObject::NumberOf(std::string_view name, element value) {
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS) FailType(name, "a finite number", value);
  return number;
}

bool LargeObject::BoolOf(std::string_view name, element value) {
  bool flag = false;
  if (value.get(flag) != simdjson::SUCCESS) FailType(name, "a boolean", value);
  return flag;
}

std::string LargeObject::StringOr(std::string_view name, std::string fallback) {
  const auto value = Find(name);
  return value ? StringOf(name, *value) : std::move(fallback);
}

int64_t LargeObject::IntOr(std::string_view name, int64_t fallback) {
  const auto value = Find(name);
  return value ? IntOf(name, *value) : fallback;
}

absl::StatusOr<element> ParseLargeJson(simdjson::dom::parser& parser, std::string_view text,
                                       int outer_depth) {
  element root;
  auto error = simdjson::SUCCESS;
  if (absl::Status size = CheckJsonSize(text, outer_depth); !size.ok()) return size;
  // Sets the depth limit together with the capacity. A parser that is large enough has its limit
  // already.
  if (parser.capacity() < text.size()) {
    error = parser.allocate(text.size(), kMaxJsonDepth - outer_depth);
  }
  if (error == simdjson::SUCCESS) error = parser.parse(text.data(), text.size()).get(root);
  if (error == simdjson::SUCCESS) return root;
  if (absl::Status where = CheckJson(text); !where.ok()) return where;
  return WithDetail(absl::InvalidArgumentError(
                        absl::StrFormat("body is not JSON: %s", simdjson::error_message(error))),
                    "bad_json");
}

absl::Status ReadLargeJson(simdjson::dom::parser& parser, std::string_view text, int outer_depth,
                           LargeContext& errors,
                           absl::FunctionRef<void(element, LargeContext&)> read) {
  NumberLists lists;
  if (lists.Cut(text, NumberLists::Ends::kAtBracket)) {
    const absl::StatusOr<element> root = ParseLargeJson(parser, lists.rest(), outer_depth);
    LargeContext context(lists);
    if (root.ok()) read(*root, context);
    if (root.ok() && context.ok() && lists.AreSound()) return absl::OkStatus();
  }
  if (lists.is_full()) return TooManyValues();
  if (!lists.Cut(text, NumberLists::Ends::kChecked) || !lists.AreSound()) {
    return lists.is_full() ? TooManyValues() : NotJson(text);
  }
  const absl::StatusOr<element> root = ParseLargeJson(parser, lists.rest(), outer_depth);
  if (!root.ok()) {
    // The place in `text` is another than that in the rest, but a text of too many values is not
    // parsed again.
    if (ErrorCode(root.status()) == "too_many_values") return root.status();
    const absl::Status where = CheckJson(text);
    return where.ok() ? root.status() : where;
  }
  LargeContext context(lists);
  read(*root, context);
  errors.Set(context.status());
  return absl::OkStatus();
}

std::string PackInt32(simdjson::dom::array list, const std::string& pointer, LargeContext& errors) {
  return Pack<int32_t>(list, pointer, errors, "a 32-bit integer", kMaxListNumbers);
}

std::string PackInt64(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                      size_t max_count) {
  return Pack<int64_t>(list, pointer, errors, "a 64-bit integer", max_count);
}

std::string PackFloat32(simdjson::dom::array list, const std::string& pointer,
                        LargeContext& errors) {
  return Pack<float>(list, pointer, errors, "a number", kMaxListNumbers);
}

}  // namespace lathe::gateway

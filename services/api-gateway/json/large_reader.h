// Reads large JSON bodies (prompts, training data); the only user of simdjson.
#pragma once

#include <google/protobuf/repeated_field.h>
#include <simdjson.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/json/number_lists.h"

namespace lathe::gateway {

// State that all readers of one body share: its first error and the lists cut out of it.
class LargeContext {
 public:
  LargeContext() = default;
  // `lists` have been cut out of the text. They must outlive the context.
  explicit LargeContext(NumberLists& lists) : lists_(&lists) {}

  // Returns true if `list` stands for a list of numbers that was cut out.
  bool IsCut(simdjson::dom::array list) const;
  // Returns the text between the brackets of such a list.
  std::string_view Take(simdjson::dom::array list);

  // Records InvalidArgument `invalid_field` with the JSON pointer, unless there is an error
  // already.
  void Fail(const std::string& pointer, std::string_view expected);
  // Records `status`, unless there is an error already.
  void Set(absl::Status status);
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  NumberLists* lists_ = nullptr;
  absl::Status status_;
};

// Reads members of one object. A member that is null counts as absent. Must not outlive the parser.
class LargeObject {
 public:
  // Duplicate keys are an error.
  LargeObject(simdjson::dom::element element, std::string pointer, LargeContext& errors);
  // Logs members whose names were never asked for (RecordUnknownField), unless there was an error.
  ~LargeObject();
  LargeObject(const LargeObject&) = delete;
  LargeObject& operator=(const LargeObject&) = delete;

  bool Has(std::string_view name) const { return Find(name).has_value(); }
  // Returns unset if the member is absent or null. `name` must be a constant.
  std::optional<simdjson::dom::element> Find(std::string_view name) const;
  // Returns the list. If the member is absent or not a list, returns an empty list and records an
  // error.
  simdjson::dom::array Array(std::string_view name);
  // Returns a reader of the member. If it is absent or not an object, the reader has no members and
  // an error is recorded.
  LargeObject Object(std::string_view name);
  // The same, but an absent member is an empty object.
  LargeObject ObjectOrEmpty(std::string_view name);
  // Returns the member, which may be null; unset if it is absent. Called once for a name.
  std::optional<simdjson::dom::element> Take(std::string_view name);
  // Returns `value`, which is the member `name`, as a type. Another type is an error.
  std::string StringOf(std::string_view name, simdjson::dom::element value);
  int64_t IntOf(std::string_view name, simdjson::dom::element value);
  // Negative numbers wrap.
  uint64_t SeedOf(std::string_view name, simdjson::dom::element value);
  double NumberOf(std::string_view name, simdjson::dom::element value);
  bool BoolOf(std::string_view name, simdjson::dom::element value);

  // Required members: an absent member is an error.
  std::string String(std::string_view name);
  int64_t Int(std::string_view name);
  // Optional members: an absent member gives `fallback` or unset.
  std::string StringOr(std::string_view name, std::string fallback);
  int64_t IntOr(std::string_view name, int64_t fallback);

  std::string PointerTo(std::string_view name) const;
  LargeContext& errors() { return errors_; }
  // Returns all members, and marks all names as known. Unset if the value is not an object.
  const std::optional<simdjson::dom::object>& members() {
    takes_any_name_ = true;
    return object_;
  }

 private:
  // Records that `value`, the member `name`, has another type.
  void FailType(std::string_view name, std::string_view expected, simdjson::dom::element value);

  std::optional<simdjson::dom::object> object_;
  // Names are constants, so views suffice.
  mutable absl::InlinedVector<std::string_view, 16> asked_names_;
  bool takes_any_name_ = false;
  const std::string pointer_;
  LargeContext& errors_;
};

// Parses `text`, which is nested `outer_depth` levels deep, with `parser`. Errors are those of
// CheckJson, except that LargeObject detects duplicate keys.
absl::StatusOr<simdjson::dom::element> ParseLargeJson(simdjson::dom::parser& parser,
                                                      std::string_view text, int outer_depth = 0);

// Reads `text`, which is nested `outer_depth` levels deep in a body, with its lists of numbers cut
// out. Calls `read` once. After an error it cuts lists with care and calls `read` again, which must
// overwrite what it has read before. Returns the errors of CheckJson with places in `text`. Errors
// in fields go to `errors`.
absl::Status ReadLargeJson(simdjson::dom::parser& parser, std::string_view text, int outer_depth,
                           LargeContext& errors,
                           absl::FunctionRef<void(simdjson::dom::element, LargeContext&)> read);

// Upper bound of the numbers in one list, 32 MiB of int64.
inline constexpr size_t kMaxListNumbers = 4 << 20;

// Packs a list that ReadLargeJson has cut out. Errors name the element, and its value or the bound.
std::string PackInt32(simdjson::dom::array list, const std::string& pointer, LargeContext& errors);
std::string PackInt64(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                      size_t max_count = kMaxListNumbers);
// Rounds each number to the nearest float.
std::string PackFloat32(simdjson::dom::array list, const std::string& pointer,
                        LargeContext& errors);

// Copies packed numbers of T.
template <typename T>
void Unpack(const std::string& packed, google::protobuf::RepeatedField<T>* numbers) {
  numbers->Resize(static_cast<int>(packed.size() / sizeof(T)), 0);
  std::memcpy(numbers->mutable_data(), packed.data(), packed.size());
}

}  // namespace lathe::gateway

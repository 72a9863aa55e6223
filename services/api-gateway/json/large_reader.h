// Large JSON bodies (prompts, training data); the only user of simdjson.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::gateway {

// What all readers of one body share.
class LargeContext {
 public:
  LargeContext() = default;
  // Of a text in which `lists` (see CutNumberLists) have been replaced; they must outlive it.
  explicit LargeContext(const std::vector<std::string_view>& lists) : cut_lists_(&lists) {}

  // The numbers of a list that was cut out, as text. Unset: `list` is what stands there.
  std::optional<std::string_view> CutList(simdjson::dom::array list) const;

  // Where errors go. The first sticks: InvalidArgument `invalid_field` with the JSON pointer.
  void Fail(const std::string& pointer, std::string_view expected);
  void Set(absl::Status status);
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  const std::vector<std::string_view>* cut_lists_ = nullptr;
  absl::Status status_;
};

// Members of one object; null counts as absent. Must not outlive the parser.
class LargeObject {
 public:
  // Duplicate keys are an error.
  LargeObject(simdjson::dom::element element, std::string pointer, LargeContext& errors);
  // Names that nobody asked for go to the log (NoteUnknownField).
  ~LargeObject();
  LargeObject(const LargeObject&) = delete;
  LargeObject& operator=(const LargeObject&) = delete;

  bool Has(std::string_view name) const { return Find(name).has_value(); }
  // Unset when absent. `name` must be a constant.
  std::optional<simdjson::dom::element> Find(std::string_view name) const;
  // Empty, and an error, when absent or no list.
  simdjson::dom::array Array(std::string_view name);
  // An object that reads as empty, and an error, when absent or no object.
  LargeObject Object(std::string_view name);

  // Required.
  std::string String(std::string_view name);
  int64_t Int(std::string_view name);
  // Absent: the default, or unset.
  std::string StringOr(std::string_view name, std::string fallback);
  int64_t IntOr(std::string_view name, int64_t fallback);
  // Null is an error here: it is what clients make of NaN and infinity.
  double NumberOr(std::string_view name, double fallback);
  bool BoolOr(std::string_view name, bool fallback);
  std::optional<int64_t> OptionalInt(std::string_view name);
  // Negative numbers wrap.
  std::optional<uint64_t> OptionalSeed(std::string_view name);

  std::string PointerTo(std::string_view name) const;
  LargeContext& errors() { return errors_; }
  // All of them, whatever their names; unset when it is no object.
  const std::optional<simdjson::dom::object>& members() {
    takes_any_name_ = true;
    return object_;
  }

 private:
  std::optional<simdjson::dom::object> object_;
  // Constants all of them, so views suffice.
  mutable absl::InlinedVector<std::string_view, 16> asked_names_;
  bool takes_any_name_ = false;
  const std::string pointer_;
  LargeContext& errors_;
};

// Parses `text` with `parser`; the same refusals as ParseJsonBody.
absl::StatusOr<simdjson::dom::element> ParseLargeJson(simdjson::dom::parser& parser,
                                                      const std::string& text);

// Parses `piece`, a part of `text` that stands `outer_depth` levels deep in it. What is wrong is
// said by its place in `text`.
absl::StatusOr<simdjson::dom::element> ParseLargePiece(simdjson::dom::parser& parser,
                                                       const std::string& text,
                                                       std::string_view piece, int outer_depth);

// The integers of `list` as packed int32 or int64, little-endian. An element of another type or
// range is an error naming its index.
std::string PackInt32(simdjson::dom::array list, const std::string& pointer, LargeContext& errors);
std::string PackInt64(simdjson::dom::array list, const std::string& pointer, LargeContext& errors);
// Numbers as packed float32.
std::string PackFloat32(simdjson::dom::array list, const std::string& pointer,
                        LargeContext& errors);

}  // namespace lathe::gateway

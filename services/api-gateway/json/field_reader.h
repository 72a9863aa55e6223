// Reads members of a small JSON object by name and type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Reader of one JSON object. It keeps the first error, so that a caller reads a whole message and
// checks once at the end:
//
//   FieldReader in(body);
//   request.set_session_id(in.String("session_id"));
//   RETURN_IF_ERROR(in.status());
//
// A member that is null counts as absent. Errors are InvalidArgument `invalid_field` with the JSON
// pointer. Numbers given as strings are errors.
class FieldReader {
 public:
  // `object` must outlive the reader. It is an error if `object` is not a JSON object. `pointer` is
  // its JSON pointer in messages.
  explicit FieldReader(const Json& object, std::string pointer = "");
  // Logs members whose names were never asked for (NoteUnknownField), unless there was an error.
  ~FieldReader();
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  bool Has(const std::string& name) const;

  // Required members: an absent member is an error.
  std::string String(const std::string& name);
  int64_t Int(const std::string& name);
  double Number(const std::string& name);

  // Optional members: an absent member gives `fallback` or unset.
  std::string StringOr(const std::string& name, std::string fallback);
  int64_t IntOr(const std::string& name, int64_t fallback);
  // Null is an error, because clients write NaN and infinity as null.
  double NumberOr(const std::string& name, double fallback);
  bool BoolOr(const std::string& name, bool fallback);
  std::optional<std::string> OptionalString(const std::string& name);
  std::optional<int64_t> OptionalInt(const std::string& name);
  // Negative numbers wrap, as they do in the SDK's own uint64 fields.
  std::optional<uint64_t> OptionalSeed(const std::string& name);

  // Returns the member, or an empty object if it is absent. Another type is an error.
  const Json& Object(const std::string& name);
  // Returns the JSON pointer of a member.
  std::string PointerTo(const std::string& name) const;

  const absl::Status& status() const { return status_; }
  // Records an error about a member, unless there is one already.
  void Fail(const std::string& name, const std::string& expected);

 private:
  // Returns null if the member is absent or null.
  const Json* Find(const std::string& name) const;

  const Json& object_;
  const std::string pointer_;
  mutable std::vector<std::string> asked_names_;
  absl::Status status_;
};

}  // namespace lathe::gateway

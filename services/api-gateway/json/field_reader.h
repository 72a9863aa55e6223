// Members of a small JSON object, by name and type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// The first error sticks, so that a message is read in one go and checked once at the end:
//
//   FieldReader in(body);
//   request.set_session_id(in.String("session_id"));
//   RETURN_IF_ERROR(in.status());
//
// A member that is null counts as absent. Errors are InvalidArgument `invalid_field` with the JSON
// pointer; numbers given as strings are refused.
class FieldReader {
 public:
  // `object` must outlive it; anything but an object is an error. `pointer` names it in messages.
  explicit FieldReader(const Json& object, std::string pointer = "");
  // Names that nobody asked for go to the log (NoteUnknownField).
  ~FieldReader();
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  bool Has(const std::string& name) const;

  // Required.
  std::string String(const std::string& name);
  int64_t Int(const std::string& name);
  double Number(const std::string& name);

  // Absent: the default, or unset.
  std::string StringOr(const std::string& name, std::string fallback);
  int64_t IntOr(const std::string& name, int64_t fallback);
  // Null is an error here: it is what clients make of NaN and infinity.
  double NumberOr(const std::string& name, double fallback);
  bool BoolOr(const std::string& name, bool fallback);
  std::optional<std::string> OptionalString(const std::string& name);
  std::optional<int64_t> OptionalInt(const std::string& name);
  // Negative numbers wrap, as Python's do in the SDK's own uint64 fields.
  std::optional<uint64_t> OptionalSeed(const std::string& name);

  // The member, or an empty object when it is absent; an error when it is no object.
  const Json& Object(const std::string& name);
  // JSON pointer of a member.
  std::string PointerTo(const std::string& name) const;

  const absl::Status& status() const { return status_; }
  // Records an error about a member, unless there is one already.
  void Fail(const std::string& name, const std::string& expected);

 private:
  // Null when absent.
  const Json* Find(const std::string& name) const;

  const Json& object_;
  const std::string pointer_;
  mutable std::vector<std::string> asked_names_;
  absl::Status status_;
};

}  // namespace lathe::gateway

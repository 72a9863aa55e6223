// Walks over a protobuf body without parsing it. Finds where a body is damaged, and how much memory
// its parts will take, before the parser allocates any.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "libs/common/request_bounds.h"

namespace lathe::gateway {

// Parts of a body.
struct WireSize {
  // Messages at any depth, with the entries of maps and unknown fields that have a length.
  int64_t num_messages = 0;
  // Other fields; each number of a packed list counts.
  int64_t num_fields = 0;

  // Bytes that the parts take once they are parsed, without the contents of strings.
  int64_t PartBytes() const {
    return num_messages * kMessagePartBytes + num_fields * kFieldPartBytes;
  }
};

struct WireLimits {
  // Field of the outermost message that holds the datums; null: there is none.
  const google::protobuf::FieldDescriptor* datums = nullptr;
  int64_t max_datums = kMaxDatums;
  int64_t max_datum_messages = kMaxDatumMessages;
  int64_t max_part_bytes = 0;
};

// Walks over `body`, a serialized message of type `descriptor`, and stops at its first fault. The
// time is linear in the bytes walked over. Errors are InvalidArgument:
//   bad_proto         with byte and field path: "protobuf body is damaged at byte 31, in
//                     data.model_input: length 500 exceeds the 12 bytes left". Text that is not
//                     UTF-8 is not found.
//   too_many_datums   over limits.max_datums
//   too_many_parts    over limits.max_datum_messages or limits.max_part_bytes
absl::StatusOr<WireSize> MeasureProto(std::string_view body,
                                      const google::protobuf::Descriptor& descriptor,
                                      const WireLimits& limits);

}  // namespace lathe::gateway

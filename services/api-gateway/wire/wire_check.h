// Finds where a protobuf body is damaged. protobuf's own parser only reports that it is.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string_view>

#include "absl/status/status.h"

namespace lathe::gateway {

// Returns InvalidArgument `bad_proto` with the byte and the field path of the first fault in
// `body`, a serialized message of type `descriptor`: "protobuf body is damaged at byte 31, in
// data.model_input: length 500 exceeds the 12 bytes left". If there is no such fault, the message
// says that a string is not UTF-8, without its place. Call it only if parsing failed.
absl::Status ExplainBadProto(std::string_view body, const google::protobuf::Descriptor& descriptor);

}  // namespace lathe::gateway

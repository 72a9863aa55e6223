// Finds where a protobuf body is damaged; protobuf's own parser only says that it is.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string_view>

#include "absl/status/status.h"

namespace lathe::gateway {

// InvalidArgument `bad_proto` with the byte and the field path of the first fault in `body`, a
// serialized message of type `descriptor`: "protobuf body is damaged at byte 31, in
// data.model_input: length 500 exceeds the 12 bytes left". Strings that are no UTF-8 are reported
// without the place.
absl::Status ExplainBadProto(std::string_view body, const google::protobuf::Descriptor& descriptor);

}  // namespace lathe::gateway

#include "services/engine/store/operation_kind.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {
namespace {

TEST_CASE("Operation kinds: the table has every kind of the protocol", "[rpc]") {
  CHECK(std::size(kOperations) == v1::OperationKind_MAX);
  for (const OperationTraits& traits : kOperations) {
    const auto proto = static_cast<v1::OperationKind>(traits.kind);
    const std::string name = absl::AsciiStrToUpper(std::string(traits.name));
    CHECK(v1::OperationKind_Name(proto) == absl::StrCat("OPERATION_KIND_", name));
  }
}

}  // namespace
}  // namespace lathe::engine

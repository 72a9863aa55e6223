#include "libs/common/listener/exposure.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe {
namespace {

TEST_CASE("Exposure: only this machine reaches a loopback address", "[listener]") {
  CHECK(IsLoopback("127.0.0.1:8080"));
  CHECK(IsLoopback("127.9.9.9:0"));
  CHECK(IsLoopback("[::1]:80"));
  CHECK(IsLoopback("localhost:80"));
  CHECK(IsLoopback("unix:/run/engine.sock"));
  CHECK_FALSE(IsLoopback("0.0.0.0:8080"));
  CHECK_FALSE(IsLoopback("127.example.org:8080"));
  CHECK_FALSE(IsLoopback("[::]:8080"));
  CHECK_FALSE(IsLoopback("10.0.0.1:8080"));
  CHECK_FALSE(IsLoopback("128.0.0.1:8080"));
  CHECK_FALSE(IsLoopback(":8080"));
}

TEST_CASE("Exposure: an open address needs TLS or the switch", "[listener]") {
  const Exposure open{.option = "listen", .address = "0.0.0.0:80"};
  const absl::Status status = CheckExposure(open);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(status) == "listen");
  Exposure with_tls = open;
  with_tls.has_tls = true;
  CHECK(CheckExposure(with_tls).ok());
  Exposure on_purpose = open;
  on_purpose.insecure_i_know = true;
  CHECK(CheckExposure(on_purpose).ok());
}

}  // namespace
}  // namespace lathe

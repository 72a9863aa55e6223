#include "services/api-gateway/auth/failed_attempts.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

const auto kOne = boost::asio::ip::make_address("192.0.2.1");
const auto kOther = boost::asio::ip::make_address("2001:db8::");

void Refuse(FailedAttempts& attempts, int count) {
  for (int i = 0; i < count; ++i) attempts.Count(kOne);
}

TEST_CASE("Over its bound an address may try keys at a pace, others as before", "[auth]") {
  FakeClock clock;
  FailedAttempts attempts(clock, 5);
  Refuse(attempts, 4);
  CHECK(attempts.Admit(kOne).ok());
  CHECK(attempts.Admit(kOne).ok());
  Refuse(attempts, 1);
  CHECK(attempts.Admit(kOne).ok());
  const absl::Status refusal = attempts.Admit(kOne);
  CHECK(refusal.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ErrorCode(refusal) == "too_many_attempts");
  CHECK_THAT(std::string(refusal.message()), Catch::Contains("limit is 5"));
  CHECK(attempts.Admit(kOther).ok());
  clock.Advance(FailedAttempts::kPace);
  CHECK(attempts.Admit(kOne).ok());
  CHECK_FALSE(attempts.Admit(kOne).ok());
}

TEST_CASE("A minute after the first refused key it begins anew", "[auth]") {
  FakeClock clock;
  FailedAttempts attempts(clock, 2);
  Refuse(attempts, 3);
  CHECK(attempts.Admit(kOne).ok());
  CHECK_FALSE(attempts.Admit(kOne).ok());
  clock.Advance(FailedAttempts::kWindow);
  CHECK(attempts.Admit(kOne).ok());
  CHECK(attempts.Admit(kOne).ok());
}

TEST_CASE("The table of addresses is bounded, and room is made for new ones", "[auth]") {
  FakeClock clock;
  FailedAttempts attempts(clock, 2);
  const auto nth = [](size_t i) {
    return boost::asio::ip::address(boost::asio::ip::address_v4(static_cast<uint32_t>(i)));
  };
  for (size_t i = 0; i < FailedAttempts::kMaxAddresses; ++i) attempts.Count(nth(i));
  Refuse(attempts, 2);
  CHECK(attempts.Admit(kOne).ok());
  CHECK(attempts.Admit(kOne).ok());
  clock.Advance(FailedAttempts::kWindow);
  Refuse(attempts, 2);
  CHECK(attempts.Admit(kOne).ok());
  CHECK_FALSE(attempts.Admit(kOne).ok());
}

TEST_CASE("Without a bound nothing is counted", "[auth]") {
  FakeClock clock;
  FailedAttempts attempts(clock, 0);
  Refuse(attempts, 1000);
  for (int i = 0; i < 3; ++i) CHECK(attempts.Admit(kOne).ok());
}

}  // namespace
}  // namespace lathe::gateway

#include "libs/common/metrics/host_watch.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>

#include "absl/time/clock.h"
#include "libs/common/listener/testing/test_certificates.h"
#include "libs/common/listener/tls_files.h"

namespace lathe {
namespace {

std::string PageOf(const HostWatch& watch) {
  FamilyList list;
  watch.AddTo("lathe_test", list);
  return prometheus::TextSerializer().Serialize(list.Take());
}

double ValueOf(const std::string& page, const std::string& series) {
  std::smatch match;
  INFO(page);
  REQUIRE(std::regex_search(page, match, std::regex(series + " ([0-9.e+]+)\n")));
  return std::stod(match[1]);
}

TEST_CASE("A directory's file system shows its room", "[metrics]") {
  const HostWatch watch({.directories = {{"data", "/"}, {"gone", "/no/such/directory"}}});
  const std::string page = PageOf(watch);
  const double free = ValueOf(page, "lathe_test_disk_free_bytes\\{directory=\"data\"\\}");
  const double all = ValueOf(page, "lathe_test_disk_bytes\\{directory=\"data\"\\}");
  CHECK(free > 0);
  CHECK(free < all);
  CHECK(page.find("gone") == std::string::npos);
}

TEST_CASE("A certificate file shows when its first certificate ends", "[metrics]") {
  const TestCertificates certificates;
  const std::string path = certificates.cert("server");
  const std::string page =
      PageOf(HostWatch({.directories = {}, .certificates = {{"tls_cert", path}}}));
  const double end = ValueOf(
      page, "lathe_test_certificate_expiry_timestamp_seconds\\{certificate=\"tls_cert\"\\}");
  const auto now = static_cast<double>(absl::ToUnixSeconds(absl::Now()));
  CHECK(end > now + 3000);
  CHECK(end <= now + 3600);
  // The rest of a chain file counts too, up to what cannot be read.
  std::ofstream(path, std::ios::app) << "-----BEGIN CERTIFICATE-----\nnone\n";
  CHECK(EarliestEnd(path).ok());
  std::ofstream(path) << "none";
  CHECK(absl::IsInvalidArgument(EarliestEnd(path).status()));
}

TEST_CASE("Without certificates the gauge has no series", "[metrics]") {
  const std::string page =
      PageOf(HostWatch({.directories = {}, .certificates = {{"tls_cert", ""}, {"other", "/no"}}}));
  CHECK(page.find("# TYPE lathe_test_certificate_expiry_timestamp_seconds gauge") !=
        std::string::npos);
  CHECK(page.find("\nlathe_test_certificate") == std::string::npos);
  CHECK(page.find("disk") == std::string::npos);
}

}  // namespace
}  // namespace lathe

#include "libs/common/metrics/host_watch.h"

#include <fcntl.h>
#include <prometheus/text_serializer.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Returns the page once it has a line that begins with `series`.
std::string PageWith(const HostWatch& watch, const std::string& series) {
  for (int i = 0; i < 3000; ++i) {
    std::string page = PageOf(watch);
    if (page.find("\n" + series) != std::string::npos) return page;
    absl::SleepFor(absl::Milliseconds(10));
  }
  FAIL("no " << series);
  return "";
}

double ValueOf(const std::string& page, const std::string& series) {
  std::smatch match;
  INFO(page);
  REQUIRE(std::regex_search(page, match, std::regex(series + " ([0-9.e+]+)\n")));
  return std::stod(match[1]);
}

TEST_CASE("A directory's file system shows its room", "[metrics]") {
  const HostWatch watch({.directories = {{"data", "/"}, {"gone", "/no/such/directory"}}});
  const std::string page = PageWith(watch, "lathe_test_disk_free_bytes");
  const double free = ValueOf(page, "lathe_test_disk_free_bytes\\{directory=\"data\"\\}");
  const double all = ValueOf(page, "lathe_test_disk_bytes\\{directory=\"data\"\\}");
  CHECK(free > 0);
  CHECK(free < all);
  CHECK(page.find("gone") == std::string::npos);
}

TEST_CASE("A certificate file shows when its first certificate ends", "[metrics]") {
  const TestCertificates certificates;
  const std::string path = certificates.cert("server");
  const HostWatch watch({.directories = {}, .certificates = {{"tls_cert", path}}});
  const std::string page = PageWith(watch, "lathe_test_certificate_expiry_timestamp_seconds");
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

TEST_CASE("A file system that hangs holds up neither the start nor the page", "[metrics]") {
  char folder[] = "/tmp/lathe-host-watch-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string pipe = std::string(folder) + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  {
    // A pipe that nobody writes to stands for a file on such a file system.
    const HostWatch watch({.directories = {{"data", "/"}}, .certificates = {{"tls_cert", pipe}}});
    CHECK(PageOf(watch).find("# TYPE lathe_test_disk_bytes gauge") != std::string::npos);
    CHECK(PageOf(watch).find("\nlathe_test_disk_bytes{") == std::string::npos);
    const int writer = open(pipe.c_str(), O_WRONLY);  // waits for the reader, and lets it go on
    REQUIRE(writer >= 0);
    close(writer);
    PageWith(watch, "lathe_test_disk_bytes{");
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("Without certificates the gauge has no series", "[metrics]") {
  const TestCertificates certificates;
  const std::string series = "lathe_test_certificate_expiry_timestamp_seconds";
  const std::string none =
      PageOf(HostWatch({.directories = {}, .certificates = {{"tls_cert", ""}}}));
  CHECK(none.find("# TYPE " + series + " gauge") != std::string::npos);
  CHECK(none.find("\n" + series) == std::string::npos);
  const HostWatch watch(
      {.directories = {},
       .certificates = {
           {"tls_cert", ""}, {"other", "/no"}, {"worker", certificates.cert("server")}}});
  const std::string page = PageWith(watch, series);
  CHECK(page.find("\n" + series) == page.rfind("\n" + series));
  CHECK(page.find("disk") == std::string::npos);
}

}  // namespace
}  // namespace lathe

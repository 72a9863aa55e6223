// Tests of /ui over real sockets. They hold with and without the dashboard in the build.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/api-gateway/assets/embedded_file.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'";

HttpAnswer Get(HttpClient& client, const std::string& path, std::vector<Header> headers = {},
               const std::string& method = "GET") {
  headers.push_back({"x-api-key", ""});
  return client.Exchange(method, path, "", headers);
}

void CheckSecurity(const HttpAnswer& answer) {
  CHECK(answer.headers.at("content-security-policy") == kPolicy);
  CHECK(answer.headers.at("x-content-type-options") == "nosniff");
  CHECK(answer.headers.at("x-frame-options") == "DENY");
  CHECK(answer.headers.at("referrer-policy") == "same-origin");
  CHECK(answer.headers.at("cross-origin-opener-policy") == "same-origin");
  CHECK(answer.headers.at("cross-origin-resource-policy") == "same-origin");
  CHECK(answer.headers.count("permissions-policy") == 1);
  CHECK(answer.headers.count("access-control-allow-origin") == 0);
}

TEST_CASE("Dashboard: every address of it is the page, without a key", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const HttpAnswer page = Get(client, "/ui");
  CHECK(page.status == 200);
  CHECK(page.headers.at("content-type") == "text/html; charset=utf-8");
  CHECK(page.headers.at("cache-control") == "no-cache");
  CHECK(absl::StrContains(page.body, "<title>Lathe</title>"));
  CHECK_FALSE(absl::StrContains(page.body, "://"));
  for (const char* path :
       {"/ui", "/ui/runs", "/ui/runs/a%3Atrain%3A0", "/ui/checkpoints?q=x", "/ui/nonsense"}) {
    INFO(path);
    const HttpAnswer answer = Get(client, path);
    CHECK(answer.status == 200);
    CHECK(answer.body == page.body);
    CheckSecurity(answer);
  }
  const HttpAnswer root = Get(client, "/");
  CHECK(root.status == 303);
  CHECK(root.headers.at("location") == "/ui");
}

TEST_CASE("Dashboard: each file is served under its name and for good", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  for (const EmbeddedFile& file : DashboardFiles()) {
    if (!file.path.starts_with("assets/")) continue;
    const std::string path = "/ui/" + std::string(file.path);
    INFO(path);
    const HttpAnswer answer = Get(client, path);
    CHECK(answer.status == 200);
    CHECK(answer.body == file.bytes);
    CHECK(answer.headers.at("content-type") == file.content_type);
    CHECK(answer.headers.at("cache-control") == "public, max-age=31536000, immutable");
    CheckSecurity(answer);
  }
}

TEST_CASE("Dashboard: the licences of its parts are served as text", "[gateway][dashboard]") {
  const EmbeddedFile* const licenses = FindFile(DashboardFiles(), "licenses.txt");
  if (licenses == nullptr) return;  // built without the dashboard
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const HttpAnswer answer = Get(client, "/ui/licenses");
  CHECK(answer.headers.at("content-type") == "text/plain; charset=utf-8");
  CHECK(absl::StrContains(answer.body, "SIL OPEN FONT LICENSE"));
  CHECK(absl::StrContains(answer.body, "preact\n"));
  CheckSecurity(answer);
  CHECK(Get(client, "/ui/runs/licenses").headers.at("content-type") == "text/html; charset=utf-8");
}

TEST_CASE("Dashboard: HEAD answers the head alone", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  client.SendRaw("HEAD /ui HTTP/1.1\r\nHost: gateway.test:80\r\nConnection: close\r\n\r\n");
  const std::string all = client.ReceiveAll();
  CHECK(all.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(absl::StrContains(all, "Content-Security-Policy: "));
  CHECK(all.ends_with("\r\n\r\n"));
  CHECK(all.find("\r\n\r\n") == all.size() - 4);
}

TEST_CASE("Dashboard: an unchanged page is not sent again", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const std::string etag = Get(client, "/ui").headers.at("etag");
  const HttpAnswer same = Get(client, "/ui/runs", {{"If-None-Match", etag}});
  CHECK(same.status == 304);
  CHECK(same.headers.count("content-length") == 0);
  CheckSecurity(same);
  // The connection goes on in step.
  CHECK(Get(client, "/ui", {{"If-None-Match", "\"other\""}}).status == 200);
  const HttpAnswer compressed = Get(client, "/ui", {{"Accept-Encoding", "gzip"}});
  CHECK(compressed.headers.at("content-encoding") == "gzip");
  CHECK(compressed.body.starts_with("\x1f\x8b"));
}

TEST_CASE("Dashboard: no name leads to another file", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  for (const char* name :
       {"..%2findex.html", "%2e%2e%2findex.html", "..%5cindex.html", "%2fetc%2fpasswd",
        "index.html", "..%2f..%2fdocs_page%2fopenapi.json", "%00", "main-", ".."}) {
    INFO(name);
    HttpClient client(gateway.port());
    const HttpAnswer answer = Get(client, absl::StrCat("/ui/assets/", name));
    CHECK((answer.status == 404 || answer.status == 400));
    CHECK(answer.headers.at("content-type") == "application/json");
    if (answer.status == 404) CHECK(answer.headers.at("cache-control") == "no-store");
    if (answer.status == 404) CheckSecurity(answer);
  }
}

TEST_CASE("Dashboard: only GET and HEAD reach it", "[gateway][dashboard]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  for (const char* method : {"POST", "PUT", "DELETE"}) {
    INFO(method);
    HttpClient client(gateway.port());
    CHECK(Get(client, "/ui/runs", {}, method).status == 405);
  }
}

}  // namespace
}  // namespace lathe::gateway

#include "services/api-gateway/routes/embedded_response.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::gateway {
namespace {

constexpr EmbeddedFile kFile = {"assets/a.js", "text/javascript", "abc123", "plain bytes", "small"};

Response Answer(std::vector<Header> headers, const EmbeddedFile& file = kFile) {
  Request request;
  request.headers = std::move(headers);
  return FileResponse(request, file, Caching::kImmutable, {{"X-Test", "kept"}});
}

std::string HeaderOf(const Response& response, const std::string& name) {
  for (const Header& header : response.headers) {
    if (header.name == name) return header.value;
  }
  return "";
}

TEST_CASE("Accept-Encoding: gzip is taken by its name or by the star, unless it is refused",
          "[dashboard]") {
  CHECK(AcceptsGzip("gzip"));
  CHECK(AcceptsGzip("br, GZIP;q=0.5"));
  CHECK(AcceptsGzip("*"));
  CHECK_FALSE(AcceptsGzip(""));
  CHECK_FALSE(AcceptsGzip("br"));
  CHECK_FALSE(AcceptsGzip("gzip;q=0"));
  CHECK_FALSE(AcceptsGzip("gzip; q=0.000, *"));
  CHECK_FALSE(AcceptsGzip("gzip;q=nonsense"));
  CHECK_FALSE(AcceptsGzip("notgzip"));
}

TEST_CASE("If-None-Match: each of a list counts, weak or strong", "[dashboard]") {
  CHECK(MatchesEtag("W/\"a\"", "W/\"a\""));
  CHECK(MatchesEtag("\"b\", \"a\"", "W/\"a\""));
  CHECK(MatchesEtag("*", "W/\"a\""));
  CHECK_FALSE(MatchesEtag("", "W/\"a\""));
  CHECK_FALSE(MatchesEtag("\"aa\"", "W/\"a\""));
}

TEST_CASE("An embedded file comes compressed only to a client that accepts it", "[dashboard]") {
  const Response plain = Answer({});
  CHECK(plain.body == "plain bytes");
  CHECK(HeaderOf(plain, "Content-Encoding").empty());
  CHECK(HeaderOf(plain, "Vary") == "Accept-Encoding");
  CHECK(HeaderOf(plain, "Cache-Control") == "public, max-age=31536000, immutable");
  CHECK(HeaderOf(plain, "X-Test") == "kept");
  const Response compressed = Answer({{"Accept-Encoding", "gzip"}});
  CHECK(compressed.body == "small");
  CHECK(HeaderOf(compressed, "Content-Encoding") == "gzip");
  EmbeddedFile font = kFile;
  font.gzip_bytes = {};
  CHECK(Answer({{"Accept-Encoding", "gzip"}}, font).body == "plain bytes");
}

TEST_CASE("A client that has the file gets a 304 without a body or its length", "[dashboard]") {
  const std::string etag = HeaderOf(Answer({}), "ETag");
  const Response same = Answer({{"If-None-Match", etag}});
  CHECK(same.status == 304);
  CHECK(same.body.empty());
  CHECK(HeaderOf(same, "ETag") == etag);
  const std::string head = ResponseHead(same, /*keep_alive=*/true);
  CHECK(head.find("Content-Length") == std::string::npos);
  CHECK(head.find("Content-Type") == std::string::npos);
}

}  // namespace
}  // namespace lathe::gateway

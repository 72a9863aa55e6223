#include "libs/common/object_store/s3_options.h"

#include <catch2/catch.hpp>

#include "libs/common/object_store/object_name.h"

namespace lathe {
namespace {

TEST_CASE("A URL names bucket and prefix", "[object_store]") {
  S3Options options;
  REQUIRE(ReadS3Url("s3://bucket/a/b/", options).ok());
  CHECK(options.bucket == "bucket");
  CHECK(options.prefix == "a/b");
  REQUIRE(ReadS3Url("s3://my.bucket", options).ok());
  CHECK(options.prefix.empty());
  for (const char* url : {"", "bucket", "http://bucket", "s3://", "s3://UPPER", "s3://ab",
                          "s3://bucket/../x", "s3://bucket/a b", "s3://bucket//x"}) {
    INFO(url);
    CHECK(absl::IsInvalidArgument(ReadS3Url(url, options)));
  }
}

TEST_CASE("Plain http stays on this machine", "[object_store]") {
  const auto check = [](const char* endpoint, bool insecure_i_know) {
    S3Options options;
    options.endpoint = endpoint;
    options.insecure_i_know = insecure_i_know;
    return CheckS3Options(options).ok();
  };
  CHECK(check("", false));
  CHECK(check("https://store.example", false));
  CHECK(check("http://127.0.0.1:9000", false));
  CHECK(check("http://localhost", false));
  CHECK_FALSE(check("http://10.0.0.1:9000", false));
  CHECK(check("http://10.0.0.1:9000", true));
  for (const char* endpoint :
       {"store.example", "ftp://x", "https://", "https://x/path", "https://u@x", "https://x?y"}) {
    INFO(endpoint);
    CHECK_FALSE(check(endpoint, true));
  }
}

TEST_CASE("A bucket is part of AWS's host, and of the path elsewhere", "[object_store]") {
  S3Options options;
  options.bucket = "bucket";
  options.region = "eu-north-1";
  CHECK(BucketUrl(options) == "https://bucket.s3.eu-north-1.amazonaws.com");
  options.bucket = "my.bucket";  // no certificate is for two labels before s3
  CHECK(BucketUrl(options) == "https://s3.eu-north-1.amazonaws.com/my.bucket");
  options.endpoint = "https://store:9000";
  CHECK(BucketUrl(options) == "https://store:9000/my.bucket");
}

TEST_CASE("Names of objects are the same in a URL and on a disk", "[object_store]") {
  for (const char* name : {"a", "a/b.c-d_E9", "LATHE_STORE"}) CHECK(CheckObjectName(name).ok());
  for (const char* name :
       {"", "/a", "a/", "a//b", ".", "a/../b", "a b", "a%20", "\xc3\xbc", "a+b"}) {
    INFO(name);
    CHECK_FALSE(CheckObjectName(name).ok());
  }
}

}  // namespace
}  // namespace lathe

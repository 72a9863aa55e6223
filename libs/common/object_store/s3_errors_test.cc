#include "libs/common/object_store/s3_errors.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"
#include "libs/common/object_store/object_store.h"
#include "libs/common/object_store/s3_xml.h"

namespace lathe {
namespace {

S3Failure Read(int status, const std::string& code) {
  S3Response response;
  response.status = status;
  if (!code.empty()) response.body = "<Error><Code>" + code + "</Code></Error>";
  return ReadFailure(response, "PUT", "s3://bucket/key");
}

TEST_CASE("An answer means what another attempt would change", "[object_store]") {
  CHECK(Read(503, "SlowDown").may_pass);
  CHECK(Read(500, "").may_pass);
  CHECK(Read(429, "").may_pass);
  CHECK(Read(404, "").may_pass);
  CHECK(Read(409, "ConditionalRequestConflict").may_pass);
  CHECK_FALSE(Read(501, "").may_pass);
  CHECK_FALSE(Read(507, "").may_pass);
  CHECK_FALSE(Read(404, "NoSuchKey").may_pass);
  CHECK_FALSE(Read(400, "InvalidArgument").may_pass);
}

TEST_CASE("An answer has the code that callers decide on", "[object_store]") {
  CHECK(absl::IsNotFound(Read(404, "NoSuchKey").status));
  CHECK(absl::IsNotFound(Read(404, "NoSuchUpload").status));
  CHECK(absl::IsUnavailable(Read(404, "").status));  // from a proxy
  CHECK(absl::IsFailedPrecondition(Read(404, "NoSuchBucket").status));
  CHECK(absl::IsAlreadyExists(Read(412, "PreconditionFailed").status));
  CHECK(absl::IsResourceExhausted(Read(507, "").status));
  CHECK(absl::IsPermissionDenied(Read(403, "").status));
  CHECK(absl::IsDataLoss(Read(416, "InvalidRange").status));
  CHECK(absl::IsInternal(Read(400, "").status));
  CHECK(Read(400, "ExpiredToken").wants_other_keys);
  CHECK(ErrorCode(Read(400, "ExpiredToken").status) == kNotValidNow);
  CHECK(ErrorCode(Read(403, "RequestTimeTooSkewed").status) == kNotValidNow);
  CHECK(ErrorCode(Read(403, "InvalidAccessKeyId").status) == "permission_denied");
  CHECK_FALSE(Read(403, "AccessDenied").wants_other_keys);
}

TEST_CASE("Markup in names and text that is no XML do no harm", "[object_store]") {
  const XmlElement list = XmlElement::Parse(
      "<?xml version=\"1.0\"?><L xmlns=\"u\"><K>a&amp;b&lt;c&#x41;</K><K/><E>e</E></L>");
  CHECK(list.name() == "L");
  REQUIRE(list.Children("K").size() == 2);
  CHECK(list.Text("K") == "a&b<cA");
  CHECK(list.Text("missing").empty());
  CHECK(list.Child("missing").Child("deeper").Text("x").empty());
  for (const char* text : {"", "no xml", "<a><b></a>", "<a", "{\"json\": 1}", "<a>&bad;</a>"}) {
    CHECK(XmlElement::Parse(text).Children("b").empty());
  }
}

}  // namespace
}  // namespace lathe

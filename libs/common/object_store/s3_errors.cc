#include "libs/common/object_store/s3_errors.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/object_store/object_store.h"
#include "libs/common/object_store/s3_xml.h"

namespace lathe {
namespace {

struct Meaning {
  std::string_view code;
  absl::StatusCode status;
  bool may_pass;
  std::string_view remedy;
};

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr auto kConfiguration = absl::StatusCode::kFailedPrecondition;
constexpr auto kFull = absl::StatusCode::kResourceExhausted;

constexpr std::array kMeanings = {
    Meaning{"SlowDown", kUnavailable, true, "the store asks for fewer requests"},
    Meaning{"RequestTimeout", kUnavailable, true, ""},
    Meaning{"ConditionalRequestConflict", kUnavailable, true, ""},
    Meaning{"OperationAborted", kUnavailable, true, ""},
    Meaning{"BadDigest", kUnavailable, true, "bytes changed on the way"},
    Meaning{"XAmzContentSHA256Mismatch", kUnavailable, true, "bytes changed on the way"},
    Meaning{"NoSuchKey", absl::StatusCode::kNotFound, false, ""},
    Meaning{"NoSuchUpload", absl::StatusCode::kNotFound, false, ""},
    Meaning{"NoSuchBucket", kConfiguration, false, "create the bucket, or correct storage.files"},
    Meaning{"PermanentRedirect", kConfiguration, false,
            "the bucket is in another region: set storage.region"},
    Meaning{"AuthorizationHeaderMalformed", kConfiguration, false,
            "the bucket is in another region: set storage.region"},
    Meaning{"IllegalLocationConstraintException", kConfiguration, false,
            "the bucket is in another region: set storage.region"},
    Meaning{"RequestTimeTooSkewed", kDenied, false, "this machine's clock is wrong: set it"},
    Meaning{"SignatureDoesNotMatch", kDenied, false,
            "the secret key is wrong, or a proxy changes requests"},
    Meaning{"InvalidAccessKeyId", kDenied, false, "the store does not know the access key"},
    Meaning{"AccessDenied", kDenied, false,
            "the keys need s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload, "
            "s3:ListBucket and s3:ListBucketMultipartUploads here"},
    Meaning{"QuotaExceeded", kFull, false, "the bucket's quota is used up"},
    Meaning{"XMinioStorageFull", kFull, false, "the store is full"},
    Meaning{"XMinioAdminBucketQuotaExceeded", kFull, false, "the bucket's quota is used up"},
    Meaning{"NotImplemented", kConfiguration, false,
            "the store lacks an operation that Lathe needs (docs/deploy/object_storage.md)"}};

const Meaning* FindMeaning(std::string_view code) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.code == code) return &meaning;
  }
  return nullptr;
}

Meaning MeaningOfStatus(int status) {
  switch (status) {
    case 301:
    case 307:
      return {"", kConfiguration, false, "the bucket is in another region: set storage.region"};
    case 403:
      return {"", kDenied, false, "the keys are not allowed to do this"};
    case 404:
      // A store names the reason. A proxy before it does not, and answers so for everything.
      return {"", kUnavailable, true, "something before the store answers in its place"};
    case 409:
    case 429:
      return {"", kUnavailable, true, ""};
    case 412:
      return {"", absl::StatusCode::kAlreadyExists, false, ""};
    case 416:
      return {"", absl::StatusCode::kDataLoss, false, "the object is shorter than expected"};
    case 501:
      return {"", kConfiguration, false,
              "the store lacks an operation that Lathe needs (docs/deploy/object_storage.md)"};
    case 507:
      return {"", kFull, false, "the store is full"};
    default:
      if (status >= 500) return {"", kUnavailable, true, ""};
      return {"", absl::StatusCode::kInternal, false, ""};
  }
}

bool AreKeysOld(std::string_view code) {
  return code == "ExpiredToken" || code == "TokenRefreshRequired" || code == "InvalidToken" ||
         code == "RequestExpired";
}

}  // namespace

S3Failure ReadFailure(const S3Response& response, const std::string& method,
                      const std::string& address) {
  const XmlElement xml = XmlElement::Parse(response.body);
  S3Failure failure{.code = xml.Text("Code"), .status = {}};
  const Meaning* const named = FindMeaning(failure.code);
  Meaning meaning = named != nullptr ? *named : MeaningOfStatus(response.status);
  // The answer to a HEAD has no text. The caller asks again with GET.
  if (method == "HEAD" && response.status == 404) {
    meaning = {"", absl::StatusCode::kNotFound, false, ""};
  }
  if (AreKeysOld(failure.code)) {
    failure.wants_other_keys = true;
    meaning = {"", kDenied, false, "the keys have expired"};
  }
  failure.may_pass = meaning.may_pass;
  std::string message =
      absl::StrFormat("%s %s: the store answered %d", method, address, response.status);
  if (!failure.code.empty()) absl::StrAppend(&message, " ", failure.code);
  if (const std::string text = xml.Text("Message"); !text.empty()) {
    absl::StrAppend(&message, " (", text.substr(0, 200), ")");
  }
  const auto region = response.headers.find("x-amz-bucket-region");
  if (!meaning.remedy.empty()) absl::StrAppend(&message, "; ", std::string(meaning.remedy));
  if (meaning.status == kConfiguration && region != response.headers.end()) {
    absl::StrAppend(&message, " (", region->second, ")");
  }
  failure.status = absl::Status(meaning.status, message);
  if (failure.wants_other_keys || failure.code == "RequestTimeTooSkewed") {
    failure.status = WithDetail(failure.status, kNotValidNow);
  }
  return failure;
}

}  // namespace lathe

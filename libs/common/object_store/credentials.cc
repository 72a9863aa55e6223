#include "libs/common/object_store/credentials.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "libs/common/http_client/http_call.h"
#include "libs/common/json/json.h"
#include "libs/common/object_store/s3_xml.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr absl::Duration kBeforeExpiry = absl::Minutes(5);
// Keys of a file may be replaced by whoever writes the file.
constexpr absl::Duration kFileKept = absl::Minutes(1);
// Pauses after a source has given no keys.
constexpr absl::Duration kLeftAlone = absl::Seconds(1);
constexpr absl::Duration kLeftAloneWithKeys = absl::Seconds(15);

absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& what) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " names ", path, ", which cannot be read"));
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StripAsciiWhitespace(&text);
  return text;
}

absl::Time ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return time;
  return absl::Now() + kBeforeExpiry + kFileKept;
}

std::string PercentEncoded(const std::string& text) { return EncodeQueryPart(text); }

absl::Status NoKeys() {
  return absl::FailedPreconditionError(
      "there are no keys for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
      "(or the same names with _FILE), AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, "
      "AWS_CONTAINER_CREDENTIALS_FULL_URI, or a profile in ~/.aws/credentials");
}

}  // namespace

AwsCredentials::AwsCredentials(Environment environment, std::string region)
    : environment_(std::move(environment)), region_(std::move(region)) {}

std::string AwsCredentials::Text(const char* name) const {
  const char* const value = environment_(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> AwsCredentials::Variable(const char* name) const {
  const std::string value = Text(name);
  if (!value.empty()) return value;
  const std::string file = absl::StrCat(name, "_FILE");
  const std::string path = Text(file.c_str());
  return path.empty() ? absl::StatusOr<std::string>("") : ReadText(path, file);
}

absl::StatusOr<AwsKeys> AwsCredentials::Get() {
  absl::MutexLock lock(&mu_);
  const absl::Time now = absl::Now();
  if (now >= read_again_at_) Look(now);
  // Keys that are still valid serve until their source answers again.
  const bool are_valid = !keys_.access_key.empty() && now < keys_.expires_at;
  if (failure_.ok() || are_valid) return keys_;
  return failure_;
}

void AwsCredentials::Look(absl::Time now) {
  absl::StatusOr<AwsKeys> found = Find();
  failure_ = found.status();
  if (!found.ok()) {
    // Many requests want keys at once, and an endpoint that fails takes seconds each time.
    read_again_at_ = now + (keys_.access_key.empty() ? kLeftAlone : kLeftAloneWithKeys);
    return;
  }
  keys_ = *std::move(found);
  read_again_at_ =
      std::clamp(keys_.expires_at - kBeforeExpiry, now + kLeftAlone, now + absl::Hours(1));
  if (keys_.expires_at == absl::InfiniteFuture()) read_again_at_ = now + kFileKept;
}

void AwsCredentials::Forget(const AwsKeys& refused) {
  absl::MutexLock lock(&mu_);
  const bool are_current = keys_.access_key == refused.access_key &&
                           keys_.secret_key == refused.secret_key &&
                           keys_.session_token == refused.session_token;
  if (!are_current) return;
  read_again_at_ = absl::InfinitePast();
  keys_ = {};
}

absl::StatusOr<AwsKeys> AwsCredentials::Find() const {
  ASSIGN_OR_RETURN(std::string access_key, Variable("AWS_ACCESS_KEY_ID"));
  ASSIGN_OR_RETURN(std::string secret_key, Variable("AWS_SECRET_ACCESS_KEY"));
  if (access_key.empty() != secret_key.empty()) {
    return absl::FailedPreconditionError(
        "one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is missing");
  }
  if (!access_key.empty()) {
    ASSIGN_OR_RETURN(std::string token, Variable("AWS_SESSION_TOKEN"));
    return AwsKeys{.access_key = std::move(access_key),
                   .secret_key = std::move(secret_key),
                   .session_token = std::move(token)};
  }
  if (!Text("AWS_WEB_IDENTITY_TOKEN_FILE").empty()) return FromWebIdentity();
  const std::string full = Text("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!full.empty()) return FromContainer(full);
  const std::string relative = Text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  // The address that ECS documents for tasks.
  if (!relative.empty()) return FromContainer(absl::StrCat("http://169.254.170.2", relative));
  return FromProfile();
}

absl::StatusOr<AwsKeys> AwsCredentials::FromWebIdentity() const {
  const std::string role = Text("AWS_ROLE_ARN");
  if (role.empty()) {
    return absl::FailedPreconditionError(
        "AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is missing");
  }
  ASSIGN_OR_RETURN(const std::string token,
                   ReadText(Text("AWS_WEB_IDENTITY_TOKEN_FILE"), "AWS_WEB_IDENTITY_TOKEN_FILE"));
  std::string session = Text("AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "lathe";
  std::string endpoint = Text("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty()) endpoint = absl::StrCat("https://sts.", region_, ".amazonaws.com");
  ASSIGN_OR_RETURN(
      const std::string answer,
      HttpCall(
          {.url = endpoint + "/",
           .headers = {"Content-Type: application/x-www-form-urlencoded"},
           .body = absl::StrCat("Action=AssumeRoleWithWebIdentity&RoleArn=", PercentEncoded(role),
                                "&RoleSessionName=", PercentEncoded(session), "&Version=2011-06-15",
                                "&WebIdentityToken=", PercentEncoded(token)),
           .may_proxy = true}));
  const XmlElement xml = XmlElement::Parse(answer);
  const XmlElement found = xml.Child("AssumeRoleWithWebIdentityResult").Child("Credentials");
  AwsKeys keys{.access_key = found.Text("AccessKeyId"),
               .secret_key = found.Text("SecretAccessKey"),
               .session_token = found.Text("SessionToken"),
               .expires_at = ParseTime(found.Text("Expiration"))};
  if (keys.access_key.empty()) {
    return absl::UnavailableError(absl::StrCat("STS at ", UrlToShow(endpoint), " gave no keys"));
  }
  return keys;
}

absl::StatusOr<AwsKeys> AwsCredentials::FromContainer(const std::string& url) const {
  ASSIGN_OR_RETURN(const std::string token, Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
  std::vector<std::string> headers;
  if (!token.empty()) headers.push_back(absl::StrCat("Authorization: ", token));
  ASSIGN_OR_RETURN(const std::string answer, HttpCall({.url = url, .headers = headers}));
  // A parser's error quotes the text, which may be a secret.
  const Json json = ParseJson(answer, "keys").value_or(Json());
  AwsKeys keys{.access_key = JsonString(json, "AccessKeyId").value_or(""),
               .secret_key = JsonString(json, "SecretAccessKey").value_or(""),
               .session_token = JsonString(json, "Token").value_or(""),
               .expires_at = ParseTime(JsonString(json, "Expiration").value_or(""))};
  if (!keys.access_key.empty() && !keys.secret_key.empty()) return keys;
  return absl::UnavailableError(
      absl::StrCat(UrlToShow(url), " gave no AccessKeyId or no SecretAccessKey"));
}

absl::StatusOr<AwsKeys> AwsCredentials::FromProfile() const {
  std::string path = Text("AWS_SHARED_CREDENTIALS_FILE");
  if (path.empty()) path = absl::StrCat(Text("HOME"), "/.aws/credentials");
  std::string profile = Text("AWS_PROFILE");
  if (profile.empty()) profile = "default";
  std::ifstream file(path);
  if (!file) return NoKeys();
  AwsKeys keys;
  bool is_ours = false;
  for (std::string line; std::getline(file, line);) {
    absl::StripAsciiWhitespace(&line);
    if (absl::StartsWith(line, "#") || absl::StartsWith(line, ";")) continue;
    if (absl::StartsWith(line, "[")) is_ours = line == absl::StrCat("[", profile, "]");
    const std::pair<std::string, std::string> entry = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (!is_ours) continue;
    const auto key = absl::StripAsciiWhitespace(entry.first);
    const std::string value(absl::StripAsciiWhitespace(entry.second));
    if (key == "aws_access_key_id") keys.access_key = value;
    if (key == "aws_secret_access_key") keys.secret_key = value;
    if (key == "aws_session_token") keys.session_token = value;
  }
  if (!keys.access_key.empty() && !keys.secret_key.empty()) return keys;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has no keys in profile [", profile, "]"));
}

}  // namespace lathe

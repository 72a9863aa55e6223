#include "libs/common/object_store/http_call.h"

#include <curl/curl.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace lathe {
namespace {

constexpr size_t kMaxAnswerBytes = 1 << 20;

size_t Append(char* data, size_t, size_t size, void* answer) {
  auto& text = *static_cast<std::string*>(answer);
  if (text.size() + size > kMaxAnswerBytes) return 0;
  text.append(data, size);
  return size;
}

}  // namespace

void InitCurlOnce() {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(initialized);
}

std::string EncodeQueryPart(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += absl::StrFormat("%%%02X", byte);
    }
  }
  return encoded;
}

std::string UrlToShow(const std::string& url) {
  const std::string place = url.substr(0, url.find_first_of("?#"));
  const size_t host = place.find("://") == std::string::npos ? 0 : place.find("://") + 3;
  const size_t user = place.substr(0, place.find('/', host)).rfind('@');
  return user == std::string::npos ? place : place.substr(0, host) + place.substr(user + 1);
}

absl::StatusOr<std::string> HttpCall(const HttpCallRequest& request) {
  InitCurlOnce();
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  curl_slist* list = nullptr;
  for (const std::string& header : request.headers) list = curl_slist_append(list, header.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  std::string answer;
  curl_easy_setopt(curl.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  if (!request.may_proxy) curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, 5000L);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer);
  if (!request.form.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(request.form.size()));
    curl_easy_setopt(curl.get(), CURLOPT_COPYPOSTFIELDS, request.form.c_str());
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) {
    return absl::UnavailableError(absl::StrFormat("%s does not answer: %s", UrlToShow(request.url),
                                                  curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status / 100 == 2) return answer;
  return absl::UnavailableError(
      absl::StrFormat("%s answered %d, not with keys", UrlToShow(request.url), status));
}

}  // namespace lathe

#include "libs/common/http_client/http_call.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

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

int OnProgress(void* is_cancelled, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<const std::function<bool()>*>(is_cancelled))() ? 1 : 0;
}

bool IsLocal(const in_addr& address) {
  const uint32_t bits = ntohl(address.s_addr);
  return bits >> 24 == 127 || bits >> 24 == 0 || bits >> 16 == 0xa9fe || bits >> 28 >= 0xe;
}

bool IsLocal(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address) || IN6_IS_ADDR_V4COMPAT(&address)) {
    in_addr inner = {};
    std::memcpy(&inner.s_addr, &address.s6_addr[12], sizeof(inner.s_addr));
    // ::1 and :: have the form of the second kind.
    return IN6_IS_ADDR_V4COMPAT(&address) || IsLocal(inner);
  }
  return IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address) ||
         IN6_IS_ADDR_LINKLOCAL(&address) || IN6_IS_ADDR_MULTICAST(&address);
}

// Sees the address that is really dialed, after every lookup of a name.
curl_socket_t OpenNoLocal(void*, curlsocktype, curl_sockaddr* peer) {
  if (peer->family == AF_INET) {
    sockaddr_in address = {};
    std::memcpy(&address, &peer->addr, sizeof(address));
    if (IsLocal(address.sin_addr)) return CURL_SOCKET_BAD;
  } else if (peer->family == AF_INET6) {
    sockaddr_in6 address = {};
    const auto* const whole = reinterpret_cast<const sockaddr_in6*>(&peer->addr);
    address = *whole;
    if (IsLocal(address.sin6_addr)) return CURL_SOCKET_BAD;
  } else {
    return CURL_SOCKET_BAD;
  }
  return socket(peer->family, peer->socktype | SOCK_CLOEXEC, peer->protocol);
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

absl::StatusOr<HttpAnswer> HttpExchange(const HttpCallRequest& request) {
  InitCurlOnce();
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  curl_slist* list = nullptr;
  for (const std::string& header : request.headers) list = curl_slist_append(list, header.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  HttpAnswer answer;
  curl_easy_setopt(curl.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  if (request.refuses_local) {
    curl_easy_setopt(curl.get(), CURLOPT_OPENSOCKETFUNCTION, OpenNoLocal);
  }
  if (!request.may_proxy) curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(request.timeout)));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  if (!request.body.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.is_cancelled) {
    curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, OnProgress);
    curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &request.is_cancelled);
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_ABORTED_BY_CALLBACK) return absl::CancelledError("the call was cancelled");
  if (code != CURLE_OK) {
    return absl::UnavailableError(absl::StrFormat("%s does not answer: %s", UrlToShow(request.url),
                                                  curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

absl::StatusOr<std::string> HttpCall(const HttpCallRequest& request) {
  absl::StatusOr<HttpAnswer> answer = HttpExchange(request);
  if (!answer.ok()) return answer.status();
  if (answer->status / 100 == 2) return std::move(answer->body);
  return absl::UnavailableError(
      absl::StrFormat("%s answered %d", UrlToShow(request.url), answer->status));
}

}  // namespace lathe

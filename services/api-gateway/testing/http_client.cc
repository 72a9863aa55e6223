#include "services/api-gateway/testing/http_client.h"

#include <algorithm>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/api-gateway/testing/fake_engine.h"

namespace lathe::gateway {

HttpClient::HttpClient(int port) : socket_(io_) {
  socket_.connect({asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
}

void HttpClient::Send(const std::string& method, const std::string& target, const std::string& body,
                      const std::vector<Header>& headers) {
  std::string text = absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: gateway.test:80\r\n");
  bool has_key = false;
  for (const Header& header : headers) {
    has_key |= absl::AsciiStrToLower(header.name) == "x-api-key";
    if (!header.value.empty()) absl::StrAppend(&text, header.name, ": ", header.value, "\r\n");
  }
  if (!has_key) absl::StrAppend(&text, "X-API-Key: ", FakeEngine::kFakeKey, "\r\n");
  absl::StrAppend(&text, "Content-Length: ", body.size(), "\r\n\r\n", body);
  SendRaw(text);
}

void HttpClient::SendRaw(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }

HttpAnswer HttpClient::Receive() {
  const size_t head_bytes = asio::read_until(socket_, asio::dynamic_buffer(received_), "\r\n\r\n");
  HttpAnswer answer;
  std::istringstream head(received_.substr(0, head_bytes));
  received_.erase(0, head_bytes);
  std::string line;
  std::getline(head, line);
  answer.status = std::stoi(line.substr(9, 3));
  while (std::getline(head, line) && line != "\r") {
    const size_t colon = line.find(':');
    answer.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  const size_t num_bytes =
      answer.headers.count("content-length") > 0 ? std::stoul(answer.headers["content-length"]) : 0;
  if (received_.size() < num_bytes) {
    asio::read(socket_, asio::dynamic_buffer(received_),
               asio::transfer_exactly(num_bytes - received_.size()));
  }
  answer.body = received_.substr(0, num_bytes);
  received_.erase(0, num_bytes);
  return answer;
}

HttpAnswer HttpClient::Exchange(const std::string& method, const std::string& target,
                                const std::string& body, const std::vector<Header>& headers) {
  Send(method, target, body, headers);
  return Receive();
}

HttpAnswer HttpClient::Post(const std::string& target, const std::string& json) {
  return Exchange("POST", target, json, {{"Content-Type", "application/json"}});
}

std::string HttpClient::ReceiveAll() {
  boost::system::error_code error;
  asio::read(socket_, asio::dynamic_buffer(received_), error);
  return std::exchange(received_, {});
}

void HttpClient::Close() { socket_.close(); }

bool HttpClient::IsClosedByServer() {
  char byte;
  boost::system::error_code error;
  socket_.read_some(asio::buffer(&byte, 1), error);
  return static_cast<bool>(error);
}

}  // namespace lathe::gateway

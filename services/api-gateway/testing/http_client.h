// A blocking HTTP client for tests. It can send arbitrary bytes.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <map>
#include <string>
#include <vector>

#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

struct HttpAnswer {
  int status = 0;
  // Names in lower case.
  std::map<std::string, std::string> headers;
  std::string body;
};

// One connection to 127.0.0.1. Throws boost::system::system_error if the connection breaks.
class HttpClient {
 public:
  explicit HttpClient(int port);

  // Sends a request with the fake engine's key (unless `headers` has an x-api-key) and a
  // Content-Length.
  void Send(const std::string& method, const std::string& target, const std::string& body = "",
            const std::vector<Header>& headers = {});
  void SendRaw(const std::string& bytes);
  HttpAnswer Receive();
  HttpAnswer Exchange(const std::string& method, const std::string& target,
                      const std::string& body = "", const std::vector<Header>& headers = {});
  HttpAnswer Post(const std::string& target, const std::string& json);
  // Returns all bytes received until the server closes the connection.
  std::string ReceiveAll();
  void Close();
  // Waits for the next byte or the end. Returns true if the server has closed the connection. All
  // answers must have been received before.
  bool IsClosedByServer();

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
  std::string received_;
};

}  // namespace lathe::gateway

// An HTTP server for tests, which answers each request with the next of several texts.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lathe {

// Takes one request a connection. The last answer is repeated. An empty one keeps the connection
// open without an answer, until the server ends.
class AnsweringServer {
 public:
  explicit AnsweringServer(std::deque<std::string> answers)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)), answers_(std::move(answers)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd_, 16) != 0) {
      std::abort();
    }
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~AnsweringServer() {
    is_over_ = true;
    thread_.join();
    for (const int peer : held_) close(peer);
    close(fd_);
  }
  AnsweringServer(const AnsweringServer&) = delete;
  AnsweringServer& operator=(const AnsweringServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mu_);
    return requests_;
  }

  static std::string Answer(int status, const std::string& body = "{}") {
    return "HTTP/1.1 " + std::to_string(status) +
           " Word\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
  }

 private:
  void Run() {
    while (!is_over_) {
      pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 20) == 1) Serve(accept(fd_, nullptr, nullptr));
    }
  }

  void Serve(int peer) {
    std::string request;
    char piece[4096];
    size_t expected = std::string::npos;
    while (request.size() < expected) {
      const ssize_t got = recv(peer, piece, sizeof(piece), 0);
      if (got <= 0) break;
      request.append(piece, static_cast<size_t>(got));
      const size_t end = request.find("\r\n\r\n");
      if (expected != std::string::npos || end == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      expected = end + 4 + (length < end ? std::stoul(request.substr(length + 16)) : 0);
    }
    std::string answer;
    {
      const std::lock_guard lock(mu_);
      requests_.push_back(std::move(request));
      answer = answers_.front();
      if (answers_.size() > 1) answers_.pop_front();
    }
    if (answer.empty()) return held_.push_back(peer);
    send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(peer);
  }

  const int fd_;
  int port_ = 0;
  std::atomic<bool> is_over_ = false;
  std::vector<int> held_;
  std::mutex mu_;
  std::deque<std::string> answers_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace lathe
